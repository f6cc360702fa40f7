"""A scenario: a workload for a network of brokers, declared and seeded.

It says who subscribes where to what, and who publishes what when. The same settings and the same seed give the same
scenario everywhere. `replication` measures how many clients and brokers want a message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from postroad.lab.errors import LabError
from postroad.matching import SubscriptionIndex
from postroad.messages import Batch
from postroad.selectors import Selector, TopicPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from postroad.messages import Draft

__all__ = ["MICROSECONDS_PER_SECOND", "Publications", "Replication", "Scenario", "Subscriber", "Truth", "poisson_times"]

MICROSECONDS_PER_SECOND = 1_000_000
# A scenario is held in memory while it runs: a hundred times what fits into a minute of the largest experiment here.
MAX_SUBSCRIBERS = 1_000_000
MAX_MESSAGES = 10_000_000
# Messages that are matched at once to find out who wants them.
_BLOCK = 1_000


class Subscriber(NamedTuple):
    """One subscription of one client."""

    broker: int
    topic: str
    selector: str = ""


@dataclass(frozen=True)
class Publications:
    """What is published, in order of time.

    Attributes:
        at: int64[n]: when each is published, in microseconds from the beginning.
        brokers: int32[n]: where.
        clients: int32[n]: by which client.
        draft: makes the message of a row.
    """

    at: NDArray[np.int64]
    brokers: NDArray[np.int32]
    clients: NDArray[np.int32]
    draft: Callable[[int], Draft]

    def __len__(self) -> int:
        return len(self.at)

    def batch(self, rows: Sequence[int]) -> Batch:
        """Return the messages of some rows, as one read of a broker."""
        return Batch.build([self.draft(row) for row in rows])


class Replication(NamedTuple):
    """How many copies of a message a scenario asks for.

    Attributes:
        messages: that were examined.
        clients: wanting a message, on average.
        brokers: with such a client, on average.
        variance: of the number of clients.
        unwanted: the share of messages that nobody wants.
    """

    messages: int
    clients: float
    brokers: float
    variance: float
    unwanted: float


class Truth:
    """Who wants a message, found by one index over all subscribers, independently of any broker."""

    def __init__(self, subscribers: Sequence[Subscriber]) -> None:
        self._index = SubscriptionIndex()
        slots = [
            self._index.add(
                place,
                Selector.parse(one.selector) if one.selector else None,
                TopicPattern.parse(one.topic),
            )
            for place, one in enumerate(subscribers)
        ]
        self._place = np.zeros(max(slots, default=0) + 1, np.int64)
        self._place[slots] = np.arange(len(slots))
        self._home = np.array([one.broker for one in subscribers], np.int64)

    def wanted(self, batch: Batch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (row, subscriber) of every delivery that a batch should cause, by row, then by subscriber."""
        offsets, slots = self._index.match(batch)
        rows = np.repeat(np.arange(len(batch)), np.diff(offsets))
        places = self._place[slots]
        order = np.lexsort((places, rows))
        return rows[order], places[order]

    def counts(self, batch: Batch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return for each row the number of subscribers that want it, and of brokers that have one."""
        rows, places = self.wanted(batch)
        clients = np.bincount(rows, minlength=len(batch))
        pairs = np.unique(np.stack([rows, self._home[places]]), axis=1)[0] if len(rows) else rows
        return clients.astype(np.int32), np.bincount(pairs, minlength=len(batch)).astype(np.int32)


class Scenario(ABC):
    """A workload. Subclasses are frozen dataclasses whose fields are its settings."""

    kind: ClassVar[str]
    # Settings that may be 0; all other numbers are above it.
    may_be_zero: ClassVar[frozenset[str]] = frozenset({"seed", "body"})

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing.

        Raises:
            LabError: a setting is negative, or 0 where there must be something; the text names it.
        """
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            may_be_zero = one.name in self.may_be_zero
            if not (value > 0 or (may_be_zero and value == 0)):
                raise LabError(f"{one.name}: {'0 or more' if may_be_zero else 'above 0'}, not {value:g}")

    @abstractmethod
    def subscribers(self) -> list[Subscriber]:
        """Return who subscribes; a subscriber is identified by its place here."""

    @abstractmethod
    def publications(self) -> Publications:
        """Return what is published."""

    def settings(self) -> dict[str, Any]:
        """Return the scenario's kind and fields, for a report."""
        return {"kind": self.kind, **{one.name: getattr(self, one.name) for one in fields(self)}}  # type: ignore[arg-type]

    def replication(self, most: int = 2_000) -> Replication:
        """Measure how many clients and brokers want a message, on up to `most` messages spread over the run."""
        publications = self.publications()
        if not len(publications):
            raise LabError(f"the workload {self.kind!r} publishes nothing: give it more time or a higher rate")
        truth = Truth(self.subscribers())
        step = max(1, len(publications) // most)
        chosen = list(range(0, len(publications), step))
        found = [truth.counts(publications.batch(chosen[at : at + _BLOCK])) for at in range(0, len(chosen), _BLOCK)]
        clients = np.concatenate([each[0] for each in found])
        brokers = np.concatenate([each[1] for each in found])
        return Replication(
            len(clients),
            float(clients.mean()),
            float(brokers.mean()),
            float(clients.var()),
            float((clients == 0).mean()),
        )


def poisson_times(random: np.random.Generator, rates: tuple[float, float], seconds: float) -> NDArray[np.int64]:
    """Return times in microseconds of a Poisson process whose rate changes linearly from one value to another.

    Args:
        random: the source of randomness.
        rates: events per second at the beginning and at the end.
        seconds: how long it lasts.
    """
    first, last = rates
    if not (first >= 0 and last >= 0 and seconds > 0):
        raise LabError(f"rates are 0 or more and times above 0, not {first:g} to {last:g}/s for {seconds:g} s")
    expected = (first + last) / 2 * seconds
    if not expected <= MAX_MESSAGES:
        raise LabError(f"some {expected:,.0f} messages; a workload publishes at most {MAX_MESSAGES:,}")
    shares = np.sort(random.random(random.poisson(expected)))
    if first == last:
        times = shares * seconds
    else:
        # The expected number up to t is first t + (last - first) t² / 2T; the times are where it reaches each share.
        slope = (last - first) / seconds
        times = (np.sqrt(first * first + 2 * slope * shares * expected) - first) / slope
    return np.asarray(times * MICROSECONDS_PER_SECOND).astype(np.int64)
