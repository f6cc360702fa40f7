"""The clock by which a broker deletes what is too old: it does not follow a clock that is set forward by mistake.

If a clock jumped a month ahead, everything with an age would be a month older, and a trail of thirty days would be gone
within the minute. So the age clock follows the machine's monotonic clock, and accepts a jump only later:

Rule 1: a jump of the clock while the broker runs does not count at first. A clock that is set back again takes back
        what it had jumped.
Rule 2: of the time between two processes of a broker, when nobody counted, a day counts at once (`MOST_AWAY_MS`).
Rule 3: what does not count yet counts when the clock has gone on without a jump for a day (`SETTLED_MS`).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from postroad.trail import TrailWriteError, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["AgeClock", "elapsed_clock"]

log = logging.getLogger("postroad.server")

# What a daemon that keeps the time may step by, and what a busy machine may take between two looks at two clocks.
JUMP_MS = 5_000
# Long enough for somebody to see that the clock is wrong, and no more than a day of deletions too few.
SETTLED_MS = 24 * 3_600_000
# A broker that was away for the night continues as if it had been there.
MOST_AWAY_MS = 24 * 3_600_000
# How often the file is written. After a crash the broker was away for as much longer.
KEEP_MS = 60_000
ADVICE = "what has an age is deleted without this time for a day; set the clock if it is wrong"


class _Kept(msgspec.Struct, frozen=True):
    """The file: what the age clock said last, in ms since 1970."""

    time: int


def elapsed_clock() -> int:
    """Milliseconds that only go forward, where the system can tell also while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    return time.monotonic_ns() // 1_000_000


class AgeClock:
    """Tells the time for ages. Several threads may ask.

    Args:
        wall: ms since 1970, which may jump.
        elapsed: ms that only go forward.
        file: where its time survives a restart; None for nowhere.
    """

    def __init__(
        self, wall: Callable[[], int], elapsed: Callable[[], int] = elapsed_clock, file: Path | None = None
    ) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._file = file
        self._lock = threading.Lock()
        self._last = wall(), elapsed()
        # How far the age clock is late, and since when it was not set.
        self._behind = 0
        self._since = self._last[1]
        self._kept_at: int | None = None

    def begin(self) -> None:
        """Continue from the time of an earlier process; reads a file."""
        earlier = self._read()
        if earlier is None:
            return
        with self._lock:
            now = self._wall()
            self._behind = max(0, now - earlier - MOST_AWAY_MS)
            if self._behind:
                fields: dict[str, object] = {
                    "days_away": _days(now - earlier),
                    "days_left_out": _days(self._behind),
                    "advice": ADVICE,
                }
                log.warning("broker was away for long, or the clock is wrong", extra=fields)

    def __call__(self) -> int:
        """The time by which ages are counted, in ms since 1970."""
        with self._lock:
            wall, elapsed = self._wall(), self._elapsed()
            jump = (wall - self._last[0]) - (elapsed - self._last[1])
            self._last = wall, elapsed
            if abs(jump) > JUMP_MS:
                self._behind = max(0, self._behind + jump)
                self._since = elapsed
                event = "clock went forward" if jump > 0 else "clock went back"
                log.error(
                    event, extra={"seconds": jump // 1_000, "days_left_out": _days(self._behind), "advice": ADVICE}
                )
            elif self._behind and elapsed - self._since >= SETTLED_MS:
                log.warning("clock is believed again", extra={"days": _days(self._behind)})
                self._behind = 0
            return wall - self._behind

    def keep(self) -> None:
        """Write the file, if that was not done recently; not on a loop."""
        if self._file is None or (self._kept_at is not None and self._elapsed() - self._kept_at < KEEP_MS):
            return
        self._kept_at = self._elapsed()
        try:
            replace_file(self._file, msgspec.json.encode(_Kept(self())) + b"\n")
        except TrailWriteError as error:
            # As if this process had not been there: less is deleted after the next start.
            log.warning("time not kept", extra={"reason": str(error)})

    def _read(self) -> int | None:
        if self._file is None:
            return None
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Kept).time
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("time of the last process not known", extra={"reason": f"{self._file}: {error}"})
            return None


def _days(ms: int) -> float:
    return round(ms / 86_400_000, 2)
