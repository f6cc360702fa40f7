"""Heart-beats: whether a connection is alive; and when to dial again if it is not."""

from __future__ import annotations

from postroad.protocols.link.limits import LONGEST_REDIAL_MS, MAX_MISSED_BEATS, SHORTEST_REDIAL_MS

__all__ = ["Pulse", "redial_delay"]


class Pulse:
    """The heart-beats of one connection, both ways.

    Args:
        ours: this end sends something at least at this interval, in ms.
        theirs: the same for the peer, in ms.
        now: ms.
        missed: the peer is dead after so many of its intervals without a byte.
    """

    def __init__(self, ours: int, theirs: int, now: int, missed: int = MAX_MISSED_BEATS) -> None:
        self._most = missed
        self._ours = ours
        self._theirs = theirs
        self._sent = now
        self._heard = now
        self._missed = 0

    @property
    def dead(self) -> bool:
        """Whether the peer has missed too many beats."""
        return self._missed >= self._most

    @property
    def due(self) -> int:
        """The latest time of the next `tick` (ms)."""
        return min(self._sent + self._ours, self._heard + self._theirs * (self._missed + 1))

    def sent(self, now: int) -> None:
        """Take note that something was written."""
        self._sent = now

    def heard(self, now: int) -> None:
        """Take note that something was read."""
        self._heard = now
        self._missed = 0

    def tick(self, now: int) -> bool:
        """Whether to send a heart-beat now; it then counts as sent.

        A tick counts at most one missed beat: if this process was suspended, the peer still gets time to send.
        """
        if now >= self._heard + self._theirs * (self._missed + 1):
            self._missed += 1
            # The next beat is missed an interval from now, however late this tick is.
            self._heard = now - self._theirs * self._missed
        if now < self._sent + self._ours:
            return False
        self._sent = now
        return True


def redial_delay(attempt: int, random: float) -> int:
    """How many ms to wait before dialling again.

    Doubles with each attempt, from 0.1 to 30 seconds, minus a random part of up to a half, so that brokers which
    lost the same neighbour do not all dial at once.

    Args:
        attempt: failures in a row, from 0.
        random: in [0, 1).
    """
    # 2 ** 16 is far beyond the longest delay; the limit keeps the number small.
    longest = min(LONGEST_REDIAL_MS, SHORTEST_REDIAL_MS << min(max(attempt, 0), 16))
    return round(longest * (1 - random / 2))
