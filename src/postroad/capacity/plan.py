"""How many brokers a load needs, where to place them, and the resulting waiting times, memory and disk.

Three ways to place k brokers are compared:

- *spread*: clients are spread over k brokers of one network. A message enters at one of them and is relayed to those
  that want it: with `copies` subscribers spread at random, (k - 1)(1 - (1 - 1/k)^copies) other brokers.
- *publisher side*: every broker holds all subscriptions, and publishers are spread; a message enters one broker.
- *subscriber side*: subscribers are spread, and publishers send everything to every broker.

A broker is a `BatchServer` with the costs of a fit. Its utilisation counts the messages that enter and those that other
brokers relay to it, the copies for subscribers, and those for links. A message that passes h brokers waits at each: if
each exceeds its bound with probability (1 - p) / h, the sum exceeds the sum of the bounds with at most 1 - p.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from postroad.capacity.batches import BatchServer
from postroad.capacity.errors import CapacityError

if TYPE_CHECKING:
    from postroad.capacity.costs import BatchCosts

__all__ = ["Demand", "Option", "Placement", "Storage", "options", "recommend"]

# More brokers than this are not tried: divide a larger load and plan the parts.
MOST_BROKERS = 1_000
DAY_SECONDS = 86_400
# If more than this share of the other brokers wants a message, finding out which ones costs more than it saves.
FLOODED = 0.99
_APART = "brokers are not linked; {} of them"
# An index entry with its selector, as `scripts/bench matching` measures it: 214 to 293 bytes, plus the session's part.
SUBSCRIPTION_BYTES = 1_000
# An idle broker process with numpy, numba and pyarrow loaded.
BASE_BYTES = 250 << 20


class Demand(NamedTuple):
    """What a network has to carry.

    Attributes:
        rate: messages per second, over all publishers.
        subscriptions: over all subscribers.
        copies: subscribers of a message, on average.
        size: bytes of a message, on average.
        p99: seconds within which 99 % of messages have to reach their subscribers' sockets.
        utilisation: the most that a broker may use of its capacity; the rest is for bursts and failures.
    """

    rate: float
    subscriptions: float
    copies: float
    size: float
    p99: float
    utilisation: float = 0.7

    def check(self) -> None:
        """Refuse contradictory values.

        Raises:
            CapacityError: the text says why.
        """
        for name, value in self._asdict().items():
            if not math.isfinite(value):
                raise CapacityError(f"{name} is {value:g}: a plan needs a number that ends")
        if not self.rate > 0:
            raise CapacityError(f"a rate of {self.rate:g} messages/s needs no broker")
        if self.subscriptions < 0 or self.copies < 0 or self.size < 0:
            raise CapacityError("subscriptions, copies and sizes cannot be negative")
        if self.copies > self.subscriptions:
            raise CapacityError(
                f"a message cannot have {self.copies:g} copies where there are {self.subscriptions:g} subscriptions"
            )
        if not 0 < self.utilisation < 1:
            raise CapacityError(f"a utilisation of {self.utilisation:g} is not between 0 and 1")
        if not self.p99 > 0:
            raise CapacityError(f"no message can be delivered within {self.p99:g} s")


class Storage(NamedTuple):
    """Bytes that a message leaves on disk.

    Attributes:
        record: of its record, at each broker that it passes: 14 for scattered ids, far less for runs of one publisher.
        durable: of the message itself where it is stored, as a factor of its size; 0 without durable subscriptions.
    """

    record: float = 14.0
    durable: float = 0.0


class Placement(NamedTuple):
    """Where brokers are placed, as seen by one of them.

    Attributes:
        name: "spread", "publisher side" or "subscriber side".
        arrivals: of a message, over all brokers: 1 where it enters, and 1 for each broker it is relayed to.
        sends: copies over all brokers, to subscribers and on links.
        resident: the share of subscriptions that lives at one broker.
        hops: brokers that a message passes one after the other on its way to a subscriber.
        strategy: how brokers should route; "none" if they are not linked.
        reason: why, and what clients have to do.
    """

    name: str
    arrivals: float
    sends: float
    resident: float
    hops: int
    strategy: str
    reason: str


class Option(NamedTuple):
    """One way to carry a demand.

    Attributes:
        placement: where the brokers stand.
        brokers: how many.
        utilisation: of each.
        p50: seconds from a message's arrival until it reaches its subscribers' sockets; an upper bound, like p99.
        p99: the same.
        capacity: messages per second that the brokers carry at the demanded utilisation.
        memory: bytes of each broker's process, queues not included.
        record_per_day: bytes of the record, all brokers.
        durable_per_day: bytes of stored messages, all brokers.
        problem: why it does not keep the promise; None if it does.
    """

    placement: Placement
    brokers: int
    utilisation: float
    p50: float
    p99: float
    capacity: float
    memory: float
    record_per_day: float
    durable_per_day: float
    problem: str | None


def placements(demand: Demand, brokers: int) -> list[Placement]:
    """Return the ways to place this many brokers."""
    others = (brokers - 1) * (1 - (1 - 1 / brokers) ** demand.copies)
    if brokers == 1:
        return [
            Placement("spread", 1.0, demand.copies, 1.0, 1, "none", "one broker carries it, so there is no routing")
        ]
    if others > FLOODED * (brokers - 1):
        strategy, why = "flood", "all brokers want nearly every message, and flood has nothing to tell of who does"
    else:
        strategy, why = (
            "drp",
            f"on average {others:.2g} of {brokers - 1} other brokers want a message, and drp asks no more",
        )
    return [
        Placement("spread", 1 + others, demand.copies + others, 1 / brokers, 2, strategy, why),
        Placement("publisher side", 1.0, demand.copies, 1.0, 1, "none", _APART.format("subscribers subscribe at all")),
        Placement(
            *("subscriber side", float(brokers), demand.copies, 1 / brokers, 1, "none"),
            _APART.format("publishers publish at all"),
        ),
    ]


def evaluate(demand: Demand, costs: BatchCosts, placement: Placement, brokers: int, storage: Storage) -> Option:
    """Return what a placement gives."""
    resident = placement.resident * demand.subscriptions
    arrivals = placement.arrivals / brokers
    each = _seconds_of_one_broker(demand, costs, placement, brokers)
    used = demand.rate * each
    p50, p99 = math.inf, math.inf
    problem = None
    if used < 1:
        server = BatchServer(demand.rate * arrivals, costs.fixed(placement.sends / placement.arrivals), each / arrivals)
        hops = placement.hops
        p50, p99 = (hops * server.response_quantile(1 - (1 - p) / hops) for p in (0.5, 0.99))
    if used > demand.utilisation:
        problem = f"each broker would use {100 * used:.3g} % of its capacity, more than {100 * demand.utilisation:g} %"
    elif p99 > demand.p99:
        problem = f"the 99 % quantile would be {1e3 * p99:.3g} ms, more than {1e3 * demand.p99:.3g} ms"
    return Option(
        placement,
        brokers,
        used,
        p50,
        p99,
        demand.utilisation / each,
        BASE_BYTES + resident * SUBSCRIPTION_BYTES,
        DAY_SECONDS * demand.rate * placement.arrivals * storage.record,
        DAY_SECONDS * demand.rate * placement.arrivals * storage.durable * demand.size,
        problem,
    )


def _seconds_of_one_broker(demand: Demand, costs: BatchCosts, placement: Placement, brokers: int) -> float:
    """Return what a message of the whole network costs each broker, beyond the cost of batches."""
    resident = placement.resident * demand.subscriptions
    each = placement.arrivals / brokers * costs.marginal(resident, placement.sends / placement.arrivals, demand.size)
    if each <= 0:
        raise CapacityError("by these costs a message costs nothing: fit them to more varied batches first")
    return each


def options(demand: Demand, costs: BatchCosts, storage: Storage | None = None) -> list[Option]:
    """Return for each placement the fewest brokers that keep the promise, or the best that was found.

    Raises:
        CapacityError: the demand contradicts itself, or no number of brokers can keep its promise; the text says why.
    """
    demand.check()
    stored = storage or Storage()
    if costs.batch > demand.p99:
        raise CapacityError(
            f"a single batch takes {1e3 * costs.batch:.3g} ms: no number of brokers delivers within "
            f"{1e3 * demand.p99:.3g} ms"
        )
    found: dict[str, Option] = {}
    for brokers in _numbers():
        for placement in placements(demand, brokers):
            known = found.get(placement.name)
            if known is not None and known.problem is None:
                continue
            # Waits take long to compute, and are useless if too few brokers share the work.
            used = demand.rate * _seconds_of_one_broker(demand, costs, placement, brokers)
            if known is None or used <= demand.utilisation or brokers == MOST_BROKERS:
                found[placement.name] = evaluate(demand, costs, placement, brokers, stored)
        if all(option.problem is None for option in found.values()) and len(found) > 1:
            break
        if brokers == 1 and found["spread"].problem is None:
            break
    return list(found.values())


def recommend(found: list[Option]) -> Option:
    """Return the option with the fewest brokers that keeps the promise; among equals, the least used one.

    Raises:
        CapacityError: none does.
    """
    kept = [option for option in found if option.problem is None]
    if not kept:
        raise CapacityError(
            f"no placement of up to {MOST_BROKERS:,} brokers keeps the promise: "
            + "; ".join(f"{option.placement.name}: {option.problem}" for option in found)
        )
    return min(kept, key=lambda option: (option.brokers, option.utilisation))


def _numbers() -> list[int]:
    """Return which numbers of brokers are tried: every number up to 32, then in steps of an eighth."""
    numbers = list(range(1, 33))
    while numbers[-1] < MOST_BROKERS:
        numbers.append(min(MOST_BROKERS, math.ceil(numbers[-1] * 1.125)))
    return numbers
