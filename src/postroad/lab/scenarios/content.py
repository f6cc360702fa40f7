"""B-DRP's clients: selectors of many constraints over news terms, Poisson publishers, and a rate that ramps up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from postroad.lab.bdrp import BdrpWorkload, deal
from postroad.lab.errors import LabError
from postroad.lab.scenarios.scenario import MAX_SUBSCRIBERS, Publications, Scenario, Subscriber, poisson_times
from postroad.messages import Draft

if TYPE_CHECKING:
    from postroad.messages import Value

__all__ = ["ContentScenario", "FewNamesScenario"]

TOPIC = "news"
# Names of one conjunction differ. With as many as this they still do after a few draws of 170.
MOST_CONSTRAINTS = 10
# The scenarios draw messages, predicates and times from separate streams: more messages do not change predicates.
_PREDICATES, _MESSAGES, _TIMES = range(3)


@dataclass(frozen=True)
class ContentScenario(Scenario):
    """Clients that want `filters` conjunctions each, spread evenly over the brokers; every client also publishes.

    Attributes:
        brokers: numbered from 1.
        clients: in all.
        filters: conjunctions of each client.
        constraints: the fewest and the most constraints of a conjunction; (1, 1) in the paper's comparative runs.
        rates: messages per second of each client, at the beginning and at the end.
        seconds: how long they publish.
        seed: of everything that is drawn.
    """

    kind: ClassVar[str] = "content"

    brokers: int = 8
    clients: int = 80
    filters: int = 20
    constraints: tuple[int, int] = (1, 1)
    rates: tuple[float, float] = (1.0, 100.0)
    seconds: float = 10.0
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        least, most = self.constraints
        if not 1 <= least <= most <= MOST_CONSTRAINTS:
            raise LabError(
                f"constraints: the fewest and the most, from 1 to {MOST_CONSTRAINTS}, not {least} and {most}"
            )
        if self.clients * self.filters > MAX_SUBSCRIBERS:
            raise LabError(f"filters: {self.clients * self.filters:,} in all; there may be {MAX_SUBSCRIBERS:,}")

    def subscribers(self) -> list[Subscriber]:
        """Return one subscription per client: its conjunctions, joined by OR."""
        least, most = self.constraints
        texts = BdrpWorkload(_seed(self.seed, _PREDICATES)).dealt(self.clients * self.filters, least, most).texts()
        return [
            Subscriber(
                1 + client % self.brokers,
                TOPIC,
                " OR ".join(f"({text})" for text in texts[client * self.filters : (client + 1) * self.filters]),
            )
            for client in range(self.clients)
        ]

    def publications(self) -> Publications:
        """Messages of ten attributes."""
        random = np.random.default_rng([self.seed, _TIMES])
        first, last = self.rates
        at = poisson_times(random, (first * self.clients, last * self.clients), self.seconds)
        clients = random.integers(0, self.clients, len(at)).astype(np.int32)
        attributes = BdrpWorkload(_seed(self.seed, _MESSAGES)).messages(len(at)).attributes()
        return Publications(
            at, (1 + clients % self.brokers).astype(np.int32), clients, lambda row: Draft(TOPIC, attributes[row])
        )


def _seed(seed: int, stream: int) -> int:
    return 3 * seed + stream


@dataclass(frozen=True)
class FewNamesScenario(Scenario):
    """The single broker of B-DRP's Figure 3: few names, so that about every second client wants a message.

    The paper reports 27 of 50 clients with 4 one-constraint subscriptions each, which its own distributions cannot
    give. Integers below `values`, with its operators (80 % equality, 10 % each less and greater), give 27.2 for 9.
    As in the other runs these shares are held by each draw.

    Attributes:
        clients: of the one broker.
        filters: one-constraint subscriptions of each, joined by OR.
        names: of attributes; every message has all of them.
        values: integers from 0 up to this.
        rates: messages per second of all clients together, at the beginning and at the end.
        seconds: how long they publish.
        seed: of everything that is drawn.
    """

    kind: ClassVar[str] = "few-names"

    clients: int = 50
    filters: int = 4
    names: int = 10
    values: int = 9
    rates: tuple[float, float] = (100.0, 10_000.0)
    seconds: float = 5.0
    seed: int = 1

    def subscribers(self) -> list[Subscriber]:
        """All at broker 1."""
        random = np.random.default_rng([self.seed, _PREDICATES])
        count = self.clients * self.filters
        names, operators = deal(random, count, self.names), np.array(list("========<>"))[deal(random, count, 10)]
        values = np.zeros(count, np.int64)
        for operator in "=<>":
            chosen = operators == operator
            values[chosen] = deal(random, int(chosen.sum()), self.values)
        rows = zip(names.tolist(), operators.tolist(), values.tolist(), strict=True)
        texts = [f"count_{name} {how} {value}" for name, how, value in rows]
        return [
            Subscriber(1, TOPIC, " OR ".join(texts[first : first + self.filters]))
            for first in range(0, count, self.filters)
        ]

    def publications(self) -> Publications:
        """Messages that have every name."""
        random = np.random.default_rng([self.seed, _TIMES])
        at = poisson_times(random, self.rates, self.seconds)
        clients = random.integers(0, self.clients, len(at)).astype(np.int32)
        values = random.integers(0, self.values, (len(at), self.names)).tolist()
        names = [f"count_{name}" for name in range(self.names)]

        def draft(row: int) -> Draft:
            attributes: dict[str, Value] = dict(zip(names, values[row], strict=True))
            return Draft(TOPIC, attributes)

        return Publications(at, np.ones(len(at), np.int32), clients, draft)
