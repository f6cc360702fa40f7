"""Publisher numbers: handed out once, never again, also across restarts.

The core takes them from a block that the driver has reserved on disk before; when the block is used up it asks for the
next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BLOCK", "NumbersExhaustedError", "PublisherNumbers"]

# One write to disk for so many new publishers; a crash skips at most this many numbers of four billion.
BLOCK = 1_000
_LAST = 2**32 - 1


class NumbersExhaustedError(PostroadError):
    """All four billion publisher numbers of this broker are used."""


class PublisherNumbers:
    """Hands out numbers from reserved blocks.

    Args:
        reserve: makes sure that no other run of this broker ever hands out the next BLOCK numbers, and answers the
            first of them.
    """

    def __init__(self, reserve: Callable[[], int]) -> None:
        self._reserve = reserve
        self._next = 0
        self._end = 0

    def take(self) -> int:
        """A number that was never handed out before."""
        if self._next == self._end:
            self._next = self._reserve()
            self._end = self._next + BLOCK
        if self._next > _LAST:
            raise NumbersExhaustedError(
                "this broker has no publisher numbers left; give it a new broker number in the plan"
            )
        self._next += 1
        return self._next - 1
