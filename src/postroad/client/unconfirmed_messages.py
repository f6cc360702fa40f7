"""Messages that were sent and may be lost with the connection: kept until the broker has confirmed them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from postroad.client.errors import ConnectionLost
from postroad.client.send_frames import with_headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.errors import PostroadError

__all__ = ["CONFIRMS", "Unconfirmed"]

# A broker confirms within a round trip, so this is a few seconds of a busy publisher; beyond it publishing waits.
MAX_UNCONFIRMED_BYTES = 16 * 1024 * 1024
# A receipt is asked for once in this many messages or bytes: it confirms all before it, at a hundredth of the cost.
CONFIRM_MESSAGES = 100
CONFIRM_BYTES = 64 * 1024
# The name of that receipt; no caller waits for it.
CONFIRMS = "kept"


class Unconfirmed:
    """Frames in the order of their ids, each by the `tail` of its id.

    A receipt confirms all messages up to its own: a connection keeps order, and so does the broker.
    """

    def __init__(self) -> None:
        self._frames: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._unasked = self._unasked_bytes = 0
        self._confirmed = -1
        # The last messages that were given up: (the last confirmed before, the last of them, why).
        self._lost: tuple[int, int, PostroadError] | None = None
        self._progress = asyncio.Event()

    def __len__(self) -> int:
        return len(self._frames)

    def keep(self, sent: Iterable[tuple[int, bytes]]) -> bool:
        """Keep frames until they are confirmed; returns whether to ask for a receipt with the last of them."""
        for tail, frame in sent:
            self._frames.append((tail, frame))
            self._bytes += len(frame)
            self._unasked += 1
            self._unasked_bytes += len(frame)
        if self._unasked < CONFIRM_MESSAGES and self._unasked_bytes < CONFIRM_BYTES:
            return False
        self._unasked = self._unasked_bytes = 0
        return True

    def confirm(self, tail: int) -> None:
        """All messages up to this one have entered."""
        self._confirmed = max(self._confirmed, tail)
        while self._frames and self._frames[0][0] <= tail:
            self._bytes -= len(self._frames.popleft()[1])
        self._tell()

    def again(self) -> list[bytes]:
        """What to send over a new connection, in order; the last asks for a receipt, which confirms all."""
        frames = [frame for _, frame in self._frames]
        if frames:
            frames[-1] = with_headers(frames[-1], receipt=CONFIRMS)
        self._unasked = self._unasked_bytes = 0
        return frames

    def give_up(self, failure: PostroadError) -> int:
        """Forget what is not confirmed; returns how many messages these are."""
        left = len(self._frames)
        if left:
            self._lost = (self._confirmed, self._frames[-1][0], failure)
        self._frames.clear()
        self._bytes = 0
        self._tell()
        return left

    @property
    def is_full(self) -> bool:
        """Whether no more should be sent before some is confirmed."""
        return self._bytes > MAX_UNCONFIRMED_BYTES

    async def room(self) -> None:
        """Wait while too much is kept."""
        while self.is_full:
            await self._progress.wait()

    async def confirmed(self, tail: int) -> None:
        """Wait until a message has entered, over whichever connection.

        Raises:
            PostroadError: it was given up; whether it has entered is not known.
        """
        while True:
            if self._lost is not None and self._lost[0] < tail <= self._lost[1]:
                raise ConnectionLost(f"whether the message was accepted is not known: {self._lost[2]}")
            if self._confirmed >= tail:
                return
            await self._progress.wait()

    def _tell(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()
