"""How far the broker's clock is ahead of this machine's."""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["ClientClock", "wall_clock"]

# A Unix time in milliseconds has 13 digits until the year 2286; an id's 48 bits hold 15.
_MOST_DIGITS = 15


def wall_clock() -> int:
    """This machine's time: milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ClientClock:
    """The skew between two clocks, from one exchange.

    Attributes:
        skew_ms: what to add to this machine's time to get the broker's; None when the broker did not say its time.
        error_ms: how far the skew can be off: half of the round trip.
    """

    skew_ms: int | None = None
    error_ms: int = 0

    @classmethod
    def from_exchange(cls, asked: int, answered: int, server_time: str | None) -> ClientClock:
        """The skew, if the answer is taken to have been written halfway between asking and hearing it.

        Args:
            asked: when CONNECT was sent, by this machine's clock in Unix milliseconds.
            answered: when CONNECTED came.
            server_time: the header of CONNECTED, if it had one; what is not a time counts as none.
        """
        if server_time is None or not (server_time.isascii() and server_time.isdigit()):
            return cls()
        if len(server_time) > _MOST_DIGITS:
            return cls()
        round_trip = max(0, answered - asked)
        return cls(int(server_time) - (asked + round_trip // 2), (round_trip + 1) // 2)

    def contradicts(self, skew_ms: int) -> bool:
        """Whether a skew cannot be true, whichever part of the round trip the answer was under way."""
        return self.skew_ms is not None and abs(skew_ms - self.skew_ms) > self.error_ms

    def broker_time(self, now: int) -> int | None:
        """The broker's time when this machine's is `now`; None when it is not known."""
        return None if self.skew_ms is None else now + self.skew_ms
