"""A simulated link: both directions in order, with delay, bandwidth, and cuts.

A sender keeps what it sent until the other end has confirmed it. A cut loses what is under way in both directions,
confirmations too; the sender then gets back everything unconfirmed, which may have arrived all the same.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.broker import Sending
    from postroad.simulation.events import Timeline

__all__ = ["Direction"]


class Direction:
    """One direction of a link.

    Attributes:
        messages: rows carried so far.
        bytes: bytes carried so far, control frames included.
        control_bytes: those of control frames.
        unconfirmed: what was sent and is not confirmed yet, oldest first.
    """

    def __init__(self, timeline: Timeline, delay: int, bytes_per_ms: int = 0) -> None:
        self._timeline = timeline
        self._delay = delay
        self._bytes_per_ms = bytes_per_ms
        self._free_at = 0
        self._generation = 0
        self.up = False
        self.messages = 0
        self.bytes = 0
        self.control_bytes = 0
        self.unconfirmed: deque[Sending] = deque()

    def raise_(self) -> None:
        """The link works from now on."""
        self.up = True
        self._free_at = self._timeline.now

    def cut(self) -> list[Sending]:
        """The link is gone, with all that is under way; answers what is not confirmed."""
        self.up = False
        self._generation += 1
        lost = list(self.unconfirmed)
        self.unconfirmed.clear()
        return lost

    def carry(self, size: int, arrive: Callable[[], None]) -> None:
        """Carry so many bytes, behind those before them."""
        self.bytes += size
        start = max(self._timeline.now, self._free_at)
        self._free_at = start + (size // self._bytes_per_ms if self._bytes_per_ms else 0)
        generation = self._generation

        def unless_cut() -> None:
            if self._generation == generation:
                arrive()

        self._timeline.at(self._free_at + self._delay, unless_cut)

    def confirm(self) -> None:
        """The other end has confirmed the oldest parcel; the word takes its time on the way back."""
        generation = self._generation

        def drop() -> None:
            if self._generation == generation:
                self.unconfirmed.popleft()

        self._timeline.at(self._timeline.now + self._delay, drop)
