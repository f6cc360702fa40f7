"""Numbers of publishers and of subscriptions: each is used once, even across restarts.

The core takes them from a block that the driver has reserved on disk. When the block is used up, it asks for the next
one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "BLOCK",
    "SUBSCRIPTION_BLOCK",
    "NumbersError",
    "NumbersExhaustedError",
    "PublisherNumbers",
    "SubscriptionNumbers",
]

# One write to disk for this many new publishers; a crash skips at most this many of four billion numbers.
BLOCK = 1_000
# Programs that subscribe for each request take numbers a hundred times as fast as new connections. With this block, ten
# thousand new subscriptions a second cost one write, and there are numbers for four hundred thousand restarts.
SUBSCRIPTION_BLOCK = 10_000
# Message ids hold 32 bits for a publisher, and `ack` headers 32 bits for a subscription.
_LAST = 2**32 - 1


class NumbersError(PostroadError):
    """No number is available."""


class NumbersExhaustedError(NumbersError):
    """All four billion numbers of a kind are used at this broker."""


class _Numbers:
    """Gives numbers from reserved blocks."""

    def __init__(self, reserve: Callable[[], int], block: int, kind: str) -> None:
        self._reserve = reserve
        self._block = block
        self._kind = kind
        self._next = 0
        self._end = 0

    def take(self) -> int:
        """Return a number that was never used before.

        Raises:
            NumbersExhaustedError: there is none left.
        """
        if self._next == self._end:
            self._next = self._reserve()
            self._end = self._next + self._block
        if self._next > _LAST:
            raise NumbersExhaustedError(
                f"this broker has no {self._kind} numbers left; give it a new broker number in the plan"
            )
        self._next += 1
        return self._next - 1


class PublisherNumbers(_Numbers):
    """Gives publisher numbers.

    Args:
        reserve: makes sure that no other run of this broker ever uses the next BLOCK numbers, and returns the first of
            them.
    """

    def __init__(self, reserve: Callable[[], int]) -> None:
        super().__init__(reserve, BLOCK, "publisher")


class SubscriptionNumbers(_Numbers):
    """Gives subscription numbers.

    Args:
        reserve: the same for the next SUBSCRIPTION_BLOCK numbers; counts from 1 if a broker lives only once.
    """

    def __init__(self, reserve: Callable[[], int] | None = None) -> None:
        super().__init__(reserve or itertools.count(1, SUBSCRIPTION_BLOCK).__next__, SUBSCRIPTION_BLOCK, "subscription")
