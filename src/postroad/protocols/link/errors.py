"""Errors of a link, with numbers for the reasons that both ends know."""

from __future__ import annotations

from enum import IntEnum

from postroad.errors import PostroadError

__all__ = ["LinkError", "Reason"]


class Reason(IntEnum):
    """Why a link ends. The numbers are sent in BYE frames, and never change their meaning."""

    CLOSING = 1
    FAULT = 2
    VERSION = 3
    NETWORK = 4
    OWN_NUMBER = 5
    UNEXPECTED_NUMBER = 6
    AUTHENTICATION = 7
    SECRET = 8
    SILENT = 9
    REPLACED = 10
    REFUSED = 11
    KEY = 12
    QUARANTINED = 13


class LinkError(PostroadError):
    """A link cannot continue: close the connection.

    Attributes:
        reason: for the BYE to the peer.
        ours: whether this end found it. An error that the peer sent in a BYE is not sent back.
    """

    def __init__(self, text: str, reason: Reason = Reason.FAULT, *, ours: bool = True) -> None:
        self.reason = reason
        self.ours = ours
        super().__init__(text)
