"""What clients make the broker hold in memory, and who goes when it is too much. No sockets here.

What counts: frames that are not finished, open transactions, messages that wait for subscribers, and bytes that sockets
have not taken. The sum is kept as reads and writes happen, without looking at sockets that drain in between, so it may
be too high, never too low by more than what one turn of the loop brings. When it passes the budget everything is
counted anew; only if the new sum is above the budget too, a connection has to go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.broker.queues import Load

__all__ = ["Holding", "Holdings", "who_goes"]

Key = TypeVar("Key")

# Relief goes on until this part of the budget is free: with less, the next message would call for it again.
FREED_PART = 8
# After a count that found the budget kept, the sum may grow by this part of it until the next: each looks at every
# connection, and the budget is exceeded by no more than that.
RECOUNT_PART = 64


class Holding(NamedTuple, Generic[Key]):
    """What is held for one connection."""

    key: Key
    bytes: int
    is_stranger: bool = False


def who_goes(holdings: Iterable[Holding[Key]], budget: int) -> list[Holding[Key]]:
    """Which connections to cut off so that the rest keeps the budget with some room; none while it is kept.

    Strangers go first, the oldest of them first, which is the order they come in; then those for whom most is held.
    """
    listed = list(holdings)
    total = sum(holding.bytes for holding in listed)
    if total <= budget:
        return []
    strangers = [holding for holding in listed if holding.is_stranger]
    others = sorted((each for each in listed if not each.is_stranger), key=lambda each: each.bytes, reverse=True)
    gone: list[Holding[Key]] = []
    for holding in (*strangers, *others):
        if total <= budget - budget // FREED_PART:
            break
        gone.append(holding)
        total -= holding.bytes
    return gone


class Holdings:
    """The running sum.

    Args:
        budget: the most that is to be held (`limits.memory_bytes`).
        queued: what waits for subscribers, as the broker counts it.
    """

    def __init__(self, budget: int, queued: Load) -> None:
        self._budget = budget
        self._queued = queued
        self._others = 0
        self._recount_at = budget

    @property
    def budget(self) -> int:
        """The most that is to be held."""
        return self._budget

    def take_budget(self, budget: int) -> None:
        """Hold at most this from now on."""
        self._budget = self._recount_at = budget

    @property
    def total(self) -> int:
        """What is held, or more."""
        return self._others + self._queued.bytes

    @property
    def is_too_much(self) -> bool:
        """Whether it is time to count."""
        return self._others + self._queued.bytes > self._recount_at

    def add(self, change: int) -> None:
        """What is held besides queues has grown, or shrunk."""
        self._others += change

    def counted(self) -> None:
        """Everything was counted, told with `add`, and whoever had to go is gone."""
        self._recount_at = max(self._budget, self.total + self._budget // RECOUNT_PART)
