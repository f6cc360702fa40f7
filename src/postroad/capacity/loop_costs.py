"""What reads cost a broker's loop, and how long messages take there, from the times at which messages went in and out.

A loop reads whatever one socket holds as one batch, one socket after the other, and sleeps when none has anything. So
its behaviour shows in two times of each message, when the broker got it and when it came out:

- Messages that come out at the same time were one batch.
- The loop could begin with a batch when its first message was there and the batch before was out. From then until the
  batch is out is what the batch took: in seconds of the clock, with everything that the loop does meanwhile.
- Where the first message came after the batch before was out, the loop had rested, and had to be woken.

A batch of n messages takes first + (n - 1) · further seconds, and `wake` more after a rest. Two things are kept as they
were seen, because no formula gives them: by what factor batches vary around these costs, and pauses (`pauses.py`).
`loop_queue.py` plays the queue with these costs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.errors import CapacityError
from postroad.capacity.pauses import PauseSeries, arrival_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["LoopCosts", "ServedBatches", "TimedLoad", "fit_loop", "served_batches"]

# A batch that took this many seconds more than the costs say, and this part of them as well, met a pause. What is
# shorter is part of how batches vary, by a factor: so it has to be little, or the hiccup of a small batch would be a
# long one of a large batch.
PAUSE_SECONDS = 50e-6
PAUSE_PART = 0.15
# The fit weighs batches by what it found before, and leaves out those with a pause: this settles in a few steps.
_STEPS = 6
# With fewer there are not as many as costs.
FEWEST_BATCHES = 4
# Where fewer batches than this share would be without a pause, pauses are not the exception, and none is detected.
_LEAST_SMOOTH = 0.5
# So many batches of the very same length, and none longer, are not so by chance.
_SEEN_FULL = 5
# Factors that are kept of how batches vary.
_MOST_FACTORS = 10_000


class TimedLoad(NamedTuple):
    """Messages of a load, in the order in which they were sent.

    Attributes:
        sent: when the broker got each.
        out: when it came out.
        counted: whether it counts: others met a disturbance that is not the broker's.
        sources: the socket that each came from; None for one socket.
    """

    sent: Floats
    out: Floats
    counted: NDArray[np.bool_]
    sources: NDArray[np.int64] | None = None


class ServedBatches(NamedTuple):
    """Batches that a loop served under one load, one row each.

    Attributes:
        messages: how many were in it.
        reads: sockets that they came from. An observer of the output may see several batches at once.
        seconds: that it took.
        rested: whether the loop had nothing to do before.
        ends: when it was out, in order; times that do not count are cut out.
    """

    messages: Floats
    reads: Floats
    seconds: Floats
    rested: NDArray[np.bool_]
    ends: Floats


class LoopCosts(NamedTuple):
    """What a loop takes for its work, in seconds.

    Attributes:
        first: for a read with one message, when it is at work already.
        further: for each further message of the same read.
        wake: more than that for the first read after a rest; negative where a loop that has rested is quicker, because
            what it does after a batch is done.
        factors: what batches took over what these costs say, of batches without a pause.
        pauses: that were seen, a series for each load.
        most: messages that one batch can have. A broker whose selectors are costly leaves the rest of a long read for
            its next turn, and messages at its head are out before those at its end.
    """

    first: float
    further: float
    wake: float
    factors: Floats = np.ones(1)
    pauses: Sequence[PauseSeries] = ()
    most: float = math.inf

    def own(self, burst: int = 1) -> float:
        """The service of a message, or of a burst that comes as one, at a loop that is at work."""
        return self.first + (burst - 1) * self.further

    def expected(self, served: ServedBatches) -> Floats:
        """What these costs say that batches took, without pauses."""
        further = served.messages - served.reads
        return np.asarray(self.first * served.reads + self.further * further + self.wake * served.rested)


def served_batches(load: TimedLoad) -> ServedBatches:
    """Find the batches of a load; those with a message that does not count are left out."""
    sent, out, counted, sources = load
    if not len(out):
        raise CapacityError("there are no batches without messages")
    ends, place = np.unique(out, return_inverse=True)
    sizes = np.bincount(place).astype(np.float64)
    arrived = np.full(len(ends), math.inf)
    np.minimum.at(arrived, place, sent)
    before = np.concatenate([[-math.inf], ends[:-1]])
    whole = np.bincount(place, weights=~counted) == 0
    # Between two batches that count, time passes; around others it stands still.
    passed = np.diff(ends, prepend=float(np.min(sent))) * whole
    reads = np.ones(len(ends)) if sources is None else _reads(place, sources)
    served = ServedBatches(sizes, reads, ends - np.maximum(arrived, before), arrived > before, np.cumsum(passed))
    return ServedBatches(*(column[whole] for column in served))


def _reads(place: NDArray[np.int64], sources: NDArray[np.int64]) -> Floats:
    """How many sockets the messages of each batch came from."""
    pairs = np.unique(np.stack([place, sources]), axis=1)
    return np.bincount(pairs[0], minlength=int(place.max()) + 1).astype(np.float64)


def fit_loop(loads: Sequence[TimedLoad]) -> LoopCosts:
    """The costs of a loop that served these loads: least squares, batches weighed by their work, pauses apart.

    What a further message costs is 0 if no batch has any.

    Raises:
        CapacityError: too few batches.
    """
    served = [served_batches(load) for load in loads]
    messages, reads, seconds, rested = (np.concatenate([one[part] for one in served]) for part in range(4))
    if len(seconds) < FEWEST_BATCHES:
        raise CapacityError(f"{len(seconds)} batches do not tell what they cost: {FEWEST_BATCHES} at least")
    terms = np.stack([reads, messages - reads, rested.astype(np.float64)])
    expected, smooth = np.maximum(seconds, 1e-9), np.ones(len(seconds), np.bool_)
    found: Floats = np.zeros(len(terms))
    for _ in range(_STEPS):
        # A batch counts by its work: waits depend on how busy the loop is, and thousands of small batches may be less
        # of that than a hundred large ones. By what is expected, not by what was seen: the latter would favour batches
        # that were quick by chance.
        weights = 1 / np.sqrt(expected[smooth])
        found = np.asarray(
            np.linalg.lstsq((terms[:, smooth] * weights).T, seconds[smooth] * weights, rcond=None)[0], np.float64
        )
        found[:2] = np.maximum(found[:2], [1e-9, 0.0])
        found[2] = max(found[2], -0.9 * found[0])
        expected = found @ terms
        smooth = _without_pause(seconds, expected)
        if smooth.mean() < _LEAST_SMOOTH:
            smooth = np.ones(len(seconds), np.bool_)
    factors = (seconds / expected)[smooth]
    first, further, wake = found.tolist()
    costs = LoopCosts(
        first, further, wake, factors[:: 1 + len(factors) // _MOST_FACTORS], most=_most(messages[reads == 1])
    )
    return (
        costs
        if smooth.all()
        else costs._replace(pauses=[_pauses(costs, *pair) for pair in zip(loads, served, strict=True)])
    )


def _most(messages: Floats) -> float:
    """The messages that no batch exceeds, if many have just as many; infinite if the longest one is so by chance."""
    longest = float(messages.max(initial=0))
    return longest if longest > 1 and (messages == longest).sum() >= _SEEN_FULL else math.inf


def _without_pause(seconds: Floats, expected: Floats) -> NDArray[np.bool_]:
    return np.asarray(seconds <= (1 + PAUSE_PART) * expected + PAUSE_SECONDS)


def _pauses(costs: LoopCosts, load: TimedLoad, served: ServedBatches) -> PauseSeries:
    """The pauses of a load: what its batches took beyond these costs, right before they were out."""
    expected = costs.expected(served)
    met = ~_without_pause(served.seconds, expected)
    lengths = (served.seconds - expected)[met]
    lasted = float(served.ends[-1]) if len(served.ends) else 0.0
    return PauseSeries(arrival_rate(load.sent), lasted, np.maximum(served.ends[met] - lengths, 0.0), lengths)
