"""Routing on B-DRP's workload: messages and bytes per link of every strategy, live on 1 to 8 brokers, simulated on 42.

Clients, subscriptions and messages are those of the published experiments: 80 clients (420 on 42 brokers) with twenty
constraints each, messages of ten attributes, published evenly over the brokers. Up to 8 brokers run as services on
loopback with real sockets, and bytes are counted on the way between them; 42 run in virtual time. `drp` and `flood` run
on the published shapes, `tree` and `cluster` on hierarchies of as many brokers. `tree` and `cluster` decide by topic,
and this workload has one.

Every delivery is checked against exact matching: one that is missing, not wanted, or made twice stops the benchmark.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import platform
from collections import Counter
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.routing_core import tree_edges
from postroad.lab.bdrp import BdrpWorkload, Messages, matches
from postroad.lab.shapes import HIERARCHIES, SHAPES
from postroad.messages import Batch, Draft
from postroad.messages.encoder import encode_batch
from postroad.simulation.network import ROW_BYTES
from postroad.testing import broker_network
from postroad.testing.network_contract import LinkTraffic
from postroad.testing.real_network import RealNetwork
from postroad.testing.virtual_network import VirtualNetwork, as_text
from postroad.topology import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.messages import MessageId
    from postroad.testing import BrokerNetwork, Clock
    from postroad.topology import StrategyName

SEED = 11
TOPIC = "news"
PER_CLIENT = 20  # one-constraint conjunctions
LIVE = (1, 2, 4, 8)
LIVE_CLIENTS, LIVE_MESSAGES = 80, 4_000
SIMULATED = 42
SIMULATED_CLIENTS = 420
# Advertisements are paid once, messages again and again: the run lasts as long as 420 clients need who publish two
# messages a second for a minute. Strategies that advertise next to nothing need fewer for the same figures.
SIMULATED_MESSAGES: dict[StrategyName, int] = {"drp": 50_400, "flood": 4_200, "tree": 4_200, "cluster": 4_200}
BATCH = 50
STRATEGIES: tuple[StrategyName, ...] = ("drp", "flood", "tree", "cluster")
TARGETS = {"drp_vs_flood_bytes_8": 0.6, "drp_vs_shortest_path_tree_bytes_42": 1.1}


@dataclass(frozen=True)
class Load:
    """Who wants what, and what is published where.

    Attributes:
        homes: the broker of each client.
        selectors: what each client wants.
        drafts: the messages.
        entries: the broker where each enters, in blocks of BATCH.
        wanted: bool[message, client].
    """

    homes: list[int]
    selectors: list[str]
    drafts: list[Draft]
    entries: list[int]
    wanted: NDArray[np.bool_]

    def first(self, messages: int) -> Load:
        """The same with the first messages only."""
        return Load(self.homes, self.selectors, self.drafts[:messages], self.entries[:messages], self.wanted[:messages])

    def wanted_at(self, brokers: int) -> NDArray[np.bool_]:
        """bool[message, broker]: whether somebody there wants it."""
        found = np.zeros((len(self.drafts), brokers), np.bool_)
        for client, home in enumerate(self.homes):
            found[:, home - 1] |= self.wanted[:, client]
        return found


class Outcome(NamedTuple):
    """What a run of one strategy took.

    Attributes:
        messages: how many were published.
        links: how many there are.
        traffic: (from, to) -> what was sent, from the first handshake on.
        setting_up: the same, until the first message.
        deliveries: to clients.
        duplicates: messages that came to a broker again, and were dropped there.
        seconds: from the first message to the last delivery.
    """

    messages: int
    links: int
    traffic: dict[tuple[int, int], LinkTraffic]
    setting_up: dict[tuple[int, int], LinkTraffic]
    deliveries: int
    duplicates: int
    seconds: float

    @property
    def total(self) -> LinkTraffic:
        """Over all links."""
        return summed(self.traffic)

    @property
    def bytes(self) -> int:
        """All of them: messages, advertisements, handshakes, confirmations, heart-beats."""
        return self.total.data_bytes + self.total.control_bytes + self.total.other_bytes

    @property
    def per_message(self) -> float:
        """The bytes that a message costs, with its share in everything else."""
        return self.bytes / self.messages


def summed(traffic: dict[tuple[int, int], LinkTraffic]) -> LinkTraffic:
    return LinkTraffic(*(sum(column) for column in zip(*traffic.values(), strict=True))) if traffic else LinkTraffic()


def load(brokers: int, clients: int, messages: int) -> Load:
    """Draw the workload; the same for every strategy."""
    workload = BdrpWorkload(SEED + brokers)
    predicates = workload.predicates(clients * PER_CLIENT, least=1, most=1)
    drawn = workload.messages(messages)
    texts = predicates.texts()
    selectors = [
        " OR ".join(f"({text})" for text in texts[client * PER_CLIENT : (client + 1) * PER_CLIENT])
        for client in range(clients)
    ]
    truth = np.concatenate(
        [
            # A block at a time: the whole would take gigabytes.
            matches(predicates, Messages(drawn.names[start : start + 1_000], drawn.values[start : start + 1_000]))
            .reshape(-1, clients, PER_CLIENT)
            .any(axis=2)
            for start in range(0, messages, 1_000)
        ]
    )
    random = np.random.default_rng([SEED, brokers])
    blocks = random.integers(1, brokers + 1, -(-messages // BATCH))
    return Load(
        homes=[1 + client % brokers for client in range(clients)],
        selectors=selectors,
        drafts=[Draft(TOPIC, attributes) for attributes in drawn.attributes()],
        entries=np.repeat(blocks, BATCH)[:messages].tolist(),
        wanted=truth,
    )


async def measured(strategy: StrategyName, brokers: int, given: Load, clock: Clock) -> Outcome:
    """Run one strategy."""
    planned_tree, planned_cluster = HIERARCHIES[brokers]
    shape = {"tree": planned_tree, "cluster": planned_cluster}.get(strategy, SHAPES[brokers])
    plan = Plan.of(shape, "bench", strategy=strategy)
    messages = len(given.drafts)
    async with broker_network(plan, clock, seed=SEED) as network:
        for client, (home, selector) in enumerate(zip(given.homes, given.selectors, strict=True)):
            await network.subscribe(home, TOPIC, selector, name=str(client))
        await network.settled()
        setting_up = network.traffic()
        started = perf_counter()
        ids: list[MessageId] = []
        for start in range(0, messages, BATCH):
            print(f"  {brokers} brokers, {strategy}: {start:,} of {messages:,} messages   ", end="\r", flush=True)
            ids += await network.publish_many(given.entries[start], given.drafts[start : start + BATCH])
            if clock == "virtual":
                await network.run(0.005)
        await network.settled()
        seconds = perf_counter() - started
        deliveries = check(strategy, network, given, ids)
        again = duplicates(network, plan)
        return Outcome(messages, len(plan.links), network.traffic(), setting_up, deliveries, again, seconds)


def check(strategy: str, network: BrokerNetwork, given: Load, ids: list[MessageId]) -> int:
    """Every client got what it wants, once; returns how many deliveries that makes."""
    deliveries = 0
    for client in range(len(given.homes)):
        got = network.delivered(str(client))
        expected = [ids[row] for row in np.flatnonzero(given.wanted[:, client]).tolist()]
        if sorted(got) != sorted(expected):
            twice = len(got) - len(set(got))
            raise SystemExit(
                f"{strategy}: client {client} got {len(got)} messages, {twice} of them twice, and wants "
                f"{len(expected)}: this must never happen"
            )
        deliveries += len(got)
    return deliveries


def duplicates(network: BrokerNetwork, plan: Plan) -> int:
    """Messages that brokers got again."""
    found = 0
    for broker in plan.brokers:
        if isinstance(network, VirtualNetwork):
            found += network.simulated.relay(broker.number).statistics().duplicates
        elif isinstance(network, RealNetwork):
            relay = network.service(broker.number).dispatcher.core.relay
            found += 0 if relay is None else relay.statistics().duplicates
    return found


def lower_bound(brokers: int, given: Load) -> tuple[int, int]:
    """Packets and bytes of shortest-path trees to those who want a message, found apart from any broker.

    A message costs what it costs on a simulated link, without a share in the head of a frame and in sets.
    """
    edges = tree_edges(SHAPES[brokers])
    wanted = given.wanted_at(brokers)
    packets = size = 0
    for start in range(0, len(given.drafts), BATCH):
        block = [as_text(draft) for draft in given.drafts[start : start + BATCH]]
        _, lengths = encode_batch(Batch.build(block))
        for row, length in enumerate(lengths.tolist(), start):
            crossed = edges(given.entries[row], tuple((np.flatnonzero(wanted[row]) + 1).tolist()))
            packets += crossed
            size += crossed * (length + ROW_BYTES)
    return packets, size


def show(brokers: int, outcomes: dict[StrategyName, Outcome], given: Load, every_link: bool) -> None:
    """The table of one size."""
    drawn = len(given.drafts)
    print(
        f"\n{brokers} brokers, {len(given.homes)} clients; a message is wanted by "
        f"{given.wanted.sum() / drawn:.2f} clients at {given.wanted_at(brokers).sum() / drawn:.2f} brokers"
    )
    print(
        f"{'strategy':9}{'links':>6}{'messages':>10}{'packets/msg':>13}{'data':>14}{'adverts':>12}{'other':>11}"
        f"{'bytes/msg':>11}{'busiest link':>14}{'deliveries':>12}{'duplicates':>12}{'seconds':>9}"
    )
    for name, outcome in outcomes.items():
        total = outcome.total
        print(
            f"{name:9}{outcome.links:>6}{outcome.messages:>10,}{total.messages / outcome.messages:>13.2f}"
            f"{total.data_bytes:>14,}{total.control_bytes:>12,}{total.other_bytes:>11,}{outcome.per_message:>11,.0f}"
            f"{busiest(outcome):>14,}{outcome.deliveries:>12,}{outcome.duplicates:>12,}{outcome.seconds:>9.1f}"
        )
        for (one, other), sent in sorted(outcome.traffic.items()) if every_link else ():
            print(
                f"{'':9}{one:>3} to {other:<3}{sent.messages:>9,} messages{sent.data_bytes:>14,} bytes of data"
                f"{sent.control_bytes:>12,} of advertisements{sent.other_bytes:>11,} other"
            )


def busiest(outcome: Outcome) -> int:
    """Bytes on the link with the most, both ways."""
    both: Counter[tuple[int, int]] = Counter()
    for (one, other), sent in outcome.traffic.items():
        both[min(one, other), max(one, other)] += sent.data_bytes + sent.control_bytes + sent.other_bytes
    return max(both.values(), default=0)


def compare(
    brokers: int, clients: int, messages: dict[StrategyName, int], clock: Clock, every_link: bool
) -> tuple[dict[StrategyName, Outcome], Load]:
    """All strategies on one size; also the load of the longest run."""
    given = load(brokers, clients, max(messages.values()))
    outcomes = {
        strategy: asyncio.run(measured(strategy, brokers, given.first(count), clock))
        for strategy, count in messages.items()
    }
    show(brokers, outcomes, given, every_link)
    return outcomes, given


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="a tenth of the messages; the figures are worse for it")
    options.add_argument("--links", action="store_true", help="show every link")
    asked = options.parse_args()
    part = 10 if asked.quick else 1
    # Closing hundreds of connections at once is nothing to tell.
    logging.getLogger("postroad").setLevel(logging.ERROR)
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}")
    live = {}
    for brokers in LIVE:
        live[brokers], _ = compare(
            brokers, LIVE_CLIENTS, dict.fromkeys(STRATEGIES, LIVE_MESSAGES // part), "real", asked.links
        )
    counts = {strategy: count // part for strategy, count in SIMULATED_MESSAGES.items()}
    simulated, given = compare(SIMULATED, SIMULATED_CLIENTS, counts, "virtual", asked.links)
    packets, size = lower_bound(SIMULATED, given)
    messages = len(given.drafts)
    print(f"{'bound':9}{messages:>16,}{packets / messages:>13.2f}{size:>14,}{size / messages:>34,.0f}")
    drp = simulated["drp"]
    result = {
        "drp_vs_flood_bytes_8": round(live[8]["drp"].per_message / live[8]["flood"].per_message, 3),
        "drp_vs_flood_bytes_42": round(drp.per_message / simulated["flood"].per_message, 3),
        "drp_vs_shortest_path_tree_bytes_42": round(drp.bytes / size, 3),
        "drp_vs_shortest_path_tree_data_bytes_42": round(drp.total.data_bytes / size, 3),
        "drp_vs_shortest_path_tree_packets_42": round(drp.total.messages / packets, 3),
        "drp_advertisement_bytes_8": live[8]["drp"].total.control_bytes,
        "drp_advertisement_bytes_42": drp.total.control_bytes,
        "deliveries_checked": sum(each.deliveries for size in (*live.values(), simulated) for each in size.values()),
        "targets": TARGETS,
    }
    print()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
