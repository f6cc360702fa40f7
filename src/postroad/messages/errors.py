"""Errors of messages: one for what this program does wrong, one for bytes from elsewhere."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["DecodeError", "MessageError"]


class MessageError(PostroadError):
    """This program tried to make a message that is not valid, or passed a wrong argument."""


class DecodeError(PostroadError):
    """Bytes from elsewhere are not as `docs/formats.md` requires.

    Attributes:
        reason: what is wrong, without the place.
        row: the row of the batch, counted from 0; -1 if the fault is in no single message.
        offset: where in the buffer, counted from 0; -1 if the fault is at no single byte.
    """

    def __init__(self, reason: str, row: int = -1, offset: int = -1) -> None:
        self.reason = reason
        self.row = row
        self.offset = offset
        places = [] if row < 0 else [f"message {row}"]
        if offset >= 0:
            places.append(f"byte {offset}")
        super().__init__(f"{', '.join(places)}: {reason}" if places else reason)
