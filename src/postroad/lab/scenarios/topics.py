"""Scenarios by topic: the tracking paper's broker, Fiorano's filters that do not match, and Wihidum's floods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from postroad.lab.errors import LabError
from postroad.lab.scenarios.scenario import MAX_SUBSCRIBERS, Publications, Scenario, Subscriber, poisson_times
from postroad.messages import Draft

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FilterGridScenario", "FloodScenario", "TrackedScenario"]

_SUBSCRIBERS, _TIMES = range(2)


def drawn_subscribers(seed: int, topics: int, count: int, brokers: int) -> list[Subscriber]:
    """Return subscribers to one topic each, drawn evenly, at the brokers in turn."""
    if count > MAX_SUBSCRIBERS:
        raise LabError(f"{count:,} subscribers; a workload has at most {MAX_SUBSCRIBERS:,}")
    drawn = np.random.default_rng([seed, _SUBSCRIBERS]).integers(0, topics, count)
    return [Subscriber(1 + place % brokers, f"topic.{topic}") for place, topic in enumerate(drawn.tolist())]


def publications_by_topic(
    at: NDArray[np.int64], clients: NDArray[np.int32], brokers: int, topics: NDArray[np.int64], body: int
) -> Publications:
    """Return messages of some bytes without attributes; clients are assigned to the brokers in turn."""
    names, text = topics.tolist(), b"x" * body
    return Publications(
        at, (1 + clients % brokers).astype(np.int32), clients, lambda row: Draft(f"topic.{names[row]}", {}, body=text)
    )


@dataclass(frozen=True)
class TrackedScenario(Scenario):
    """The tracking paper's load: publishers with ten topics each, subscribers with one; some topics have nobody.

    Attributes:
        publishers: of all brokers together, assigned in turn.
        rate: messages per second of each.
        topics: in all.
        topics_each: that a publisher publishes to.
        subscribers_count: of all brokers together, assigned in turn.
        brokers: one in the paper.
        body: bytes of a message's body.
        seconds: how long they publish.
        seed: of everything that is drawn.
    """

    kind: ClassVar[str] = "tracked"

    publishers: int = 200
    rate: float = 25.0
    topics: int = 500
    topics_each: int = 10
    subscribers_count: int = 500
    brokers: int = 1
    body: int = 100
    seconds: float = 30.0
    seed: int = 1

    def subscribers(self) -> list[Subscriber]:
        """Each wants one topic, drawn evenly."""
        return drawn_subscribers(self.seed, self.topics, self.subscribers_count, self.brokers)

    def publications(self) -> Publications:
        """Poisson processes; a publisher takes its topics in turn, and all topics have equally many publishers."""
        random = np.random.default_rng([self.seed, _TIMES])
        total = self.rate * self.publishers
        at = poisson_times(random, (total, total), self.seconds)
        clients = random.integers(0, self.publishers, len(at)).astype(np.int32)
        turns = random.integers(0, self.topics_each, len(at))
        topics = (clients * self.topics_each + turns) % self.topics
        return publications_by_topic(at, clients, self.brokers, topics, self.body)


@dataclass(frozen=True)
class FilterGridScenario(Scenario):
    """One cell of Menth and Henjes' grid: `copies` filters that match every message, and `others` that match none.

    Attributes:
        others: n, filters that do not match.
        copies: R, filters that do.
        distinct: whether the filters that do not match are all different; the paper found no difference.
        rate: messages per second.
        seconds: how long they are published.
        seed: of the times.
    """

    kind: ClassVar[str] = "filter-grid"
    may_be_zero: ClassVar[frozenset[str]] = frozenset({"seed", "others", "copies"})

    others: int = 5
    copies: int = 1
    distinct: bool = True
    rate: float = 1_000.0
    seconds: float = 1.0
    seed: int = 1

    def subscribers(self) -> list[Subscriber]:
        """The matching ones first."""
        matching = [Subscriber(1, "load", "correlation = '#0'")] * self.copies
        numbers = range(1, self.others + 1) if self.distinct else [1] * self.others
        return matching + [Subscriber(1, "load", f"correlation = '#{number}'") for number in numbers]

    def publications(self) -> Publications:
        """Empty bodies, one correlation id."""
        at = poisson_times(np.random.default_rng([self.seed, _TIMES]), (self.rate, self.rate), self.seconds)
        message = Draft("load", {"correlation": "#0"})
        return Publications(at, np.ones(len(at), np.int32), np.zeros(len(at), np.int32), lambda _: message)


@dataclass(frozen=True)
class FloodScenario(Scenario):
    """Wihidum's floods: so many subscriptions and so many publications at every broker, by topic.

    Attributes:
        brokers: numbered from 1.
        topics: in all.
        subscriptions: at each broker.
        publications_each: at each broker on average, spread evenly over `seconds`.
        body: bytes of a message's body.
        seconds: how long they publish.
        seed: of everything that is drawn.
    """

    kind: ClassVar[str] = "flood"

    brokers: int = 3
    topics: int = 300
    subscriptions: int = 400
    publications_each: float = 2_000.0
    body: int = 100
    seconds: float = 1.0
    seed: int = 1

    def subscribers(self) -> list[Subscriber]:
        """The brokers in turn, topics drawn evenly."""
        return drawn_subscribers(self.seed, self.topics, self.brokers * self.subscriptions, self.brokers)

    def publications(self) -> Publications:
        """A Poisson process at each broker."""
        random = np.random.default_rng([self.seed, _TIMES])
        rate = self.brokers * self.publications_each / self.seconds
        at = poisson_times(random, (rate, rate), self.seconds)
        clients = random.integers(0, self.brokers, len(at)).astype(np.int32)
        topics = random.integers(0, self.topics, len(at))
        return publications_by_topic(at, clients, self.brokers, topics, self.body)
