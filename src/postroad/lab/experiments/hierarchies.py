"""Wihidum's graphs (University of Moratuwa): tree against cluster, one to five brokers, by topic."""

from __future__ import annotations

import itertools
import math
import random
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from postroad.broker import planned_strategy
from postroad.lab.experiments.experiment import Experiment, Finding, Plot, PlottedLine, Results, RunRequest, Trial
from postroad.lab.performance import Performance
from postroad.lab.scenarios import FloodScenario
from postroad.lab.simulated_stage import LAB_LIMITS, play_simulated
from postroad.simulation import LinkQuality, SimulatedNetwork
from postroad.topology import Plan, cluster, tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.lab.raw_events import RawEvents

__all__ = ["HierarchyExperiment"]

# One lab on one switch.
LAN = LinkQuality(delay_ms=(1, 1), bytes_per_ms=12_500)
# A cluster grows by one level for each broker, as the paper's did; a tree has two levels from two brokers on.
PLANS = {
    ("tree", brokers): Plan.of(tree(brokers, 4), f"tree-{brokers}", strategy="tree") for brokers in range(1, 6)
} | {
    ("cluster", brokers): Plan.of(shape, f"cluster-{brokers}", strategy="cluster")
    for brokers, shape in enumerate(
        [cluster(1, 0, 0, 0), cluster(1, 1, 0, 0), cluster(1, 1, 1, 0), cluster(1, 1, 1, 1), cluster(1, 1, 1, 2)],
        start=1,
    )
}
KINDS = ("tree", "cluster")
TOPICS = 200
# The brokers of Graphs 2 and 5.
COUNTS = (1, 2, 3)
# A flood comes within this time. At any scale it is so large, and so many subscribers are written to, that a broker
# cannot take it while it comes: a write to a socket is what costs most.
FLOOD_SECONDS, LEAST_FLOOD, LEAST_SUBSCRIBERS = 0.05, 4_000.0, 1_000
PACED_SECONDS = 10.0
_SETTLED_MS = 3_000


class HierarchyExperiment(Experiment):
    """Graphs 1 to 5: subscription and publication throughput, latency for the subscriber and for the network."""

    name: ClassVar[str] = "wihidum"
    title: ClassVar[str] = "tree against cluster, 1 to 5 brokers: subscriptions and publications by topic"
    source: ClassVar[str] = "Wihidum (University of Moratuwa), Graphs 1 to 5"
    scaled: ClassVar[str] = (
        "subscriptions and publications at each broker (80,000 and 16,000 at scale 1; a flood has 4,000 publications "
        "and 1,000 subscribers at least)"
    )
    small: ClassVar[float] = 0.02

    def trials(self, request: RunRequest) -> list[Trial]:
        found = []
        for kind in KINDS:
            for brokers in range(1, 6):
                each = max(10, round(80_000 * request.scale))
                play = partial(_subscribe, PLANS[kind, brokers], request, each)
                found.append(Trial(f"{kind}-{brokers}-subscribe", {"subscriptions": each}, play))
            for brokers in COUNTS:
                publications = 16_000 * request.scale
                for what, seconds, each_publishes, least in (
                    ("flood", FLOOD_SECONDS, max(LEAST_FLOOD, publications), LEAST_SUBSCRIBERS),
                    ("paced", PACED_SECONDS, max(10.0, publications), 10),
                ):
                    scenario = FloodScenario(
                        brokers,
                        TOPICS,
                        max(least, round(8_000 * request.scale)),
                        each_publishes,
                        seconds=seconds,
                        seed=request.seed,
                    )
                    publish = partial(_publish, PLANS[kind, brokers], request, scenario)
                    found.append(Trial(f"{kind}-{brokers}-{what}", {"workload": scenario.settings()}, publish))
        return found

    def findings(self, results: Results) -> list[Finding]:
        def figure(kind: str, brokers: int, what: str, name: str) -> float:
            return results.figure(f"{kind}-{brokers}-{what}", name)

        subscribed = {
            kind: [figure(kind, count, "subscribe", "subscriptions/s") for count in range(1, 6)] for kind in KINDS
        }
        carried = {kind: [figure(kind, count, "flood", "publications/s") for count in COUNTS] for kind in KINDS}
        client = [figure(kind, count, "subscribe", "subscriber's latency") for kind in KINDS for count in range(1, 6)]
        network = {kind: figure(kind, 3, "subscribe", "network's latency") for kind in KINDS}
        response = {kind: results.row("latency", f"{kind}-3-paced").get("mean_ms", float("nan")) for kind in KINDS}
        rises = {kind: [b / a for a, b in itertools.pairwise(rates)] for kind, rates in carried.items()}
        return [
            Finding(
                "Graph 1: subscription throughput rises with brokers in both; the cluster's is higher",
                f"at 1 and 5 brokers: tree {subscribed['tree'][0]:,.0f} and {subscribed['tree'][4]:,.0f}/s, "
                f"cluster {subscribed['cluster'][0]:,.0f} and {subscribed['cluster'][4]:,.0f}/s",
                results.verdict(
                    subscribed["cluster"][4] > 1.05 * subscribed["tree"][4] > subscribed["tree"][0],
                    *(f"{kind}-{count}-subscribe" for kind in KINDS for count in (1, 5)),
                ),
                "both rise with the brokers. A broker tells others of a topic once, however many subscribers it has: "
                "a flood of subscriptions is work for the brokers they come to and for hardly any other; the "
                "paper's brokers forwarded each",
            ),
            Finding(
                "Graph 2: publication throughput rises by about 70 % with each broker; the tree's is higher",
                f"with each broker: tree {_percents(rises['tree'])}, cluster {_percents(rises['cluster'])}; at 3 "
                f"brokers tree {carried['tree'][2]:,.0f}/s, cluster {carried['cluster'][2]:,.0f}/s",
                results.verdict(
                    carried["tree"][2] > 1.05 * carried["cluster"][2] and min(rises["tree"]) > 1.2,
                    *(f"{kind}-{count}-flood" for kind in KINDS for count in COUNTS),
                ),
                "every broker wants nearly every topic here, and each has as many subscribers: what one accepts all "
                "others deliver, too, whatever the shape, so that a broker more takes more messages in and has more "
                "to deliver; the paper does not say how its topics were spread",
            ),
            Finding(
                "Graph 3: the subscriber's latency is 9 to 17 ms, flat in size and topology",
                f"{1e3 * min(client):.2f} to {1e3 * max(client):.2f} ms on an idle network",
                results.verdict(
                    max(client) <= 1.5 * min(client),
                    *(f"{kind}-{count}-subscribe" for kind in KINDS for count in range(1, 6)),
                ),
                "the answer is given before anything is told to others; only the machines differ",
            ),
            Finding(
                "Graph 4: the network's latency of a subscription is higher in the cluster at 3 brokers",
                f"tree {1e3 * network['tree']:.0f} ms, cluster {1e3 * network['cluster']:.0f} ms",
                results.verdict(
                    network["cluster"] > 1.05 * network["tree"], *(f"{kind}-3-subscribe" for kind in KINDS)
                ),
                "most of it is the wait for the next tick of the first broker, every 50 ms; a level more adds a link "
                "of 1 ms and a control frame",
            ),
            Finding(
                "Graph 5: publications are processed sooner in the cluster than in the tree",
                f"mean time to delivery, 3 brokers: tree {response['tree']:.2f}, cluster {response['cluster']:.2f} ms",
                results.verdict(response["cluster"] < 0.95 * response["tree"], *(f"{kind}-3-paced" for kind in KINDS)),
                "a tree of three brokers has ways as short as a chain of three; the paper's explanation (upward hops "
                "without a filter) contradicts its own algorithm",
            ),
        ]

    def plots(self, results: Results) -> list[Plot]:
        graphs = (
            ("1", "subscribe", "subscriptions/s", 5, "Subscription throughput"),
            ("2", "flood", "publications/s", 3, "Publication throughput"),
            ("3", "subscribe", "subscriber's latency", 5, "Latency for the subscriber"),
            ("4", "subscribe", "network's latency", 5, "Latency for the network"),
        )
        made = [
            Plot(
                f"graph-{number}",
                title,
                "brokers",
                name if "/s" in name else "seconds",
                [
                    PlottedLine.of(
                        kind, [(count, results.figure(f"{kind}-{count}-{what}", name)) for count in range(1, most + 1)]
                    )
                    for kind in KINDS
                ],
                "",
                f"Graph {number} of the paper, for our brokers.",
            )
            for number, what, name, most, title in graphs
        ]
        waits = [
            PlottedLine.of(
                kind,
                [(count, results.row("latency", f"{kind}-{count}-paced").get("mean_ms", math.nan)) for count in COUNTS],
            )
            for kind in KINDS
        ]
        caption = "Graph 5 of the paper, for our brokers: from publication to delivery, on average."
        made.append(Plot("graph-5", "Latency of publications", "brokers", "milliseconds", waits, "", caption))
        return made

    def tables(self, results: Results) -> dict[str, list[dict[str, Any]]]:
        rows = []
        for kind in KINDS:
            for brokers in range(1, 6):
                subscribe, flood = f"{kind}-{brokers}-subscribe", f"{kind}-{brokers}-flood"
                waited = results.row("latency", f"{kind}-{brokers}-paced")
                rows.append(
                    {
                        "network": kind,
                        "brokers": brokers,
                        "subscriptions/s": _whole(results.figure(subscribe, "subscriptions/s")),
                        "subscriber's latency, ms": 1e3 * results.figure(subscribe, "subscriber's latency"),
                        "network's latency, ms": 1e3 * results.figure(subscribe, "network's latency"),
                        "publications/s offered": _whole(results.figure(flood, "publications offered/s")),
                        "publications/s": _whole(results.figure(flood, "publications/s")),
                        "publication to delivery, ms": waited.get("mean_ms", math.nan),
                    }
                )
        return {"Figures": rows}


def _whole(figure: float) -> int | str:
    return "" if math.isnan(figure) else round(figure)


def _percents(ratios: list[float]) -> str:
    return ", ".join(f"{ratio - 1:+.0%}" for ratio in ratios)


def _subscribe(plan: Plan, request: RunRequest, each: int, events: RawEvents, tell: Callable[[float], None]) -> None:
    """Play a flood of subscriptions at every broker, then single ones on an idle network."""
    net = SimulatedNetwork(
        plan.graph(),
        planned_strategy(plan),
        random.Random(request.seed),
        quality=LAN,
        service=request.service,
        limits=LAB_LIMITS,
    )
    net.run(_SETTLED_MS)
    draw = random.Random(request.seed)
    begun, answers = net.timeline.now, [0]
    for place in range(each):
        for broker in net.graph.brokers:
            topic = f"topic.{draw.randrange(TOPICS)}"
            net.offer_subscription(broker, f"s{place}", topic, "", answers.append)
    net.run(_SETTLED_MS + each)
    tell(0.7)
    done = max(max(answers), net.last_learned) - begun
    events.measure("subscriptions/s", each * len(plan.brokers) / (done / 1e6))
    waits, spread = [], []
    for place in range(20):
        net.run(_SETTLED_MS + draw.randrange(100))
        asked = net.timeline.now
        net.offer_subscription(net.graph.brokers[-1], f"fresh{place}", f"fresh.{place}", "", answers.append)
        net.run(_SETTLED_MS)
        waits.append((answers[-1] - asked) / 1e6)
        spread.append((max(answers[-1], net.last_learned) - asked) / 1e6)
    events.measure("subscriber's latency", sum(waits) / len(waits), "s")
    events.measure("network's latency", sum(spread) / len(spread), "s")
    tell(1.0)


def _publish(
    plan: Plan, request: RunRequest, scenario: FloodScenario, events: RawEvents, tell: Callable[[float], None]
) -> None:
    performance = Performance(plan, scenario, LAN, request.service, seed=request.seed, drain_seconds=10.0)
    play_simulated(performance, events, tell)
    count = len(scenario.publications())
    events.measure("publications offered/s", count / scenario.seconds, "messages/s")
    events.measure("publications/s", count / max(events.last_delivery / 1e6, 1e-6), "messages/s")
