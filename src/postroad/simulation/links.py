"""A simulated link: both directions in order, with delay, bandwidth, loss, a bounded buffer, and cuts.

A sender keeps what it sent until the other end has confirmed it: on arrival, or under custody when it is settled. A cut
loses what is under way in both directions, including confirmations; the sender then gets back everything unconfirmed,
some of which may have arrived. The transport below sends a lost frame again, so a loss only costs time and bytes; later
frames wait.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from postroad.simulation.events import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from postroad.broker import Sending
    from postroad.simulation.events import Timeline

__all__ = ["Direction", "LinkQuality"]

# When the transport sends a lost frame again, in round trips: about when TCP does.
_RESEND_ROUND_TRIPS = 2
# As on live links: publishers are paused when a buffer is fuller than the first, and resume when it is emptier than the
# second. What another link gave back may use the buffer twice over.
_CROWDED, _RELAXED = 0.75, 0.5
_OVERDRAFT = 2


class LinkQuality(NamedTuple):
    """How good links are.

    Attributes:
        delay_ms: the least and most delay; each link draws its own.
        bytes_per_ms: bandwidth; 0 is unlimited.
        loss: the share of frames that are lost at first.
        buffer_bytes: what a sender keeps for one link; 0 is unlimited.
    """

    delay_ms: tuple[int, int] = (1, 20)
    bytes_per_ms: int = 0
    loss: float = 0.0
    buffer_bytes: int = 0


class Direction:
    """One direction of a link.

    Attributes:
        up: whether the link works.
        life: counts how often the link was cut.
        pauses: local publishers wait for room.
        messages: rows carried so far.
        bytes: bytes carried so far, control frames included, lost ones too.
        control_bytes: those of control frames.
        control_frames: how many those were.
        lost: frames that were lost and sent again.
        busy: microseconds for which the link was sending, so far; 0 if bandwidth is unlimited.
    """

    def __init__(self, timeline: Timeline, delay_ms: int, quality: LinkQuality, random: Random) -> None:
        self._timeline = timeline
        self._delay = delay_ms * MICROSECONDS
        self._quality = quality
        self._random = random
        self._free_at = 0
        self._held: dict[int, tuple[Sending, int]] = {}
        self._held_bytes = 0
        self._next = 1
        # Confirmations on their way back: when they are there, and the numbers that they are of; in order of time.
        self._confirmed: deque[tuple[int, Sequence[int]]] = deque()
        self.up = False
        self.life = 0
        self.pauses = False
        self.messages = 0
        self.bytes = 0
        self.control_bytes = 0
        self.control_frames = 0
        self.lost = 0
        self.busy = 0

    @property
    def held_bytes(self) -> int:
        """Return the bytes that were sent and are not confirmed yet."""
        self._let_go()
        return self._held_bytes

    @property
    def unconfirmed(self) -> list[Sending]:
        """Return what was sent and is not confirmed yet, oldest first."""
        self._let_go()
        return [sending for sending, _ in self._held.values()]

    @property
    def crowded(self) -> bool:
        """Return whether publishers should wait."""
        limit = self._quality.buffer_bytes
        return bool(limit) and self.held_bytes > _CROWDED * limit

    @property
    def relaxed(self) -> bool:
        """Return whether they may resume."""
        return self.held_bytes <= _RELAXED * self._quality.buffer_bytes

    def raise_(self) -> None:
        """Bring the link up."""
        self.up = True
        self._free_at = self._timeline.now

    def cut(self) -> list[Sending]:
        """Cut the link, with all that is under way; return what is not confirmed."""
        self.up = False
        self.life += 1
        lost = self.unconfirmed
        self._held.clear()
        self._confirmed.clear()
        self._held_bytes = 0
        return lost

    def pause(self, look: Callable[[], None]) -> None:
        """Local publishers wait for room; `look` is called whenever there may be some."""
        if not self.pauses:
            self.pauses = True
            for due, _ in self._confirmed:
                self._timeline.at(due, look)

    def hold(self, sending: Sending, size: int) -> int | None:
        """Keep what is about to be carried, under a number; None if there is no room."""
        limit = self._quality.buffer_bytes * (_OVERDRAFT if sending.returned else 1)
        if self._confirmed:
            self._let_go()
        if limit and self._held_bytes + size > limit:
            return None
        number, self._next = self._next, self._next + 1
        self._held[number] = (sending, size)
        self._held_bytes += size
        return number

    def carry(self, size: int, arrive: Callable[[], None]) -> None:
        """Carry some bytes, after those before them.

        Args:
            size: the bytes.
            arrive: called when they would arrive. If the link has another life by then, they are lost.
        """
        rate, loss = self._quality.bytes_per_ms, self._quality.loss
        self._free_at = max(self._timeline.now, self._free_at)
        while loss and self._random.random() < loss:
            self.lost += 1
            self.bytes += size
            self._free_at += 2 * _RESEND_ROUND_TRIPS * self._delay
        self.bytes += size
        if rate:
            sending = size * MICROSECONDS // rate
            self.busy += sending
            self._free_at += sending
        self._timeline.at(self._free_at + self._delay, arrive)

    def confirm_arrival(self, numbers: Sequence[int]) -> int:
        """Confirm that frames arrived; return when the confirmation will be back.

        Only publishers that wait for room have to be told. So it is not a separate event, and what was confirmed is
        let go when `held_bytes` or the like is next asked for.
        """
        due = self._timeline.now + self._delay
        self._confirmed.append((due, numbers))
        return due

    def _let_go(self) -> None:
        """Let go of what was confirmed by now."""
        now, confirmed, held = self._timeline.now, self._confirmed, self._held
        while confirmed and confirmed[0][0] <= now:
            for number in confirmed.popleft()[1]:
                self._held_bytes -= held.pop(number)[1]

    def confirm(self, numbers: Sequence[int], let_go: Callable[[Sending], None]) -> None:
        """Confirm what is settled, under custody; the sender knows when the confirmation is back."""
        life = self.life

        def drop() -> None:
            if self.life != life:
                return
            dropped = [self._held.pop(number) for number in numbers]
            for sending, size in dropped:
                self._held_bytes -= size
                let_go(sending)

        self._timeline.at(self._timeline.now + self._delay, drop)
