"""How much memory clients make the broker use, and which connections to close when it is too much. No sockets here.

What counts: unfinished frames, open transactions, messages that wait for subscribers, and bytes that sockets have not
taken. Reads and writes update the sum, without looking at sockets that drain in between. So it may be too high, but is
never too low by more than one turn of the loop brings. When it exceeds the budget, everything is counted again; only if
the new sum also exceeds the budget, a connection has to go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.broker.queues import Load

__all__ = ["Holding", "Holdings", "who_goes"]

Key = TypeVar("Key")

# Relief continues until this share of the budget is free: with less, the next message would need it again.
FREED_PART = 8
# After a count within the budget, the sum may grow by this share until the next count: each count looks at every
# connection, and the budget is exceeded by no more than that.
RECOUNT_PART = 64


class Holding(NamedTuple, Generic[Key]):
    """What is held for one connection."""

    key: Key
    bytes: int
    is_stranger: bool = False


def who_goes(holdings: Iterable[Holding[Key]], budget: int) -> list[Holding[Key]]:
    """Return which connections to close so that the rest stays within the budget, with some room; none while it does.

    Strangers go first, in the given order, oldest first; then those with the most memory.
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
        budget: the most that may be held (`limits.memory_bytes`).
        queued: returns what waits for subscribers, as the broker counts it.
    """

    def __init__(self, budget: int, queued: Load) -> None:
        self._budget = budget
        self._queued = queued
        self._others = 0
        self._recount_at = budget

    @property
    def budget(self) -> int:
        """Return the most that may be held."""
        return self._budget

    def take_budget(self, budget: int) -> None:
        """Use another budget from now on."""
        self._budget = self._recount_at = budget

    @property
    def total(self) -> int:
        """Return an upper bound of what is held."""
        return self._others + self._queued.bytes

    @property
    def is_too_much(self) -> bool:
        """Return whether it is time to count."""
        return self._others + self._queued.bytes > self._recount_at

    def add(self, change: int) -> None:
        """Note that what is held besides queues has grown or shrunk."""
        self._others += change

    def counted(self) -> None:
        """Note that everything was counted with `add`, and that connections were closed as needed."""
        self._recount_at = max(self._budget, self.total + self._budget // RECOUNT_PART)
