"""Routing without sockets: packets per message and link for the four strategies, and what partitioning costs.

Interest is synthetic: 400 topics, each wanted by each broker with the probability that gives the calibrated replication
of B-DRP's workload (3.2 of 8 brokers, 17 of 42). The same interest and messages for every strategy, every delivery is
checked. `drp` and `flood` run on the paper's shapes, `tree` and `cluster` on hierarchies of the same number of brokers.
"""

from __future__ import annotations

import json
import platform
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from bench.stopwatch import Side, best_of
from postroad.lab.shapes import HIERARCHIES, SHAPES
from postroad.messages import Batch, Draft, MessageId
from postroad.routing import (
    Cluster,
    Destinations,
    Drp,
    Flood,
    InterestChange,
    Reaction,
    Routed,
    SeenIds,
    Strategy,
    Tree,
    partition,
)
from postroad.routing.destinations import bits_of
from postroad.topology import routes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from postroad.topology import Graph

    Interest = NDArray[np.bool_]  # [topics, brokers]

TOPICS = 400
MESSAGES = 4_000
BATCH = 50
SEED = 7
# Brokers -> the share of them that wants a message: 3.23 of 8 and 17.0 of 42 as calibrated; the same below 8.
SHARES = {1: 0.404, 2: 0.404, 4: 0.404, 8: 3.23 / 8, 42: 17.0 / 42}
ROWS = (1, 16, 256, 4_096)
ROUNDS = 7
SECONDS = 0.02


@dataclass
class Counts:
    """What a run took."""

    packets: Counter[tuple[int, int]] = field(default_factory=Counter)
    deliveries: int = 0
    useless: int = 0
    duplicates: int = 0
    control: int = 0


class Run:
    """Strategies joined by queues: whatever is sent arrives, in order, at once."""

    def __init__(self, graph: Graph, make: Callable[[int, Run], Strategy], wanted: Interest) -> None:
        self.wanted = wanted
        self.counts = Counts()
        self._queue: deque[Callable[[], None]] = deque()
        self.nodes = {number: make(number, self) for number in graph.brokers}
        for (one, other), cost in graph.links.items():
            self._react(one, self.nodes[one].link_up(other, cost, 0))
            self._react(other, self.nodes[other].link_up(one, cost, 0))
        self._drain()
        for number, node in self.nodes.items():
            topics = tuple(f"t.{topic}" for topic in np.flatnonzero(wanted[:, number - 1]).tolist())
            self._react(number, node.interest(InterestChange(repr(topics).encode(), topics), 0))
        self._drain()

    def interested(self, batch: Batch) -> Destinations:
        """Which brokers want each row: one set per topic that occurs."""
        topics = (batch.ids[:, 1] % np.uint64(TOPICS)).astype(np.int64)
        distinct, lines = np.unique(topics, return_inverse=True)
        words = self.wanted.shape[1] // 64 + 1
        sets = np.stack([bits_of((np.flatnonzero(self.wanted[topic]) + 1).tolist(), words) for topic in distinct])
        return Destinations(sets, lines.astype(np.int64))

    def publish(self, number: int, batch: Batch) -> None:
        self._carry_out(number, self.nodes[number].publish(batch, self.interested(batch), 0))
        self._drain()

    def _drain(self) -> None:
        while self._queue:
            self._queue.popleft()()

    def _react(self, number: int, reaction: Reaction) -> None:
        for link, frame in reaction.frames:
            self.counts.control += 1
            self._queue.append(
                lambda link=link, frame=frame: self._react(link, self.nodes[link].control(frame, number, 0))  # type: ignore[misc]
            )

    def _carry_out(self, number: int, routed: Routed) -> None:
        topics = (routed.batch.ids[routed.local, 1] % np.uint64(TOPICS)).astype(np.int64)
        wanted = int(np.count_nonzero(self.wanted[topics, number - 1]))
        self.counts.deliveries += wanted
        self.counts.useless += len(routed.local) - wanted
        self.counts.duplicates += routed.duplicates
        if routed.held is not None or routed.exhausted is not None:
            raise SystemExit("a message found no way in a network that is whole: this must never happen")
        for parcel in routed.parcels:
            self.counts.packets[number, parcel.link] += len(parcel.rows)
            batch = routed.batch.take(parcel.rows)
            self._queue.append(
                lambda parcel=parcel, batch=batch: self._carry_out(  # type: ignore[misc]
                    parcel.link, self.nodes[parcel.link].relay(batch, parcel.destinations, number, 0)
                )
            )


def strategies(brokers: int) -> dict[str, tuple[Graph, Callable[[int, Run], Strategy]]]:
    """Strategy -> its network and how to make one broker of it."""
    planned_tree, planned_cluster = HIERARCHIES[brokers]

    def matcher(pattern: str) -> Callable[[str], bool]:
        return lambda topic: topic == pattern

    return {
        "drp": (SHAPES[brokers], lambda number, run: Drp(number, 0)),
        "flood": (SHAPES[brokers], lambda number, run: Flood(number, 0)),
        "tree": (planned_tree.graph(), lambda number, run: Tree(number, 0, planned_tree.stations[number], matcher)),
        "cluster": (
            planned_cluster.graph(),
            lambda number, run: Cluster(number, 0, planned_cluster.stations[number], matcher),
        ),
    }


def batches(brokers: int) -> list[tuple[int, Batch]]:
    """(entry broker, batch): messages spread evenly over brokers and topics."""
    random = np.random.default_rng(SEED)
    found = []
    for start in range(0, MESSAGES, BATCH):
        number = int(random.integers(1, brokers + 1))
        tails = [int(tail) * TOPICS + int(random.integers(TOPICS)) for tail in range(start + 1, start + BATCH + 1)]
        drafts = [
            Draft(f"t.{tail % TOPICS}", id=MessageId(1, number, tail >> 16, tail & 0xFFFF), body=b"x") for tail in tails
        ]
        found.append((number, Batch.build(drafts)))
    return found


def tree_edges(graph: Graph) -> Callable[[int, tuple[int, ...]], int]:
    """Entry broker and destinations -> the links of the shortest paths between them: the bound, found apart."""
    around = {broker: graph.neighbours(broker) for broker in graph.brokers}
    hops = {broker: routes(broker, around) for broker in graph.brokers}

    @cache
    def edges(entry: int, destinations: tuple[int, ...]) -> int:
        used = set()
        for destination in destinations:
            here = entry
            while here != destination:
                following = hops[here].first_hop(destination)
                used.add((here, following))
                here = following
        return len(used)

    return edges


def shortest_path_tree_packets(graph: Graph, wanted: Interest, sent: list[tuple[int, Batch]]) -> int:
    """Packets over shortest-path trees from each entry broker to those who want a message."""
    edges = tree_edges(graph)
    destinations = [tuple((np.flatnonzero(line) + 1).tolist()) for line in wanted]
    return sum(
        edges(number, destinations[topic])
        for number, batch in sent
        for topic in (batch.ids[:, 1] % np.uint64(TOPICS)).astype(np.int64).tolist()
    )


def hop_diameter(graph: Graph) -> int:
    """The longest of the ways with the fewest hops."""
    around = {broker: dict.fromkeys(graph.neighbours(broker), 1) for broker in graph.brokers}
    return max(int(routes(broker, around).distances.max()) for broker in graph.brokers)


def compare(brokers: int) -> dict[str, float]:
    """Run all strategies on one size; packets per message of each, and the bound."""
    random = np.random.default_rng([SEED, brokers])
    wanted = random.random((TOPICS, brokers)) < SHARES[brokers]
    sent = batches(brokers)
    expected = sum(int(wanted[(batch.ids[:, 1] % np.uint64(TOPICS)).astype(np.int64)].sum()) for _, batch in sent)
    graph = SHAPES[brokers]
    print(
        f"\n{brokers} brokers, {len(graph.links)} links, diameter {hop_diameter(graph)}; "
        f"a message is wanted at {expected / MESSAGES:.2f} brokers; {MESSAGES:,} messages"
    )
    print(
        f"{'strategy':10}{'links':>7}{'packets/msg':>13}{'per link':>10}{'busiest':>10}"
        f"{'useless/msg':>13}{'duplicates/msg':>16}{'control frames':>16}"
    )
    means: dict[str, float] = {}
    for name, (network, make) in strategies(brokers).items():
        run = Run(network, make, wanted)
        for number, batch in sent:
            run.publish(number, batch)
        counts = run.counts
        if counts.deliveries != expected:
            raise SystemExit(f"{name}: {counts.deliveries} deliveries, {expected} expected: this must never happen")
        links = max(1, len(network.links))
        both_ways: Counter[tuple[int, int]] = Counter()
        for (one, other), packets in counts.packets.items():
            both_ways[min(one, other), max(one, other)] += packets
        means[name] = counts.packets.total() / MESSAGES
        print(
            f"{name:10}{len(network.links):>7}{means[name]:>13.2f}{means[name] / links:>10.3f}"
            f"{max(both_ways.values(), default=0) / MESSAGES:>10.3f}{counts.useless / MESSAGES:>13.2f}"
            f"{counts.duplicates / MESSAGES:>16.2f}{counts.control:>16,}"
        )
    means["bound"] = shortest_path_tree_packets(graph, wanted, sent) / MESSAGES
    print(f"{'bound':10}{len(graph.links):>7}{means['bound']:>13.2f}   shortest-path trees to those who want a message")
    return means


def partition_costs() -> dict[int, dict[str, float]]:
    """Rows in a batch -> nanoseconds per row of splitting, relaying and remembering."""
    graph = SHAPES[42]
    around = {broker: graph.neighbours(broker) for broker in graph.brokers}
    hub = max(graph.brokers, key=lambda broker: len(graph.neighbours(broker)))
    ways = routes(hub, around)
    random = np.random.default_rng(SEED)
    wanted = random.random((64, 42)) < SHARES[42]
    sets = np.stack([bits_of((np.flatnonzero(line) + 1).tolist(), ways.words) for line in wanted])
    print(f"\nsplitting at a broker with {len(ways.neighbours)} links, up to 64 distinct sets; ns per row")
    print(f"{'rows':>8}{'partition':>12}{'window of ids':>16}")
    costs: dict[int, dict[str, float]] = {}
    for rows in ROWS:
        lines = random.integers(0, min(rows, 64), rows)
        destinations = Destinations(sets[: int(lines.max()) + 1], lines)
        everywhere = np.zeros(len(destinations.sets), np.bool_)
        splitting = Side(lambda given, flags=everywhere: partition(given, ways.masks, flags), [destinations], SECONDS)  # type: ignore[misc]
        costs[rows] = {
            name: 1e9 * seconds / rows
            for name, seconds in best_of(ROUNDS, {"partition": splitting, "window": window_side(rows)}).items()
        }
        print(f"{rows:>8,}{costs[rows]['partition']:>12.1f}{costs[rows]['window']:>16.1f}")
    return costs


def window_side(rows: int) -> Side:
    """Remembering ids, each seen for the first time."""
    seen = SeenIds()
    ids = np.empty((rows, 2), np.uint64)
    ids[:, 0] = 1 << 32 | 1
    places = np.arange(rows, dtype=np.int64)
    moment = 0

    def admit(_: object) -> None:
        nonlocal moment
        ids[:, 1] = np.arange(moment, moment + rows, dtype=np.uint64)
        moment += rows
        seen.admit(ids, places, 0)

    return Side(admit, [None], SECONDS)


def main() -> None:
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}")
    means = {brokers: compare(brokers) for brokers in SHAPES}
    costs = partition_costs()
    result = {
        "drp_vs_flood_packets_8": round(means[8]["drp"] / means[8]["flood"], 3),
        "drp_vs_flood_packets_42": round(means[42]["drp"] / means[42]["flood"], 3),
        "drp_vs_shortest_path_tree_packets_8": round(means[8]["drp"] / means[8]["bound"], 3),
        "drp_vs_shortest_path_tree_packets_42": round(means[42]["drp"] / means[42]["bound"], 3),
        "tree_packets_42": round(means[42]["tree"], 2),
        "cluster_packets_42": round(means[42]["cluster"], 2),
        "partition_ns_per_row_256": round(costs[256]["partition"], 1),
        "partition_ns_per_row_4096": round(costs[4_096]["partition"], 1),
        "window_ns_per_row_4096": round(costs[4_096]["window"], 1),
    }
    print()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
