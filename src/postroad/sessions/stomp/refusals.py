"""Refusals: what an ERROR says, and whether a client that did nothing wrong may come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker import BrokerError
from postroad.protocols import stomp
from postroad.protocols.stomp.id_headers import AGAIN_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from postroad.protocols.stomp import Version

__all__ = ["AGAIN", "UnavailableError", "again_headers", "refusal_frame", "refused_frame"]

AGAIN: Mapping[str, str] = {AGAIN_HEADER: "true"}


class UnavailableError(BrokerError):
    """The broker has no room or no time for a client now; a later connection may work."""


def again_headers(error: Exception) -> Mapping[str, str] | None:
    """Return the headers of the ERROR that says this; None if there are none beside its text."""
    return AGAIN if isinstance(error, UnavailableError) else None


def refusal_frame(
    text: str,
    version: Version | None,
    receipt: bytes | None = None,
    details: str = "",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return an ERROR; lines of the text after the first are its details."""
    first, _, rest = text.partition("\n")
    return stomp.error_frame(first, version, details=rest or details, receipt=receipt, headers=headers or {})


def refused_frame(event: stomp.ProtocolError) -> tuple[str, dict[str, str]]:
    """Return the details and the headers of the ERROR about a frame that is not valid."""
    shown = event.frame.decode("utf-8", "replace")
    details = f"The frame was, as far as it was read:\n{shown}" if shown else ""
    return details, {} if event.versions is None else {"version": event.versions}
