"""The live side of the capacity model: probes of the event loop, a look every minute, and a warning in time."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from typing import TYPE_CHECKING

import msgspec

from postroad.capacity import (
    PROBE_RESOLUTION_SECONDS,
    CapacityMonitor,
    LoadHistory,
    assess,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.capacity import Assessment, Forecast

__all__ = ["CapacityStatus", "CapacityWatch"]

log = logging.getLogger("postroad.server")

# Probes of the loop a second, at random times: 3,000 to 6,000 are counted at a time, of which 30 to 60 are later than
# the 99 % quantile. Each costs some 10 microseconds.
PROBES_PER_SECOND = 20.0
LOOK_SECONDS = 60.0
WARNING_MS = 24 * 3_600_000
DAY_SECONDS = 86_400


class CapacityStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How much of its capacity a broker uses, and when that will be too much. None: not known yet.

    Attributes:
        rate: messages per second in the last minute, from clients and neighbours.
        sources: sockets that they come from, as if all had the same part.
        read_seconds: what a read costs, however few messages it has.
        message_seconds: what each message adds.
        utilisation: the share used of what batches of any size could carry.
        load: the rate as a share of the highest that the broker should carry: 1 is the limit.
        predicted_p99_wait_seconds: what 99 % of messages wait at most, by the model; None also beyond the capacity.
        measured_p99_wait_seconds: the same, of probes.
        resolution_seconds: shorter waits cannot be measured.
        growth_per_day: of the load, by the day.
        limit_seconds: until the limit is reached at this growth; None if it is not in sight.
        warning: a sentence about that; empty if the limit is more than 30 days away, or growth is not certain.
    """

    rate: float | None = None
    sources: float | None = None
    read_seconds: float | None = None
    message_seconds: float | None = None
    utilisation: float | None = None
    load: float | None = None
    predicted_p99_wait_seconds: float | None = None
    measured_p99_wait_seconds: float | None = None
    resolution_seconds: float = PROBE_RESOLUTION_SECONDS
    growth_per_day: float | None = None
    limit_seconds: float | None = None
    warning: str = ""


class CapacityWatch:
    """Watches one broker from its own event loop.

    Args:
        total: messages that came so far.
        clock: milliseconds since 1970, UTC.
        timer: seconds that only go forward.

    Attributes:
        monitor: takes timed reads.
        history: the load of the last fortnight; it begins again with the process.
        status: what the last look found.
    """

    def __init__(
        self,
        total: Callable[[], int],
        clock: Callable[[], int],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.monitor = CapacityMonitor()
        self.history = LoadHistory()
        self.status = CapacityStatus()
        self._total = total
        self._clock = clock
        self._timer = timer
        self._probe: asyncio.TimerHandle | None = None
        # None of the broker's secrets depend on it.
        self._random = random.Random()
        self._warned_at = -math.inf

    async def run(self) -> None:
        """Probe and look, until cancelled."""
        self._plan_probe()
        try:
            self.monitor.look(self._total(), self._timer())
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                try:
                    await self.look()
                except Exception:
                    log.exception("internal error")
        finally:
            if self._probe is not None:
                self._probe.cancel()

    def _plan_probe(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._random.expovariate(PROBES_PER_SECOND)
        self._probe = loop.call_at(due, self._run_probe, loop, due)

    def _run_probe(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self.monitor.probed(max(0.0, loop.time() - due), self._timer())
        self._plan_probe()

    async def look(self) -> None:
        """Compare what was predicted with what was measured. The solving of the model is done in a thread."""
        seen = self.monitor.look(self._total(), self._timer())
        if seen is None:
            return
        found = await asyncio.to_thread(assess, seen)
        now = self._clock()
        if not math.isnan(found.load):
            self.history.add(now, found.load)
        forecast = self.history.forecast(now)
        warning = "" if forecast is None else forecast.warning(now)
        self.status = _status(found, forecast, warning)
        if warning and now - self._warned_at >= WARNING_MS:
            self._warned_at = now
            log.warning("capacity limit", extra={"reason": warning})


def _status(found: Assessment, forecast: Forecast | None, warning: str) -> CapacityStatus:
    return CapacityStatus(
        rate=found.rate,
        sources=found.sources,
        read_seconds=None if found.costs is None else found.costs.fixed,
        message_seconds=None if found.costs is None else found.costs.marginal,
        utilisation=_known(found.utilisation),
        load=_known(found.load),
        predicted_p99_wait_seconds=_known(found.predicted_p99),
        measured_p99_wait_seconds=_known(found.measured_p99),
        growth_per_day=None if forecast is None else _known(forecast.growth),
        limit_seconds=None if forecast is None else _known(DAY_SECONDS * forecast.days),
        warning=warning,
    )


def _known(number: float) -> float | None:
    return number if math.isfinite(number) else None
