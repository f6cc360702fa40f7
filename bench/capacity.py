"""The capacity model against real brokers: throughput of loads it was not fitted to, and waits under open-loop load.

Throughput: half of a grid of subscriptions, copies and sizes (the white fields of a chessboard) is fitted, below
saturation and in it; the model then predicts what saturated brokers carry on the black fields. The loop of a broker is
what limits it, so both sides count by its processor time: what other programs or the thread that writes the record take
of a processor that they share is in neither.

Waits: see `bench/capacity_waits.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.capacity_waits import KINDS, predicted_loads, rounds_of
from bench.kept_rounds import keep_rounds, kept_rounds
from bench.wait_table import wait_errors
from postroad.broker import Broker, Limits, Outbox, PublisherNumbers
from postroad.capacity import (
    BATCHED,
    FORMS,
    LINEAR,
    fit_every_form,
)
from postroad.lab.calibration import MeasuredCell, Programme, cell_samples, measure, saturated_rate
from postroad.messages import Batch
from postroad.recording import Sampler
from postroad.server.capacity_watch import PROBES_PER_SECOND
from postroad.tracking import ExactRecorder

if TYPE_CHECKING:
    from collections.abc import Sequence

# Calls of the sampler that are timed at once, and how often; the best counts.
_CALLS = 20_000
_ROUNDS = 5


class Settings(NamedTuple):
    """How long things take.

    Attributes:
        programme: of the grid.
        wait_seconds: for each load.
    """

    programme: Programme
    wait_seconds: float


FULL = Settings(Programme((0, 100, 1_000, 10_000), (0, 1, 4, 16), (100, 1_000), (1, 16, 256), 1.0), 7.5)
SMOKE = Settings(Programme((0, 50), (0, 1, 2), (100, 500), (1, 16), 0.05), 0.1)


# --- throughput ------------------------------------------------------------------------------------------------------


def is_white(one: MeasuredCell, programme: Programme) -> bool:
    """The half of the grid that is fitted."""
    places = (
        programme.subscriptions.index(one.cell.subscriptions),
        programme.copies.index(one.cell.copies),
        programme.sizes.index(one.cell.size),
    )
    return sum(places) % 2 == 0


def throughput_errors(measured: Sequence[MeasuredCell], programme: Programme) -> dict[str, Any]:
    """Fit the white half, predict the black one."""
    fitted = cell_samples([one for one in measured if is_white(one, programme)])
    groups = np.arange(len(fitted.seconds))
    costs = {fit.form.name: fit.costs() for fit in fit_every_form(fitted, groups)}
    black = [one for one in measured if one.cell.saturated and one.bursts and not is_white(one, programme)]
    conclusive = [one for one in black if one.conclusive]
    errors: dict[str, list[float]] = {form.name: [] for form in FORMS}
    heads = ("subscriptions", "copies", "bytes", "measured/s", "ours/s", "linear/s", "ours", "linear", "loop", "all")
    print("saturated brokers: messages per second of the loop's processor time; processors that loop and process used")
    print(" ".join(f"{head:>13}" if place < 6 else f"{head:>7}" for place, head in enumerate(heads)))
    for one in conclusive or black:
        told = {name: saturated_rate(found, one.cell) for name, found in costs.items()}
        off = {name: rate / one.carried - 1 for name, rate in told.items()}
        for name, error in off.items():
            errors[name].append(abs(error))
        rates = (one.carried, told[BATCHED.name], told[LINEAR.name])
        print(
            f"{one.cell.subscriptions:13,} {one.cell.copies:13} {one.cell.size:13,} "
            + " ".join(f"{rate:13,.0f}" for rate in rates)
            + f" {100 * off[BATCHED.name]:+6.0f}% {100 * off[LINEAR.name]:+6.0f}%"
            f" {one.processor_seconds / one.seconds:7.2f} {one.busy:7.2f}"
        )
    return {
        "throughput_error": median(errors[BATCHED.name]),
        "throughput_error_max": max(errors[BATCHED.name]),
        "linear_throughput_error": median(errors[LINEAR.name]),
        "saturated_loads": len(conclusive),
        "loads_without_saturation": len(black) - len(conclusive),
        "smallest_batch_seconds": float(min(fitted.seconds)),
    }


# --- what measuring costs --------------------------------------------------------------------------------------------


def recording_overhead(smallest_batch: float) -> float:
    """The share of a broker's time that timing and probing take, at worst: reads of one message, without copies."""
    core = Broker(1, PublisherNumbers(lambda: 1), Limits())
    sampler = Sampler(core, lambda: 0, ExactRecorder(1, 0), lambda *seen: None)
    batch, outbox = Batch.build([("t",)]), Outbox()

    def calls() -> None:
        for _ in range(_CALLS):
            sampler.begin()
            sampler.count(batch, outbox)
            sampler.end(7)

    best = math.inf
    for _ in range(_ROUNDS):
        began = time.thread_time()
        calls()
        best = min(best, (time.thread_time() - began) / _CALLS)
    return best / smallest_batch + PROBES_PER_SECOND * asyncio.run(_probe_seconds())


async def _probe_seconds() -> float:
    """What planning and running a probe costs, with the wake-up of the loop: by processor time."""
    from postroad.server.capacity_watch import CapacityWatch

    watch = CapacityWatch(lambda: 0, lambda: 0)
    loop = asyncio.get_running_loop()
    began, count = time.thread_time(), 200
    for _ in range(count):
        watch.monitor.probed(0.001, loop.time())
        done = loop.create_future()
        loop.call_at(loop.time() + 0.001, done.set_result, None)
        await done
    return (time.thread_time() - began) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wait-seconds", type=float, help="for each open-loop load; 7.5 by default")
    parser.add_argument("--smoke", action="store_true", help="everything once, too short to mean anything")
    parser.add_argument("--only", choices=("throughput", "waits"), help="leave out the other part")
    parser.add_argument("--kinds", nargs="+", choices=[kind.name for kind in KINDS], help="of open-loop loads; all")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write what was measured of open-loop loads there")
    parser.add_argument("--kept", type=Path, metavar="DIR", help="predict what an earlier run wrote there; no brokers")
    given = parser.parse_args()
    settings = SMOKE if given.smoke else FULL
    if given.wait_seconds is not None:
        settings = settings._replace(wait_seconds=given.wait_seconds)
    print(
        f"Python {platform.python_version()}, numpy {np.__version__}, {os.cpu_count()} processors, {platform.machine()}"
    )
    result: dict[str, Any] = {"benchmark": "capacity"}
    if given.only != "waits" and given.kept is None:
        with tempfile.TemporaryDirectory(prefix="postroad-bench-") as folder:
            measured = asyncio.run(measure(settings.programme, Path(folder), lambda text: print(text, file=sys.stderr)))
        result |= throughput_errors(measured, settings.programme)
        result["recording_overhead"] = recording_overhead(result.pop("smallest_batch_seconds"))
    if given.only != "throughput":
        kinds = [kind for kind in KINDS if kind.name in (given.kinds or [kind.name])]
        if given.kept is None:
            rounds = rounds_of(settings.wait_seconds, kinds)
        else:
            rounds = kept_rounds(given.kept, [kind.name for kind in kinds])
        if given.keep is not None:
            keep_rounds(given.keep, rounds)
        chosen = [kind for kind in kinds if kind.name in rounds]
        result |= wait_errors([load for kind in chosen for load in predicted_loads(kind, rounds[kind.name])])
    print(json.dumps({name: round(value, 5) if isinstance(value, float) else value for name, value in result.items()}))


if __name__ == "__main__":
    main()
