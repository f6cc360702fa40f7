"""Waits under open-loop load, measured and predicted.

What reads and messages cost is fitted to loads of 0.2, 0.4, 0.6 and 0.8. Then messages leave at random times (Poisson):
from one publisher, one by one and in bursts; from many publishers; through a line of three brokers. For one publisher
0.5, 0.7 and 0.9 are shares of what batches of any size could carry, for many of the loop's time. The wait is what they
take beyond their own service and the time that passes besides (sockets), with the longer service of larger batches; the
model predicts the same. What passes besides is fitted to the same loads as the costs, as one number. Brokers run on one
processor, the generator on another: three brokers that share a processor are modelled as one server with the sum of
their costs.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.measured_brokers import running
from bench.open_loop import FRAME_BYTES, OpenLoop, Passed, arrival_times
from postroad.capacity import (
    BatchServer,
    CapacityError,
    Moments,
    ReadCosts,
    SingleServer,
    WakingServer,
    fit_reads,
    fit_waking,
)
from postroad.server.tcp import READ_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bench.measured_brokers import Server

    Floats = NDArray[np.float64]

UTILISATIONS = (0.5, 0.7, 0.9)
# Where less of a run than this was undisturbed, all of it counts, and the result says so.
LEAST_QUIET = 0.2
# Loads that costs are taken from; none of those that are predicted.
CALIBRATED = (0.2, 0.4, 0.6, 0.8)
# Each load is measured so many times, right after those that costs are taken from.
ROUNDS = 5
# The first look: rates from here on, doubled until the loop is busy for this share of the time.
FIRST_RATE = 500.0
MOST_RATE = 500_000.0
BUSY = 0.6
# Messages that one publisher sends as fast as the broker takes them.
FLOOD = 20_000
# A load of the first look lasts for this part of the others.
FIRST_PART = 12


class Kind(NamedTuple):
    """A kind of load.

    Attributes:
        name: in results.
        brokers: that messages pass.
        publishers: that they come from.
        burst: messages that leave at once.
        copies: of a message: so many that waits are long enough to be measured.
    """

    name: str
    brokers: int
    publishers: int
    burst: int
    copies: int


KINDS = (
    Kind("poisson", 1, 1, 1, 40),
    Kind("bursts", 1, 1, 64, 40),
    Kind("many publishers", 1, 100, 1, 1),
    Kind("three brokers", 3, 1, 1, 40),
)


class Load(NamedTuple):
    """One open-loop load and what was predicted for it, in seconds beyond what a message takes that meets no other.

    Each round is a pair: the loads that costs are taken from, and right after them the load that they predict, because
    the speed of a shared machine changes from one minute to the next. Figures are medians over the rounds.

    Attributes:
        kind: of load.
        utilisation: by our model.
        mean: the measured mean excess.
        p99: the measured 99 % quantile of it.
        ours: predicted mean and quantile.
        linear: the same by the paper's form; infinite where it says that the queue grows without end.
        errors: medians over the rounds of the relative errors of our mean and quantile.
        linear_errors: the same of the paper's form.
        late: the generator's own mean lateness, which is not part of the figures.
        quiet: the share of messages that counts; of the others the machine was kept from doing its work. 0: all were
            disturbed, and count nevertheless.
    """

    kind: str
    utilisation: float
    mean: float
    p99: float
    ours: tuple[float, float]
    linear: tuple[float, float]
    errors: tuple[float, float]
    linear_errors: tuple[float, float]
    late: float
    quiet: float


class Seen(NamedTuple):
    """One run of a load.

    Attributes:
        rate: messages per second that were meant.
        messages: how many there were.
        batches: how many times the broker wrote something.
        seconds: of processor time that the brokers' loops used.
        mean: of the responses.
        p99: of the responses.
        late: the generator's mean lateness.
        quiet: the share of messages that counts.
    """

    rate: float
    messages: int
    batches: int
    seconds: float
    mean: float
    p99: float
    late: float
    quiet: float


class Calibrated(NamedTuple):
    """What the loads between those that are predicted gave.

    Attributes:
        costs: of reads and messages; with many publishers of waking the loop and of messages.
        each: what a message costs by the paper's form.
        besides: seconds that a message takes beyond wait and service.
    """

    costs: ReadCosts
    each: float
    besides: float


INFINITE = (math.inf, math.inf)


def own_service(costs: ReadCosts, kind: Kind) -> float:
    """What a message or burst takes by itself; of many publishers that of a loop that is awake."""
    return costs.marginal if kind.publishers > 1 else costs.fixed + kind.burst * costs.marginal


def predicted(costs: ReadCosts, rate: float, kind: Kind) -> tuple[float, float]:
    """Mean and 99 % quantile of the excess; a burst of fixed size is one customer with the work of all."""
    server: WakingServer | BatchServer
    if kind.publishers > 1:
        server = WakingServer(rate, costs.fixed, costs.marginal)
    else:
        server = BatchServer(rate / kind.burst, costs.fixed, kind.burst * costs.marginal)
    own = own_service(costs, kind)
    try:
        return server.mean_response() - own, server.response_quantile(0.99) - own
    except CapacityError:
        return INFINITE


def predicted_by_messages(each: float, rate: float, burst: int) -> tuple[float, float]:
    """The same of the paper's queue, in which a message costs the same whatever else there is."""
    work = burst * each
    server = SingleServer(rate / burst, Moments(work, work**2, work**3))
    try:
        return server.mean_wait(), server.quantile(0.99)
    except CapacityError:
        return INFINITE


def calibrated(rows: Sequence[Seen], flood: Seen | None, kind: Kind) -> Calibrated:
    """What reads and messages cost all brokers together, and what passes beside the service.

    Args:
        rows: loads of single messages.
        flood: messages that came as fast as the brokers took them: what a message adds to a batch shows in it.
        kind: of what they are.
    """
    fitted = [*rows, flood] if flood is not None else list(rows)
    reads, messages, seconds = (
        np.array([getattr(one, name) for one in fitted], np.float64) for name in ("batches", "messages", "seconds")
    )
    if kind.publishers > 1:
        loop = fit_waking(np.array([one.rate for one in fitted]), seconds / messages)
        costs = ReadCosts(loop.wake, loop.each, True)
    else:
        costs = fit_reads(reads, messages, seconds)
    # Least squares of relative errors, as for all fits here.
    shares = messages / seconds
    one_by_one = kind._replace(burst=1)
    own = own_service(costs, one_by_one)
    besides = [one.mean - own - predicted(costs, one.rate, one_by_one)[0] for one in rows]
    known = [each for each in besides if math.isfinite(each)]
    return Calibrated(costs, float(shares.sum() / (shares**2).sum()), median(known) if known else 0.0)


def measure_waits(kind: Kind, servers: Sequence[Server], seconds: float) -> list[Load]:
    """A first look at what messages cost, then rounds of loads, so many seconds for each load."""

    def waited() -> float:
        # Brokers that share a processor wait for each other: that is part of the load.
        return sum(_waited_seconds(one.pid) for one in servers) if len(servers) == 1 else 0.0

    with OpenLoop(servers[0].port, servers[-1].port, kind.copies, kind.publishers, waited) as line:
        line.settle()

        def play(rate: float, burst: int, lasting: float, seed: int) -> Seen:
            times = arrival_times(rate, lasting, burst, seed)
            before = _loop_seconds(servers)
            passed = line.run(times)
            used = _loop_seconds(servers) - before
            took, quiet = _undisturbed(passed)
            p99, late = float(np.quantile(took, 0.99)), float(passed.late.mean())
            return Seen(rate, len(times), passed.batches, used, float(took.mean()), p99, late, quiet)

        def flood() -> Seen | None:
            if kind.publishers > 1:
                return None
            seen = play(math.inf, FLOOD, seconds, 0)
            return seen._replace(batches=math.ceil(FLOOD * FRAME_BYTES / READ_BYTES))

        most = first_look(kind, play, flood, seconds / FIRST_PART)
        part = seconds / ROUNDS
        rounds: list[tuple[Calibrated, list[Seen]]] = []
        for number in range(ROUNDS):
            between = [play(share * most, 1, part / 2, 100 + number) for share in CALIBRATED]
            costs_now = calibrated(between, flood(), kind)
            rounds.append((costs_now, [play(share * most, kind.burst, part, number) for share in UTILISATIONS]))
    costs = [one.costs for one, _ in rounds]
    print(
        f"{kind.name}: a read takes {1e6 * median(one.fixed for one in costs):.0f} us and "
        f"{1e6 * median(one.marginal for one in costs):.2f} us for each message; by the paper's form "
        f"{1e6 * median(one.each for one, _ in rounds):.1f} us for each message; "
        f"{1e6 * median(one.besides for one, _ in rounds):.0f} us pass besides"
    )
    return [measured_load(kind, [(one, seen[place]) for one, seen in rounds]) for place in range(len(UTILISATIONS))]


def first_look(
    kind: Kind,
    play: Callable[[float, int, float, int], Seen],
    flood: Callable[[], Seen | None],
    seconds: float,
) -> float:
    """Messages a second that are about a utilisation of 1.

    From one publisher, that is what the brokers take of a flood. From many, loads grow until the loop is busy for most
    of the time: by its time, what it would take of single reads.
    """
    for _ in range(2):  # The first one warms up.
        seen = flood()
    if seen is not None:
        return seen.messages / seen.seconds
    rate = FIRST_RATE
    while True:
        one = play(rate, 1, seconds, 0)
        busy = one.seconds * rate / one.messages
        if busy > BUSY or rate >= MOST_RATE:
            return rate / busy
        rate *= 2


def measured_load(kind: Kind, rounds: Sequence[tuple[Calibrated, Seen]]) -> Load:
    """Medians over rounds of measured and predicted figures, and of the errors of each round."""
    ours, linear, means, p99s, used = [], [], [], [], []
    for one, seen in rounds:
        rest = one.besides + own_service(one.costs, kind)
        means.append(seen.mean - rest)
        p99s.append(seen.p99 - rest)
        ours.append(predicted(one.costs, seen.rate, kind))
        linear.append(predicted_by_messages(one.each, seen.rate, kind.burst))
        used.append(seen.rate * one.costs.marginal)

    def both(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
        return median(value[0] for value in values), median(value[1] for value in values)

    def errors(told: Sequence[tuple[float, float]]) -> tuple[float, float]:
        pairs = zip(told, means, p99s, strict=True)
        return both([(_error(mean, by[0]), _error(p99, by[1])) for by, mean, p99 in pairs])

    late, quiet = median(seen.late for _, seen in rounds), median(seen.quiet for _, seen in rounds)
    return Load(
        kind.name,
        median(used),
        median(means),
        median(p99s),
        both(ours),
        both(linear),
        errors(ours),
        errors(linear),
        late,
        quiet,
    )


def _error(measured: float, told: float) -> float:
    return abs(told / measured - 1) if measured > 0 else math.inf


def _loop_seconds(servers: Sequence[Server]) -> float:
    """Processor time of the threads that serve messages; others write the record meanwhile."""
    return sum(int(Path(f"/proc/{one.pid}/task/{one.pid}/schedstat").read_text().split()[0]) / 1e9 for one in servers)


def _undisturbed(passed: Passed) -> tuple[Floats, float]:
    share = float(passed.quiet.mean())
    if share < LEAST_QUIET:
        return passed.seconds, 0.0
    return passed.seconds[passed.quiet], share


def _waited_seconds(pid: int) -> float:
    """For how long a process was ready and had no processor."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def wait_errors(loads: Sequence[Load]) -> dict[str, Any]:
    """Relative errors: medians over all loads, and by kind."""
    heads = ("mean us", "ours", "linear", "p99 us", "ours", "linear", "late us", "quiet %", "off %", "p99 off")
    print(f"{'load':15} {'used':>4}" + "".join(f"{head:>9}" for head in heads))
    for one in loads:
        figures = (one.mean, one.ours[0], one.linear[0], one.p99, one.ours[1], one.linear[1], one.late)
        told = "".join(f"{1e6 * figure:9.0f}" for figure in figures)
        off = "".join(f"{100 * error:9.0f}" for error in (one.quiet, *one.errors))
        print(f"{one.kind:15} {one.utilisation:4.2f}{told}{off}")

    def error(part: int, chosen: Sequence[Load], linear: bool = False) -> float | None:
        found = median((one.linear_errors if linear else one.errors)[part] for one in chosen)
        return found if math.isfinite(found) else None

    by_kind = {
        f"{name}_wait_error_{kind.name.replace(' ', '_')}": error(part, [one for one in loads if one.kind == kind.name])
        for kind in KINDS
        for part, name in enumerate(("mean", "p99"))
        if any(one.kind == kind.name for one in loads)
    }
    return {
        "mean_wait_error": error(0, loads),
        "p99_wait_error": error(1, loads),
        "linear_mean_wait_error": error(0, loads, linear=True),
        "linear_p99_wait_error": error(1, loads, linear=True),
        "linear_endless": sum(math.isinf(one.linear[0]) for one in loads),
        "loads": len(loads),
        "quiet_share": min(one.quiet for one in loads),
        **by_kind,
    }


def processors_apart() -> tuple[set[int], set[int]]:
    """One for the generator and one for the brokers; the same where there is only one."""
    here = sorted(os.sched_getaffinity(0))
    return {here[0]}, {here[-1]}


def waits_of(seconds: float, kinds: Sequence[Kind] = KINDS) -> list[Load]:
    """Loads of these kinds."""
    before = os.sched_getaffinity(0)
    own, theirs = processors_apart()
    found: list[Load] = []
    for kind in kinds:
        with running(kind.brokers, theirs) as servers:
            os.sched_setaffinity(0, own)
            try:
                found += measure_waits(kind, servers, seconds)
            finally:
                os.sched_setaffinity(0, before)
    return found
