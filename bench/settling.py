"""Waits until brokers that had their turn are done with it: what they still seal would be paid by the next one."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["processor_seconds", "settle"]

# A broker at rest looks after its timers: five of them use 2 % of a processor together.
BUSY_SHARE = 0.1
LOOK_SECONDS = 0.1
# A broker that is still busy then is not going to rest, and the run says so.
MOST_SECONDS = 30.0


def processor_seconds(pids: Iterable[int]) -> float:
    """Processor time of processes so far."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return float(sum(each.user + each.system for each in times))


def settle(pids: Iterable[int], quiet: float, spent: Callable[[list[int]], float] = processor_seconds) -> float:
    """Wait until the processes together have hardly worked for so many seconds; returns how long that took.

    Args:
        pids: the processes.
        quiet: seconds; longer than the pause after which they may go on by themselves.
        spent: their processor time so far.

    Raises:
        RuntimeError: they go on and on.
    """
    known, begun = list(pids), time.monotonic()
    looks = deque([(begun, spent(known))])
    while (now := time.monotonic()) < begun + MOST_SECONDS:
        while len(looks) > 1 and looks[1][0] <= now - quiet:
            looks.popleft()
        since, before = looks[0]
        looks.append((now, spent(known)))
        if now - since >= quiet and looks[-1][1] - before <= BUSY_SHARE * quiet:
            return now - begun
        time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"the brokers are still at work {MOST_SECONDS:.0f} s after their last message")
