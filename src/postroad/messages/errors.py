"""What this room refuses, and on whose behalf."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["DecodeError", "MessageError"]


class MessageError(PostroadError):
    """A message this program wants to make, or an argument it gave, is not a legal one."""


class DecodeError(PostroadError):
    """Bytes that came from elsewhere are not what `docs/formats.md` says they must be.

    Attributes:
        reason: what is wrong, without the place.
        row: the row of the batch, counted from 0; -1 when no message of a batch is to blame.
        offset: where in the buffer, counted from 0; -1 when no single byte is to blame.
    """

    def __init__(self, reason: str, row: int = -1, offset: int = -1) -> None:
        self.reason = reason
        self.row = row
        self.offset = offset
        places = [] if row < 0 else [f"message {row}"]
        if offset >= 0:
            places.append(f"byte {offset}")
        super().__init__(f"{', '.join(places)}: {reason}" if places else reason)
