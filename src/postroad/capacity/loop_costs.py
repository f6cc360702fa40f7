"""What reads cost a broker's loop, and how long messages take there, from the times at which messages went in and out.

A loop reads whatever one socket holds as one batch, one socket after the other, and sleeps when none has anything. So
its behaviour shows in two times of each message, when it was handed to the broker and when it came out:

- Messages that come out at the same time were one batch.
- The loop could begin with a batch when its first message was there and the batch before was out. From then until the
  batch is out is what the batch took: in seconds of the clock, with everything that the loop does meanwhile.
- Where the first message came after the batch before was out, the loop had rested, and had to be woken.

A batch of n messages takes first + (n - 1) · further seconds, and `wake` more after a rest. Two things are kept as they
were seen, because no formula gives them: by what factor batches vary around these costs, and pauses, in which the loop
serves nobody: the thread that writes the record has the interpreter, or the machine is elsewhere. Pauses come at random
times, at the rate at which they were seen while the loop was at work.

The queue is played, message by message: with times that were drawn, or with those of a load that was measured.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["LoopCosts", "ServedBatches", "fit_loop", "join_batches", "loop_ends", "served_batches"]

# A batch that took this many seconds more than the costs say, and this part of them as well, met a pause. What is
# shorter is part of how batches vary.
PAUSE_SECONDS = 250e-6
PAUSE_PART = 0.5
# The fit weighs batches by what it found before, and leaves out those with a pause: this settles in a few steps.
_STEPS = 6
# With fewer there are not as many as costs.
FEWEST_BATCHES = 4
# Where fewer batches than this share would be without a pause, pauses are not the exception: none is told apart.
_LEAST_SMOOTH = 0.5
# Factors that are kept of how batches vary.
_MOST_FACTORS = 10_000
_PAUSES_AT_ONCE = 256


class ServedBatches(NamedTuple):
    """Batches that a loop served, one row each.

    Attributes:
        messages: how many were in it.
        seconds: that it took.
        rested: whether the loop had nothing to do before.
    """

    messages: Floats
    seconds: Floats
    rested: NDArray[np.bool_]


class LoopCosts(NamedTuple):
    """What a loop takes for its work, in seconds.

    Attributes:
        first: for a read with one message, when it is at work already.
        further: for each further message of the same read.
        wake: more than that for the first read after a rest; negative where a loop that has rested is quicker, because
            what it does behind a batch is done.
        factors: what batches took over what these costs say, of batches without a pause.
        pauses: how long each pause was that was seen.
        observed: for how many seconds the loop was seen at work, with pauses.
    """

    first: float
    further: float
    wake: float
    factors: Floats = np.ones(1)
    pauses: Floats = np.zeros(0)
    observed: float = math.inf

    @property
    def pause_rate(self) -> float:
        """Pauses per second."""
        return len(self.pauses) / self.observed

    def own(self, burst: int = 1) -> float:
        """The service of a message, or of a burst that comes as one, at a loop that is at work."""
        return self.first + (burst - 1) * self.further

    def expected(self, served: ServedBatches) -> Floats:
        """What these costs say that batches took, without pauses."""
        return np.asarray(self.first + self.further * (served.messages - 1) + self.wake * served.rested)


def served_batches(sent: Floats, out: Floats, counted: NDArray[np.bool_] | None = None) -> ServedBatches:
    """The batches of a load.

    Args:
        sent: when each message was handed to the broker.
        out: when it came out.
        counted: batches with a message that does not count are left out; None counts all.
    """
    if not len(out):
        raise CapacityError("there are no batches without messages")
    ends, place = np.unique(out, return_inverse=True)
    sizes = np.bincount(place).astype(np.float64)
    arrived = np.full(len(ends), math.inf)
    np.minimum.at(arrived, place, sent)
    before = np.concatenate([[-math.inf], ends[:-1]])
    served = ServedBatches(sizes, ends - np.maximum(arrived, before), arrived > before)
    if counted is None:
        return served
    whole = np.bincount(place, weights=~counted) == 0
    return ServedBatches(*(column[whole] for column in served))


def join_batches(parts: Sequence[ServedBatches]) -> ServedBatches:
    """Batches of several loads."""
    return ServedBatches(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def fit_loop(served: ServedBatches) -> LoopCosts:
    """The costs of a loop that served these batches: least squares of relative errors, pauses apart.

    What a further message costs is 0 where no batch has any.

    Raises:
        CapacityError: too few batches.
    """
    if len(served.seconds) < FEWEST_BATCHES:
        raise CapacityError(f"{len(served.seconds)} batches do not tell what they cost: {FEWEST_BATCHES} at least")
    terms = np.stack([np.ones(len(served.seconds)), served.messages - 1, served.rested.astype(np.float64)])
    expected, smooth = np.maximum(served.seconds, 1e-9), np.ones(len(served.seconds), np.bool_)
    found: Floats = np.zeros(len(terms))
    for _ in range(_STEPS):
        # Weights by what is expected, not by what was seen: the latter would favour batches that were quick by chance.
        weighed = (terms / expected)[:, smooth]
        found = np.asarray(np.linalg.lstsq(weighed.T, (served.seconds / expected)[smooth], rcond=None)[0], np.float64)
        found[:2] = np.maximum(found[:2], [1e-9, 0.0])
        found[2] = max(found[2], -0.9 * found[0])
        expected = found @ terms
        smooth = served.seconds <= (1 + PAUSE_PART) * expected + PAUSE_SECONDS
        if smooth.mean() < _LEAST_SMOOTH:
            smooth = np.ones(len(served.seconds), np.bool_)
    factors = (served.seconds / expected)[smooth]
    pauses = (served.seconds - expected)[~smooth]
    return LoopCosts(
        float(found[0]),
        float(found[1]),
        float(found[2]),
        factors[:: 1 + len(factors) // _MOST_FACTORS],
        pauses,
        float(served.seconds.sum()),
    )


def loop_ends(costs: LoopCosts, times: Floats, sources: NDArray[np.int64] | None = None, seed: int = 0) -> Floats:
    """When each message is out; those of one batch at the very same time.

    Args:
        costs: of the loop.
        times: when messages come, in order.
        sources: the socket of each; None for one socket.
        seed: of factors and pauses.
    """
    random = np.random.default_rng(seed)
    total, arrivals = len(times), times.tolist()
    sockets = [0] * total if sources is None else sources.tolist()
    factors = random.choice(costs.factors, total).tolist()
    pauses = _pauses(costs, random)
    pause_at, pause = next(pauses)
    first, further, wake = costs.first - costs.further, costs.further, costs.wake
    out = [0.0] * total
    # What each socket holds, in the order in which sockets began to hold something: so the loop serves them.
    waiting: dict[int, list[int]] = {}
    now, come, batches = -math.inf, 0, 0
    while come < total or waiting:
        rested = not waiting and arrivals[come] > now
        if rested:
            now = arrivals[come]
            while pause_at <= now:
                # One that ends before the message comes delays nobody.
                now = max(now, pause_at + pause)
                pause_at, pause = next(pauses)
        while come < total and arrivals[come] <= now:
            waiting.setdefault(sockets[come], []).append(come)
            come += 1
        members = waiting.pop(next(iter(waiting)))
        seconds = first + further * len(members)
        now += factors[batches] * (seconds + wake if rested else seconds)
        batches += 1
        while pause_at <= now:
            now += pause
            pause_at, pause = next(pauses)
        for member in members:
            out[member] = now
    return np.array(out)


def _pauses(costs: LoopCosts, random: np.random.Generator) -> Iterator[tuple[float, float]]:
    """When pauses begin and how long they are, for ever."""
    if not costs.pause_rate > 0:
        return itertools.repeat((math.inf, 0.0))
    return _random_pauses(costs, random)


def _random_pauses(costs: LoopCosts, random: np.random.Generator) -> Iterator[tuple[float, float]]:
    at = 0.0
    while True:
        gaps = random.exponential(1 / costs.pause_rate, _PAUSES_AT_ONCE).tolist()
        lengths = random.choice(costs.pauses, _PAUSES_AT_ONCE).tolist()
        for gap, length in zip(gaps, lengths, strict=True):
            at += gap
            yield at, length
