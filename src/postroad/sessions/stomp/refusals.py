"""Refusals of clients that did nothing wrong: the ERROR says that they may come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker import BrokerError
from postroad.protocols.stomp.id_headers import AGAIN_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AGAIN", "UnavailableError", "again_headers"]

AGAIN: Mapping[str, str] = {AGAIN_HEADER: "true"}


class UnavailableError(BrokerError):
    """The broker has no room or no time for a client now; a later connection may work."""


def again_headers(error: Exception) -> Mapping[str, str] | None:
    """Return the headers of the ERROR that says this; None if there are none beside its text."""
    return AGAIN if isinstance(error, UnavailableError) else None
