"""Replies to a client that sends and does not read: how many may wait, and for how long."""

from __future__ import annotations

__all__ = ["MAX_UNREAD_REPLY_BYTES", "UNREAD_REPLY_MS", "UnreadReplies"]

# Receipts that wait for a full socket because their client sends and does not read. Beyond this the broker stops
# reading from it. As much again as the socket's own buffer.
MAX_UNREAD_REPLY_BYTES = 1024 * 1024
# How long it then has to read some. Without a limit, both sides could wait for each other for ever.
UNREAD_REPLY_MS = 30_000


class UnreadReplies:
    """What was written to a congested socket since it was last writable.

    Attributes:
        bytes: how much.
        give_up_at: when to close, in ms of the timer; None while the client is read from.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.give_up_at: int | None = None

    def add(self, size: int, now: int) -> bool:
        """Count bytes; return whether to stop reading from the client; True only once."""
        self.bytes += size
        if self.bytes <= MAX_UNREAD_REPLY_BYTES or self.give_up_at is not None:
            return False
        self.give_up_at = now + UNREAD_REPLY_MS
        return True

    def clear(self) -> bool:
        """Note that the socket takes more again; return whether to resume reading from the client."""
        stopped = self.give_up_at is not None
        self.bytes, self.give_up_at = 0, None
        return stopped
