"""What a session waits for at other brokers before it gets a receipt."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CONFIRM_MS", "Confirmations"]

# How long a receipt waits for another broker before the client gets an error; the same as for a failing disk.
CONFIRM_MS = 10_000


class Confirmations:
    """What one session has asked of other brokers, and whom to call when all of it is done."""

    __slots__ = ("_next", "_open", "_waiting")

    def __init__(self) -> None:
        self._next = 1
        # The deadline of each, in the order in which they were asked for.
        self._open: dict[int, int] = {}
        self._waiting: deque[tuple[int, Callable[[str], None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._open)

    def ask(self, now: int) -> int:
        """Add one request; return its number."""
        number, self._next = self._next, self._next + 1
        self._open[number] = now + CONFIRM_MS
        return number

    def expects(self, number: int) -> bool:
        """Whether something that was asked for is neither done nor given up."""
        return number in self._open

    def done(self, number: int) -> None:
        """Mark a request as done; tell those who waited for it and for all before it."""
        self._open.pop(number, None)
        first = next(iter(self._open), self._next)
        while self._waiting and self._waiting[0][0] < first:
            self._waiting.popleft()[1]("")

    def fail(self, reason: str) -> None:
        """Give up all requests, and tell all who wait why."""
        self._open.clear()
        waiting, self._waiting = self._waiting, deque()
        for _, action in waiting:
            action(reason)

    def overdue(self, now: int) -> bool:
        """Return whether the first request has waited too long."""
        return bool(self._open) and next(iter(self._open.values())) <= now

    def when_done(self, action: Callable[[str], None]) -> None:
        """Call this with an empty text once all requests so far are done, or with the reason why they are not."""
        if self._open:
            self._waiting.append((self._next - 1, action))
        else:
            action("")
