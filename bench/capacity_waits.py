"""Waits under open-loop load, measured and predicted.

Messages leave at random times (Poisson): from one publisher, one by one and in bursts; from many publishers; through a
line of three brokers. What reads and messages cost is fitted to loads of 0.2, 0.4, 0.6 and 0.8, from the times at which
messages went in and came out (`postroad.capacity.fit_loop`); the loads that are predicted are 0.5, 0.7 and 0.9. For one
publisher these are shares of what batches of any size could carry, for many publishers and for the line of what reads
of one message could: both by the fit right before, in the same round. A wait is what a message takes beyond the service
of its own burst.

Two predictions are made. `ours` knows the rate and that arrivals are Poisson. `replayed` knows the very times at which
the generator sent: where it is right and `ours` is not, the arrivals were not what they were meant to be.

Brokers run on one processor, the generator on another. Three brokers that share a processor are modelled as one server.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.measured_brokers import ForeignWait, loop_seconds, running
from bench.open_loop import OpenLoop, Passed, arrival_times
from postroad.capacity import (
    CapacityError,
    LoopCosts,
    Moments,
    SingleServer,
    fit_loop,
    join_batches,
    loop_ends,
    served_batches,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bench.measured_brokers import Server

    Floats = NDArray[np.float64]

UTILISATIONS = (0.5, 0.7, 0.9)
# Where less of a run than this was undisturbed, all of it counts, and the result says so.
LEAST_QUIET = 0.2
# Loads that costs are taken from; none of those that are predicted. Every other one comes in bursts if the load does.
CALIBRATED = (0.2, 0.4, 0.6, 0.8)
# Each load is measured so many times, right after those that costs are taken from.
ROUNDS = 5
# A load that costs are taken from lasts for this part of those that are predicted.
CALIBRATED_PART = 0.4
# The first look: rates from here on, doubled until the loop is busy for this share of the time.
FIRST_RATE = 500.0
MOST_RATE = 500_000.0
BUSY = 0.6
# Messages that one publisher sends at once, for a first look at what the brokers take.
FLOOD = 2_000
# A load of the first look lasts for this part of the others.
FIRST_PART = 4
# A fit that says so many times what the first look says, or so small a part of it, met a disturbance: it does not set
# loads beyond that, which would take longer than a run may.
MOST_CHANGE = 2.0
# A load has so many at least, however short it is meant to be.
FEWEST_BURSTS = 20
# Messages that a prediction plays.
PLAYED = 100_000


class Kind(NamedTuple):
    """A kind of load.

    Attributes:
        name: in results.
        brokers: that messages pass.
        publishers: that they come from.
        burst: messages that leave at once.
        selectors: that are tested for each message: so many that one publisher's messages cost the broker several times
            what they cost the generator.
    """

    name: str
    brokers: int
    publishers: int
    burst: int
    selectors: int

    @property
    def one_by_one(self) -> bool:
        """Whether a utilisation of 1 is what reads of one message could carry, not what batches of any size could.

        Many publishers do not share reads. Brokers on one processor get equal parts of it under more load than that,
        whatever they have to do, so that they no longer are one server.
        """
        return self.publishers > 1 or self.brokers > 1


KINDS = (
    Kind("poisson", 1, 1, 1, 1_000),
    Kind("bursts", 1, 1, 64, 1_000),
    Kind("many publishers", 1, 100, 1, 0),
    Kind("three brokers", 3, 1, 1, 0),
)


class Waits(NamedTuple):
    """The mean wait and its 99 % quantile, in seconds."""

    mean: float
    p99: float


INFINITE = Waits(math.inf, math.inf)


class Seen(NamedTuple):
    """One run of a load.

    Attributes:
        burst: messages that left at once.
        passed: when messages went in and came out.
        seconds: of processor time that the brokers' loops used.
    """

    burst: int
    passed: Passed
    seconds: float

    @property
    def lasted(self) -> float:
        """Seconds in which messages left."""
        return float(self.passed.sent[-1])

    @property
    def rate(self) -> float:
        """Messages per second, as they were sent."""
        return len(self.passed.sent) / self.lasted

    @property
    def processors(self) -> float:
        """That the loops used."""
        return self.seconds / float(self.passed.out.max())

    @property
    def variation(self) -> float:
        """The coefficient of variation of the times between sends: 1 for Poisson arrivals."""
        gaps = np.diff(self.passed.sent[:: self.burst])
        return float(gaps.std() / gaps.mean()) if len(gaps) > 1 else math.nan

    @property
    def quiet(self) -> float:
        """The share of messages that counts; 0 where all were disturbed, and count nevertheless."""
        share = float(self.passed.quiet.mean())
        return share if share >= LEAST_QUIET else 0.0

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Messages that count."""
        return self.passed.quiet if self.quiet else np.ones(len(self.passed.quiet), np.bool_)


class Calibrated(NamedTuple):
    """What the loads between those that are predicted gave: costs of the loop, and of a message by the paper's form."""

    costs: LoopCosts
    each: float

    def capacity(self, kind: Kind) -> float:
        """Messages a second that are a utilisation of 1."""
        return 1 / max(self.costs.first if kind.one_by_one else self.costs.further, 1e-9)


class Load(NamedTuple):
    """One open-loop load and what was predicted for it; medians over rounds.

    Each round is a pair: the loads that costs are taken from, and right after them the load that they predict, because
    the speed of a shared machine changes from one minute to the next.

    Attributes:
        kind: of load.
        utilisation: by the costs of each round and the rate that was sent.
        rate: messages a second.
        measured: waits.
        ours: predicted for Poisson arrivals at that rate.
        replayed: predicted for the very arrivals.
        linear: by the paper's form; infinite where it says that the queue grows without end.
        errors: relative errors of our mean and quantile.
        replayed_errors: the same of `replayed`.
        linear_errors: the same of the paper's form.
        late: the generator's own mean lateness, which is not part of the figures.
        variation: of the times between sends.
        processors: that the brokers' loops used.
        quiet: the share of messages that counts; of the others the machine was kept from doing its work.
    """

    kind: str
    utilisation: float
    rate: float
    measured: Waits
    ours: Waits
    replayed: Waits
    linear: Waits
    errors: tuple[float, float]
    replayed_errors: tuple[float, float]
    linear_errors: tuple[float, float]
    late: float
    variation: float
    processors: float
    quiet: float


def waits_in(responses: Floats, own: float) -> Waits:
    """Of responses, without the service of their own burst."""
    return Waits(float(responses.mean()) - own, float(np.quantile(responses, 0.99)) - own)


def predicted(costs: LoopCosts, rate: float, kind: Kind, seed: int = 0) -> Waits:
    """For Poisson arrivals."""
    times = arrival_times(rate, PLAYED / rate, kind.burst, seed)
    return waits_in(loop_ends(costs, times, _sources(kind, len(times)), seed) - times, costs.own(kind.burst))


def replayed(costs: LoopCosts, seen: Seen, kind: Kind) -> Waits:
    """For the arrivals of a run."""
    times = seen.passed.sent
    took = loop_ends(costs, times, _sources(kind, len(times))) - times
    return waits_in(took[seen.counted], costs.own(kind.burst))


def predicted_by_messages(each: float, rate: float, burst: int) -> Waits:
    """By the paper's queue, in which a message costs the same whatever else there is."""
    work = burst * each
    server = SingleServer(rate / burst, Moments(work, work**2, work**3))
    try:
        return Waits(server.mean_wait(), server.quantile(0.99))
    except CapacityError:
        return INFINITE


def _sources(kind: Kind, messages: int) -> NDArray[np.int64] | None:
    return np.arange(messages) % kind.publishers if kind.publishers > 1 else None


def calibrated(rows: Sequence[Seen]) -> Calibrated:
    """What reads and messages cost, from the times of these loads alone."""
    served = join_batches([served_batches(one.passed.sent, one.passed.out, one.counted) for one in rows])
    # Least squares of relative errors, as for all fits here.
    shares = np.array([len(one.passed.sent) / max(one.seconds, 1e-9) for one in rows])
    return Calibrated(fit_loop(served), float(shares.sum() / (shares**2).sum()))


def with_all_pauses(rounds: Sequence[Calibrated]) -> list[Calibrated]:
    """Pauses are rare: each round gets those that were seen in all, none of them while a load was predicted."""
    pauses = np.concatenate([one.costs.pauses for one in rounds])
    observed = sum(one.costs.observed for one in rounds)
    return [one._replace(costs=one.costs._replace(pauses=pauses, observed=observed)) for one in rounds]


def measure_waits(kind: Kind, servers: Sequence[Server], seconds: float, rounds_made: int = ROUNDS) -> list[Load]:
    """A first look at what messages cost, then rounds of loads, so many seconds for each load in all of them."""
    with contextlib.ExitStack() as stack:
        # Brokers that share a processor wait for each other: that is part of the load.
        waited = stack.enter_context(ForeignWait(servers[0].pid)) if len(servers) == 1 else lambda: 0.0
        line = stack.enter_context(OpenLoop(servers[0].port, servers[-1].port, kind.selectors, kind.publishers, waited))
        line.settle()

        def play(rate: float, burst: int, lasting: float, seed: int) -> Seen:
            before = loop_seconds(servers)
            passed = line.run(arrival_times(rate, max(lasting, FEWEST_BURSTS * burst / rate), burst, seed))
            return Seen(burst, passed, loop_seconds(servers) - before)

        part = seconds / rounds_made
        most = looked = first_look(kind, play, part / FIRST_PART)
        rounds: list[tuple[Calibrated, list[Seen]]] = []
        for number in range(rounds_made):
            shapes = zip(CALIBRATED, itertools.cycle((1, kind.burst)))
            between = [
                play(share * most, burst, CALIBRATED_PART * part, 100 + len(CALIBRATED) * number + place)
                for place, (share, burst) in enumerate(shapes)
            ]
            now = calibrated(between)
            most = min(max(now.capacity(kind), looked / MOST_CHANGE), looked * MOST_CHANGE)
            rounds.append((now, [play(share * most, kind.burst, part, number) for share in UTILISATIONS]))
    costs = with_all_pauses([one for one, _ in rounds])
    _tell_costs(kind, costs)
    runs = [seen for _, seen in rounds]
    return [
        measured_load(kind, [(one, seen[place]) for one, seen in zip(costs, runs, strict=True)])
        for place in range(len(UTILISATIONS))
    ]


def _tell_costs(kind: Kind, rounds: Sequence[Calibrated]) -> None:
    costs, pauses = [one.costs for one in rounds], rounds[0].costs.pauses
    longest = 1e3 * float(pauses.mean()) if len(pauses) else 0.0
    print(
        f"{kind.name}: a read takes {1e6 * median(one.first for one in costs):.0f} us, "
        f"{1e6 * median(one.wake for one in costs):+.0f} us after a rest, and "
        f"{1e6 * median(one.further for one in costs):.2f} us for each further message; "
        f"{rounds[0].costs.pause_rate:.1f} pauses a second of {longest:.2f} ms; by the paper's form "
        f"{1e6 * median(one.each for one in rounds):.1f} us for each message"
    )


def first_look(kind: Kind, play: Callable[[float, int, float, int], Seen], seconds: float) -> float:
    """Messages a second that are about a utilisation of 1.

    Of batches, that is what the broker takes of a flood. Of reads of one message, loads grow until the loops are busy
    for most of the time: by their time, what they would take.
    """
    if not kind.one_by_one:
        for _ in range(3):  # The first ones warm up.
            seen = play(math.inf, FLOOD, seconds, 0)
        return FLOOD / float(seen.passed.out.max())
    rate = FIRST_RATE
    while True:
        seen = play(rate, 1, seconds, 0)
        if seen.processors > BUSY or rate >= MOST_RATE:
            return rate / seen.processors
        rate *= 2


def measured_load(kind: Kind, rounds: Sequence[tuple[Calibrated, Seen]]) -> Load:
    """Medians over rounds of measured and predicted figures, and of the errors of each round."""
    measured = [waits_in(seen.passed.seconds[seen.counted], one.costs.own(kind.burst)) for one, seen in rounds]
    ours = [predicted(one.costs, seen.rate, kind, number) for number, (one, seen) in enumerate(rounds)]
    by_trace = [replayed(one.costs, seen, kind) for one, seen in rounds]
    linear = [predicted_by_messages(one.each, seen.rate, kind.burst) for one, seen in rounds]

    def middle(values: Sequence[Waits]) -> Waits:
        return Waits(median(one.mean for one in values), median(one.p99 for one in values))

    def errors(told: Sequence[Waits]) -> tuple[float, float]:
        pairs = list(zip(told, measured, strict=True))
        means, p99s = ([_error(seen[part], by[part]) for by, seen in pairs] for part in (0, 1))
        return median(means), median(p99s)

    runs = [seen for _, seen in rounds]
    return Load(
        kind.name,
        median(seen.rate / one.capacity(kind) for one, seen in rounds),
        median(seen.rate for seen in runs),
        middle(measured),
        middle(ours),
        middle(by_trace),
        middle(linear),
        errors(ours),
        errors(by_trace),
        errors(linear),
        median(float(seen.passed.late.mean()) for seen in runs),
        median(seen.variation for seen in runs),
        median(seen.processors for seen in runs),
        median(seen.quiet for seen in runs),
    )


def _error(measured: float, told: float) -> float:
    return abs(told / measured - 1) if measured > 0 else math.inf


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
