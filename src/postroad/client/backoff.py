"""When to try again after a connection is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroad.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

__all__ = ["Reconnect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnect:
    """A back-off that doubles, with jitter, so that the clients of a broker that died do not all return at once.

    Attributes:
        first: seconds before the first attempt, at most.
        longest: seconds between two attempts, at most.
        attempts: how often to try in a row before giving up; None to continue for ever.
    """

    first: float = 0.1
    longest: float = 30.0
    attempts: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.longest:
            raise ClientError(f"reconnect: first is above 0 and at most longest, not {self.first} and {self.longest}")
        if self.attempts is not None and self.attempts < 1:
            raise ClientError(f"reconnect: attempts is 1 or more, or None for no end, not {self.attempts}")

    def delays(self, random: Random) -> Iterator[float]:
        """The seconds to wait before each attempt: between half of the step and the whole of it."""
        step, made = self.first, 0
        while self.attempts is None or made < self.attempts:
            yield step * (0.5 + random.random() / 2)
            step = min(2 * step, self.longest)
            made += 1
