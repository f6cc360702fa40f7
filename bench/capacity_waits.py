"""Waits under open-loop load, measured and predicted.

Messages leave at random times (Poisson): from one publisher, one by one and in bursts; from many publishers; through a
line of three brokers. What reads and messages cost is fitted to loads of 0.2, 0.4, 0.6 and 0.8, from the times at which
messages went in and came out (`postroad.capacity.fit_loop`); the loads that are predicted are 0.5, 0.7 and 0.9. For one
publisher these are shares of what batches of any size could carry, for many publishers and for the line of what reads
of one message could: both by the fit right before, in the same round. A wait is what a message takes beyond the service
of its own burst.

Two predictions are made. `ours` knows the rate and that arrivals are Poisson. `replayed` knows the very times at which
the generator sent: where it is right and `ours` is not, the arrivals were not what they were meant to be.

Brokers run on one processor, the generator on another. Three brokers that share a processor are modelled as they are:
each runs until it has nothing left (`postroad.capacity.fit_line`).
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
    TimedLoad,
    fit_line,
    fit_loop,
    loop_ends,
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
CALIBRATED_PART = 0.8
# The first look: rates from here on, doubled until the loop is busy for this share of the time.
FIRST_RATE = 500.0
MOST_RATE = 500_000.0
BUSY = 0.6
# A load that is served for so many times as long as it was sent.
LATE = 1.3
# Messages that one publisher sends at once, for a first look at what the brokers take.
FLOOD = 2_000
# A load of the first look lasts for this part of the others.
FIRST_PART = 4
# A fit that says so many times what the first look says, or so small a part of it, met a disturbance: it does not set
# loads beyond that, which would take longer than a run may.
MOST_CHANGE = 2.0
# A load has so many at least, however short it is meant to be.
FEWEST_BURSTS = 20
# How often each run is played for a prediction, with other pauses every time.
PLAYED = 8
# A standard deviation over the median distance from the median, and the standard error of a median over that of a mean,
# both for normal distributions.
NORMAL_SPREAD = 1.48
MEDIAN_SPREAD = 1.25


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

    def timed(self, kind: Kind) -> TimedLoad:
        """What a fit sees of it."""
        return TimedLoad(self.passed.sent, self.passed.out, self.counted, _sources(kind, len(self.passed.sent)))

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Messages that count."""
        return self.passed.quiet if self.quiet else np.ones(len(self.passed.quiet), np.bool_)


class Round(NamedTuple):
    """Loads that costs are taken from, and right after them those that are predicted: one for each utilisation.

    The speed of a shared machine changes from one minute to the next.
    """

    between: list[Seen]
    predicted: list[Seen]


class Calibrated(NamedTuple):
    """What the loads between those that are predicted gave: costs of a loop, and of a message by the paper's form."""

    costs: LoopCosts
    each: float

    def own(self, kind: Kind) -> float:
        """The service of a burst, by all brokers that it passes."""
        return kind.brokers * self.costs.own(kind.burst)

    def capacity(self, kind: Kind) -> float:
        """Messages a second that are a utilisation of 1."""
        one = kind.brokers * self.costs.first if kind.one_by_one else self.costs.further
        return 1 / max(one, 1e-9)


class Load(NamedTuple):
    """One open-loop load and what was predicted for it; medians over rounds.

    Attributes:
        kind: of load.
        utilisation: by the costs and the rate that was sent.
        rate: messages a second.
        measured: waits.
        ours: predicted for Poisson arrivals at that rate.
        replayed: predicted for the very arrivals.
        linear: by the paper's form; infinite where it says that the queue grows without end.
        noise: the relative standard error of what was measured, from the differences between rounds.
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
    noise: Waits
    late: float
    variation: float
    processors: float
    quiet: float

    def errors(self, told: Waits) -> Waits:
        """Relative errors of a prediction."""
        return Waits(
            *(abs(by / seen - 1) if seen > 0 else math.inf for by, seen in zip(told, self.measured, strict=True))
        )


def waits_in(runs: Sequence[Floats]) -> Waits:
    """The mean and the 99 % quantile of a run: the median over runs, so that one that was disturbed does not matter."""
    return Waits(median(float(one.mean()) for one in runs), median(float(np.quantile(one, 0.99)) for one in runs))


def noise_in(runs: Sequence[Floats]) -> Waits:
    """Relative standard errors of `waits_in`, from how much runs differ."""
    return Waits(_noise([float(one.mean()) for one in runs]), _noise([float(np.quantile(one, 0.99)) for one in runs]))


def _noise(values: Sequence[float]) -> float:
    middle = median(values)
    spread = NORMAL_SPREAD * median(abs(one - middle) for one in values)
    return MEDIAN_SPREAD * spread / math.sqrt(len(values)) / max(abs(middle), 1e-12)


def predicted_waits(now: Calibrated, seen: Seen, kind: Kind, number: int) -> list[Floats]:
    """For Poisson arrivals at the rate of a run, in runs of its length."""
    found = []
    for seed in _seeds(number):
        times = arrival_times(seen.rate, seen.lasted, kind.burst, seed)
        ends = loop_ends(now.costs, times, _sources(kind, len(times)), seed, kind.brokers)
        found.append(ends - times - now.own(kind))
    return found


def replayed_waits(now: Calibrated, seen: Seen, kind: Kind, number: int) -> list[Floats]:
    """For the arrivals of a run, several times."""
    times, sources = seen.passed.sent, _sources(kind, len(seen.passed.sent))
    ends = [loop_ends(now.costs, times, sources, seed, kind.brokers) for seed in _seeds(number)]
    return [(one - times)[seen.counted] - now.own(kind) for one in ends]


def _seeds(number: int) -> range:
    return range(PLAYED * number, PLAYED * (number + 1))


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


def calibrated(kind: Kind, rows: Sequence[Seen]) -> Calibrated:
    """What reads and messages cost, from the times of these loads alone, as if there were one loop."""
    # Least squares of relative errors, as for all fits here.
    shares = np.array([len(one.passed.sent) / max(one.seconds, 1e-9) for one in rows])
    return Calibrated(fit_loop([one.timed(kind) for one in rows]), float(shares.sum() / (shares**2).sum()))


def calibrations(kind: Kind, rounds: Sequence[Round]) -> list[Calibrated]:
    """What predicts the loads of each round; nothing of the loads that are predicted is in it.

    Pauses are rare: each round gets those that were seen in all. A line of brokers is fitted to all rounds at once.
    """
    found = [calibrated(kind, one.between) for one in rounds]
    if kind.brokers > 1:
        line = fit_line([seen.timed(kind) for one in rounds for seen in one.between], kind.brokers)
        return [one._replace(costs=line) for one in found]
    pauses = [series for one in found for series in one.costs.pauses]
    return [one._replace(costs=one.costs._replace(pauses=pauses)) for one in found]


def measure_waits(kind: Kind, servers: Sequence[Server], seconds: float, rounds_made: int = ROUNDS) -> list[Round]:
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
        rounds: list[Round] = []
        for number in range(rounds_made):
            shapes = zip(CALIBRATED, itertools.cycle((1, kind.burst)))
            between = [
                play(share * most, burst, CALIBRATED_PART * part, 100 + len(CALIBRATED) * number + place)
                for place, (share, burst) in enumerate(shapes)
            ]
            most = min(max(capacity_now(kind, between), looked / MOST_CHANGE), looked * MOST_CHANGE)
            rounds.append(Round(between, [play(share * most, kind.burst, part, number) for share in UTILISATIONS]))
    return rounds


def capacity_now(kind: Kind, between: Sequence[Seen]) -> float:
    """Messages a second that are a utilisation of 1, by loads that were just measured.

    Of a line, that is by the processor time of a message under the lowest load, in which hardly any share a read.
    """
    if kind.brokers > 1:
        return len(between[0].passed.sent) / max(between[0].seconds, 1e-9)
    return calibrated(kind, between).capacity(kind)


def first_look(kind: Kind, play: Callable[[float, int, float, int], Seen], seconds: float) -> float:
    """Messages a second that are about a utilisation of 1.

    Of batches, that is what the broker takes of a flood. Of reads of one message, loads grow until the loops are busy
    for most of the time: by their time, what they would take. A load that takes far longer than it was sent for is more
    than brokers carry, however busy they are: others have their processor.
    """
    if not kind.one_by_one:
        for _ in range(3):  # The first ones warm up.
            seen = play(math.inf, FLOOD, seconds, 0)
        return FLOOD / float(seen.passed.out.max())
    rate = FIRST_RATE
    while True:
        seen = play(rate, 1, seconds, 0)
        took = float(seen.passed.out.max())
        if took > LATE * seen.lasted:
            return len(seen.passed.out) / took
        if seen.processors > BUSY or rate >= MOST_RATE:
            return rate / seen.processors
        rate *= 2


def predicted_loads(kind: Kind, rounds: Sequence[Round]) -> list[Load]:
    """What was measured and what was predicted for each utilisation."""
    found = calibrations(kind, rounds)
    _tell_costs(kind, found)
    places = range(len(rounds[0].predicted))
    return [
        measured_load(kind, list(zip(found, [one.predicted[place] for one in rounds], strict=True))) for place in places
    ]


def _tell_costs(kind: Kind, rounds: Sequence[Calibrated]) -> None:
    costs, pauses = [one.costs for one in rounds], rounds[0].costs.pauses
    lengths = np.concatenate([one.lengths for one in pauses]) if pauses else np.zeros(0)
    seen, average = sum(one.seconds for one in pauses), 1e3 * float(lengths.mean()) if len(lengths) else 0.0
    print(
        f"{kind.name}: a read takes {1e6 * median(one.first for one in costs):.0f} us, "
        f"{1e6 * median(one.wake for one in costs):+.0f} us after a rest, and "
        f"{1e6 * median(one.further for one in costs):.2f} us for each further message; "
        f"{len(lengths) / max(seen, 1e-9):.1f} pauses a second of {average:.2f} ms; "
        f"by the paper's form {1e6 * median(one.each for one in rounds):.1f} us for each message"
    )


def measured_load(kind: Kind, rounds: Sequence[tuple[Calibrated, Seen]]) -> Load:
    """Medians over rounds of measured and predicted waits, each less the service by the costs of its round."""
    numbered = list(enumerate(rounds))
    measured = [seen.passed.seconds[seen.counted] - one.own(kind) for one, seen in rounds]
    linear = [predicted_by_messages(one.each, seen.rate, kind.burst) for one, seen in rounds]
    runs = [seen for _, seen in rounds]
    return Load(
        kind.name,
        median(seen.rate / one.capacity(kind) for one, seen in rounds),
        median(seen.rate for seen in runs),
        waits_in(measured),
        waits_in([run for number, (one, seen) in numbered for run in predicted_waits(one, seen, kind, number)]),
        waits_in([run for number, (one, seen) in numbered for run in replayed_waits(one, seen, kind, number)]),
        Waits(median(one.mean for one in linear), median(one.p99 for one in linear)),
        noise_in(measured),
        median(float(seen.passed.late.mean()) for seen in runs),
        median(seen.variation for seen in runs),
        median(seen.processors for seen in runs),
        median(seen.quiet for seen in runs),
    )


def processors_apart() -> tuple[set[int], set[int]]:
    """One for the generator and one for the brokers; the same where there is only one."""
    here = sorted(os.sched_getaffinity(0))
    return {here[0]}, {here[-1]}


def rounds_of(seconds: float, kinds: Sequence[Kind] = KINDS) -> dict[str, list[Round]]:
    """Measure loads of these kinds; by name."""
    before = os.sched_getaffinity(0)
    own, theirs = processors_apart()
    found: dict[str, list[Round]] = {}
    for kind in kinds:
        with running(kind.brokers, theirs) as servers:
            os.sched_setaffinity(0, own)
            try:
                found[kind.name] = measure_waits(kind, servers, seconds)
            finally:
                os.sched_setaffinity(0, before)
    return found
