"""How long messages wait at a server that takes everything waiting as one batch.

Our brokers read whatever a socket holds, and carry it through matching, routing and writing as one batch. A batch of n
messages takes S(n) = fixed + n · marginal seconds. Under load batches grow and the fixed part is shared by more
messages, so that the cost per message falls: the M/G/1 queue, which charges every message the same, promises too little
capacity and too long waits.

Messages arrive at random (Poisson) at `rate`. While a batch of n is served, A ~ Poisson(rate · S(n)) messages arrive;
they are the next batch. After A = 0 the server waits for one message, and the next batch is that one. The sizes of
successive batches are a Markov chain, which is solved as such:

- A message that arrives during S(n) arrives at a uniform moment of it, so it waits U · S(n) until its batch begins;
  one that finds the server idle does not wait.
- It shares its batch with those that arrive in the same S(n): 1 + Poisson(rate · S(n)) messages.

With several publishers a broker serves, in each turn of its loop, one batch for every socket that has something. So
the fixed part is paid once for each source among the n messages: P · (1 - (1 - 1/P)^n) of P equal ones on average. One
source shares it among all messages; infinitely many share nothing.

The server is stable while rate · marginal < 1: the fixed part limits no capacity, but with many sources the waits grow
long before that. There is no bound on a batch here. A broker bounds what it reads at once (256 KiB per socket); where
batches reach that bound, waits are longer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.errors import CapacityError
from postroad.capacity.single_server import check_probability

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["BatchServer"]

# The chain is solved with a matrix of this many states at most: 2 MiB, some 10 ms. Larger batches have so many messages
# that their sizes are nearly normal: an autoregressive series with factor rate · marginal.
_MOST_STATES = 512
# Sizes further than this many standard deviations from the mean are ignored: probability 1e-15 and less.
_DEVIATIONS = 9.0
_NORMAL_POINTS = 2001
# Newton's method converges in a handful of steps; this bounds it.
_NEWTON_STEPS = 60
_STEEPEST = 0.999
_RELATIVE_PRECISION = 1e-6


class BatchServer(NamedTuple):
    """A server of batches.

    Attributes:
        rate: arrivals per second.
        fixed: seconds of a batch, however small.
        marginal: further seconds for each message in it.
        sources: sockets that messages come from, all alike; at least 1.
    """

    rate: float
    fixed: float
    marginal: float
    sources: float = 1.0

    @property
    def utilisation(self) -> float:
        """Return rho, the share of its capacity that is used: rate · marginal. It may be busy for more of its time."""
        return self.rate * self.marginal

    def seconds(self, size: Floats) -> Floats:
        """S(n)."""
        if self.sources == 1:
            return self.fixed + self.marginal * size
        taking_part = -self.sources * np.expm1(size * math.log1p(-1 / self.sources))
        return np.asarray(self.fixed * taking_part + self.marginal * size)

    def _mean_size(self) -> float:
        """Return the size of a batch that equals what arrives meanwhile: n = rate · S(n), by Newton's method."""
        size = self.rate * self.fixed * self.sources / (1 - self.utilisation)
        if self.sources == 1:
            return size
        decay = math.log1p(-1 / self.sources)
        for _ in range(_NEWTON_STEPS):
            # S is concave and the start is above the root, so the steps descend to it and never pass it.
            slope = 1 - self.rate * (self.marginal - self.fixed * self.sources * decay * math.exp(size * decay))
            excess = size - self.rate * float(self.seconds(np.array(size)))
            if slope <= 0 or excess <= _RELATIVE_PRECISION * size:
                break
            size -= excess / slope
        return max(size, 0.0)

    def _slope(self, size: float) -> float:
        """Return how much the next batch grows with this one: the factor of the autoregressive series."""
        if self.sources == 1:
            return self.utilisation
        decay = math.log1p(-1 / self.sources)
        return self.utilisation - self.rate * self.fixed * self.sources * decay * math.exp(size * decay)

    def sizes(self) -> tuple[Floats, Floats]:
        """Return the sizes of batches, and the share of batches that have each."""
        self._check()
        mean = self._mean_size()
        # Close to a slope of 1 the series wanders far; the curve of S bounds it even at 1.
        slope = min(self._slope(mean), _STEEPEST)
        deviation = math.sqrt(max(mean, 1.0) / (1 - slope**2))
        most = math.ceil(mean + _DEVIATIONS * deviation + 20)
        if most <= _MOST_STATES:
            # Small batches are far from normal: their tail falls by a power of the slope, from one size to the next.
            most = min(_MOST_STATES, most + math.ceil(20 / (1 - slope)))
            sizes = np.arange(1, most + 1, dtype=np.float64)
            return sizes, _stationary(self._transitions(sizes))
        sizes = np.linspace(max(1.0, mean - _DEVIATIONS * deviation), mean + _DEVIATIONS * deviation, _NORMAL_POINTS)
        weights = np.exp(-0.5 * ((sizes - mean) / deviation) ** 2)
        return sizes, weights / weights.sum()

    def turn_seconds(self) -> float:
        """Return how long the mean batch takes: the order of the longest waits. Very cheap to compute."""
        self._check()
        return float(self.seconds(np.array(max(1.0, self._mean_size()))))

    def mean_batch(self) -> float:
        """The mean number of messages in a batch."""
        sizes, shares = self.sizes()
        return float(sizes @ shares)

    def busy(self) -> float:
        """The share of time in which a batch is served."""
        sizes, shares = self.sizes()
        seconds = self.seconds(sizes)
        served = float(shares @ seconds)
        idle = float(shares @ np.exp(-self.rate * seconds)) / self.rate
        return served / (served + idle)

    def mean_wait(self) -> float:
        """Mean seconds from a message's arrival until its batch begins."""
        seconds, weights = self.seen()
        return float(weights @ seconds) / 2

    def mean_response(self) -> float:
        """Mean seconds from a message's arrival until its batch is done."""
        seconds, weights = self.seen()
        alone = 1 - float(weights.sum())
        own = self.seconds(1 + self.rate * seconds)
        return self.mean_wait() + float(weights @ own) + alone * (self.fixed + self.marginal)

    def wait_tail(self, at: float) -> float:
        """P(wait > at)."""
        seconds, weights = self.seen()
        return float(weights @ np.clip(1 - at / seconds, 0, 1))

    def response_tail(self, at: float) -> float:
        """P(response > at)."""
        return self._response_tail(*self.seen())(at)

    def wait_quantile(self, p: float) -> float:
        """The wait that a share `p` of messages does not exceed."""
        check_probability(p)
        seconds, weights = self.seen()
        return _root(lambda at: float(weights @ np.clip(1 - at / seconds, 0, 1)) - (1 - p), float(seconds.max()))

    def response_quantile(self, p: float) -> float:
        """The response time that a share `p` of messages does not exceed."""
        check_probability(p)
        seconds, weights = self.seen()
        most = float(seconds.max())
        longest = most + self.fixed + self.marginal * (1 + self.rate * most + 10 * math.sqrt(self.rate * most + 1) + 20)
        tail = self._response_tail(seconds, weights)
        return _root(lambda at: tail(at) - (1 - p), longest)

    def seen(self) -> tuple[Floats, Floats]:
        """The seconds of the batches during which messages arrive, and the share of messages that see each.

        The shares add up to less than 1: the rest finds the server idle.
        """
        sizes, shares = self.sizes()
        seconds = self.seconds(sizes)
        arrivals = shares * self.rate * seconds
        # After a batch with no arrivals, exactly one message finds the server idle.
        idle = float(shares @ np.exp(-self.rate * seconds))
        return seconds, arrivals / (arrivals.sum() + idle)

    def _response_tail(self, seconds: Floats, weights: Floats) -> Callable[[float], float]:
        """P(U · S + own batch > at) as a function of `at`, the own batch with 1 + Poisson(rate · S) messages."""
        alone, quickest = 1 - float(weights.sum()), self.fixed + self.marginal
        expected = self.rate * seconds
        most = math.ceil(float(expected.max()) + _DEVIATIONS * math.sqrt(float(expected.max()) + 1) + 20)
        if most > _MOST_STATES:
            # So many messages that their number is nearly certain.
            chance, others = weights[:, None], expected[:, None]
        else:
            counts = np.arange(most + 1, dtype=np.float64)
            chance, others = weights[:, None] * _poisson(expected, counts), counts[None, :]
        # U · S > at - own with probability (S + own - at) / S, between 0 and 1.
        slack = 1 + self.seconds(1 + others) / seconds[:, None]

        def tail(at: float) -> float:
            above = np.clip(slack - at / seconds[:, None], 0, 1)
            return alone * (quickest > at) + float(np.vdot(chance, above))

        return tail

    def _transitions(self, sizes: Floats) -> Floats:
        """Row n: the probabilities of the next batch's sizes. What is beyond the largest size is dropped and shared."""
        expected = self.rate * self.seconds(sizes)
        chance = _poisson(expected, np.concatenate([[0.0], sizes]))
        following = chance[:, 1:]
        following[:, 0] += chance[:, 0]
        return np.asarray(following / following.sum(axis=1, keepdims=True))

    def _check(self) -> None:
        if not self.rate > 0 or not self.fixed >= 0 or not self.marginal >= 0 or not self.fixed + self.marginal > 0:
            raise CapacityError("a server of batches needs a positive rate, and times that are not negative nor all 0")
        if not self.sources >= 1:
            raise CapacityError(f"messages cannot come from {self.sources:g} sockets")
        if not self.utilisation < 1:
            raise CapacityError(
                f"{self.rate:g} messages/s are more than the server carries in batches of any size: fewer than "
                f"{1 / self.marginal:.6g} messages/s"
            )


def _poisson(means: Floats, counts: Floats) -> Floats:
    """Row i: the probability of each count under the i-th mean."""
    # Not by scipy's gamma function: brokers use this, and a plain install does not bring scipy.
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, int(counts[-1]) + 1)))])
    logs = np.outer(np.log(means), counts) - means[:, None] - factorials[counts.astype(np.int64)][None, :]
    return np.asarray(np.exp(logs))


def _stationary(transitions: Floats) -> Floats:
    """The distribution that the chain keeps: the left eigenvector, by solving its equations with one replaced."""
    size = len(transitions)
    system = transitions.T - np.eye(size)
    system[-1] = 1.0
    target = np.zeros(size)
    target[-1] = 1.0
    found = np.clip(np.linalg.solve(system, target), 0, None)
    return np.asarray(found / found.sum())


def _root(excess: Callable[[float], float], high: float) -> float:
    """Where a falling function crosses zero between 0 and `high`; 0 if it is negative from the start."""
    if excess(0.0) <= 0:
        return 0.0
    low = 0.0
    while high - low > _RELATIVE_PRECISION * high:
        middle = (low + high) / 2
        if excess(middle) > 0:
            low = middle
        else:
            high = middle
    return high
