"""`Restarts`: whether and when a broker that died is started again."""

from __future__ import annotations

from collections import defaultdict, deque

__all__ = ["FIRST_SECONDS", "LONGEST_SECONDS", "MOST_RESTARTS", "WITHIN_SECONDS", "Restarts"]

# The first pause is about as long as neighbours take to notice; each one that follows is twice as long, up to a minute.
FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0
# A broker that dies for the sixth time within ten minutes would die again: a person has to read its log.
MOST_RESTARTS = 5
WITHIN_SECONDS = 600.0


class Restarts:
    """Counts the deaths of brokers. It has no clock: `now` is in seconds and only goes forward."""

    def __init__(self) -> None:
        self._deaths: dict[int, deque[float]] = defaultdict(deque)

    def died(self, broker: int, now: float) -> float | None:
        """Note that a broker died. Returns the seconds to wait before it is started again; None if it died too often
        recently."""
        deaths = self._deaths[broker]
        while deaths and now - deaths[0] >= WITHIN_SECONDS:
            deaths.popleft()
        if len(deaths) >= MOST_RESTARTS:
            return None
        deaths.append(now)
        return min(LONGEST_SECONDS, FIRST_SECONDS * float(2 ** (len(deaths) - 1)))
