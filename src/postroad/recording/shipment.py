"""Ships the record of a running broker in the background: a slow, unreachable or refusing store delays nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from postroad.errors import PostroadError
from postroad.recording.disk import DiskThread, is_done

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.trail.shipper import Shipper

__all__ = ["Shipment"]

log = logging.getLogger("postroad.tracking")

# How often it is looked for something to ship: commits come once in some seconds to a minute.
SHIP_SECONDS = 5.0
# After a failure, twice as long each time, up to this.
MOST_SECONDS = 300.0
# A pass that takes longer is reported as trouble: the store is slow, or the bandwidth is too small.
SLOW_SECONDS = 600.0
# What a broker that stops gives the last pass. What is left is shipped after the next start.
STOP_SECONDS = 10.0


class Shipment:
    """Ships what a broker writes, on a thread of its own.

    Args:
        shipper: does it.
        clock: the broker's time in ms.
    """

    def __init__(self, shipper: Shipper, clock: Callable[[], int]) -> None:
        self._shipper = shipper
        self._clock = clock
        self._thread = DiskThread("postroad-ship")
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""
        self._failures = 0
        self._behind = 0

    @property
    def trouble(self) -> str:
        """What keeps the record from being shipped; empty while all is well."""
        return self._trouble

    def statistics(self) -> dict[str, Any]:
        """Counts of the shipping."""
        counts = {f"ship_{name}": count for name, count in self._shipper.statistics()._asdict().items()}
        return counts | {
            "ship_failures": self._failures,
            "ship_behind_now": self._behind,
            "ship_degraded_now": bool(self._trouble),
        }

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._ship_for_ever())

    async def stop(self) -> None:
        """Ship what was written last, as far as that goes in a moment."""
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not self._trouble:
            last = self._thread.do(self._pass)
            if await is_done(last, STOP_SECONDS):
                self._tell(last.result())
        self._thread.end()

    async def _ship_for_ever(self) -> None:
        wait = SHIP_SECONDS
        while True:
            await asyncio.sleep(wait)
            work = self._thread.do(self._pass)
            if not await is_done(work, SLOW_SECONDS):
                self._tell(f"a pass has taken more than {SLOW_SECONDS:g} seconds")
            problem = await work
            self._tell(problem)
            wait = min(2 * wait, MOST_SECONDS) if problem else SHIP_SECONDS

    def _pass(self) -> str:
        """Ship all there is, on the thread; returns what went wrong."""
        problem = ""
        try:
            self._shipper.ship(self._clock())
        except (PostroadError, OSError) as error:
            self._failures += 1
            problem = str(error)
        except Exception:
            # A defect here must not end the shipping.
            log.exception("internal error", extra={"where": "shipping"})
            problem = "internal error"
        try:
            self._behind = self._shipper.behind()
        except (PostroadError, OSError) as error:
            problem = problem or str(error)
        return problem

    def _tell(self, problem: str) -> None:
        if problem and not self._trouble:
            log.error("trail not shipped", extra={"reason": problem})
        elif self._trouble and not problem:
            log.warning("trail shipped again", extra={"failures": self._failures})
        self._trouble = problem
