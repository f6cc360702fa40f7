"""Back-pressure: a bounded number of messages waits for the program; at the limit the client stops reading the
socket."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroad.client.received_message import ReceivedMessage

__all__ = ["OVERSHOOT", "Intake", "Mailbox"]

# A program that waits for a receipt inside the loop over its messages would wait for ever if a full mailbox stopped
# the reading. So while a receipt is awaited a mailbox may hold this many times its limit, and then no more.
OVERSHOOT = 16


class Intake:
    """Says whether to read from the connection."""

    def __init__(self) -> None:
        self._full: set[Mailbox] = set()
        self._awaited = 0
        self._closing = False
        self._open = asyncio.Event()
        self._open.set()

    async def room(self) -> None:
        """Wait until there is room for more."""
        await self._open.wait()

    @property
    def is_open(self) -> bool:
        """Whether there is room."""
        return self._open.is_set()

    def fullest(self) -> Mailbox | None:
        """The mailbox that holds up the connection most, if any does."""
        return max(self._full, key=lambda mailbox: mailbox.waiting / mailbox.limit, default=None)

    def await_receipts(self, change: int) -> None:
        """So many more receipts are awaited, or fewer."""
        self._awaited += change
        self._decide()

    def close(self) -> None:
        """Keep reading, however much waits: the rest is dropped."""
        self._closing = True
        self._decide()

    def changed(self, mailbox: Mailbox) -> None:
        """A mailbox holds more or fewer than before."""
        if mailbox.waiting >= mailbox.limit:
            self._full.add(mailbox)
            self._decide()
        elif mailbox in self._full and mailbox.waiting <= mailbox.limit // 2:
            # Half empty before reading continues: stopping and starting for each message would cost more than it moves.
            self._full.discard(mailbox)
            self._decide()

    def forget(self, mailbox: Mailbox) -> None:
        """A mailbox does not count any more."""
        self._full.discard(mailbox)
        self._decide()

    def _decide(self) -> None:
        brimming = any(mailbox.waiting >= OVERSHOOT * mailbox.limit for mailbox in self._full)
        if self._closing or not self._full or (self._awaited and not brimming):
            self._open.set()
        else:
            self._open.clear()


class Mailbox:
    """What has arrived for one subscription and waits for the program.

    Attributes:
        name: the id of the subscription, for errors.
        limit: how many may wait before the connection is not read any more. One read can bring a few more.
    """

    def __init__(self, name: str, limit: int, intake: Intake) -> None:
        self.name = name
        self.limit = limit
        self._intake = intake
        self._messages: deque[ReceivedMessage] = deque()
        self._news = asyncio.Event()
        self._ended = False
        self._error: Exception | None = None

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._messages)

    def put(self, message: ReceivedMessage) -> None:
        """A message arrived."""
        if not self._ended:
            self._messages.append(message)
            self._news.set()
            self._intake.changed(self)

    def end(self, error: Exception | None) -> None:
        """End the mailbox: with the reason, or because the program has unsubscribed."""
        if not self._ended:
            self._ended, self._error = True, error
            self._news.set()
            self._intake.forget(self)

    async def take(self) -> ReceivedMessage | None:
        """The next message, or None after the last; raises the reason of an end once all before it are taken."""
        while not self._messages:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._ended:
                return None
            self._news.clear()
            await self._news.wait()
        message = self._messages.popleft()
        if not self._ended:
            self._intake.changed(self)
        return message
