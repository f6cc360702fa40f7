"""What a session waits for at other brokers before it gets a receipt."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CONFIRM_MS", "Confirmations"]

# How long a receipt waits for another broker; then the client is told. As long as it waits for a disk that fails.
CONFIRM_MS = 10_000


class Confirmations:
    """What one session has asked of other brokers, and who waits until all that was asked so far is done."""

    __slots__ = ("_next", "_open", "_waiting")

    def __init__(self) -> None:
        self._next = 1
        # Until when each may take, in the order in which they were asked for.
        self._open: dict[int, int] = {}
        self._waiting: deque[tuple[int, Callable[[str], None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._open)

    def ask(self, now: int) -> int:
        """One thing more; returns its number."""
        number, self._next = self._next, self._next + 1
        self._open[number] = now + CONFIRM_MS
        return number

    def expects(self, number: int) -> bool:
        """Whether something that was asked for is neither done nor given up."""
        return number in self._open

    def done(self, number: int) -> None:
        """One is done; whoever waited for it, and for all before it, is told."""
        self._open.pop(number, None)
        first = next(iter(self._open), self._next)
        while self._waiting and self._waiting[0][0] < first:
            self._waiting.popleft()[1]("")

    def fail(self, reason: str) -> None:
        """Nothing that was asked for will be done for sure: all who wait are told why."""
        self._open.clear()
        waiting, self._waiting = self._waiting, deque()
        for _, action in waiting:
            action(reason)

    def overdue(self, now: int) -> bool:
        """Whether the first of them has waited too long."""
        return bool(self._open) and next(iter(self._open.values())) <= now

    def when_done(self, action: Callable[[str], None]) -> None:
        """Call this with an empty text once all that was asked so far is done, or with the reason why it is not."""
        if self._open:
            self._waiting.append((self._next - 1, action))
        else:
            action("")
