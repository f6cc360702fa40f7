"""Beyond the papers: all strategies on a thousand brokers, failures, and where link state costs more than it saves."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from postroad.lab.experiments.content import deliveries_table
from postroad.lab.experiments.experiment import Experiment, Finding, Plot, PlottedLine, Results, RunRequest, Trial
from postroad.lab.performance import Performance
from postroad.lab.scenarios import DescribedScenario, FloodScenario
from postroad.lab.scenarios.workload_file import DrawnValue, PublisherGroup, SubscriberGroup
from postroad.lab.shapes import plan_for
from postroad.lab.simulated_stage import play_simulated, simulated_network
from postroad.simulation import LinkQuality
from postroad.topology import HIERARCHICAL, STRATEGY_NAMES, Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from postroad.lab.raw_events import RawEvents
    from postroad.simulation import SimulatedNetwork
    from postroad.topology import Plan, StrategyName

__all__ = ["CrossoverExperiment", "FailureExperiment", "ThousandExperiment"]

WIDE = LinkQuality(delay_ms=(1, 10), bytes_per_ms=10_000)
# A network that still loses what is published in this time before the end has not recovered.
END_SECONDS = 0.25


class ThousandExperiment(Experiment):
    """All strategies on 1,000 brokers, by topic; about eight of them want a topic."""

    name: ClassVar[str] = "thousand"
    title: ClassVar[str] = "all strategies on 1,000 brokers"
    source: ClassVar[str] = "beyond the papers; B-DRP says that it is meant for hundreds to thousands of routers"
    scaled: ClassVar[str] = "messages (2,000 at scale 1)"
    small: ClassVar[float] = 0.05

    BROKERS = 1_000

    def trials(self, request: RunRequest) -> list[Trial]:
        found = []
        for strategy in STRATEGY_NAMES:
            scenario = FloodScenario(
                brokers=self.BROKERS,
                topics=self.BROKERS // 4,
                subscriptions=2,
                publications_each=2 * request.scale,
                seconds=2.0,
                seed=request.seed,
            )
            performance = Performance(
                plan_for(strategy, self.BROKERS), scenario, WIDE, request.service, agreed=True, drain_seconds=5.0
            )
            parameters = {"strategy": strategy, "workload": scenario.settings()}
            found.append(Trial(strategy, parameters, partial(play_simulated, performance)))
        return found

    def findings(self, results: Results) -> list[Finding]:
        rows = {row["cell"]: row for row in results.rows("completeness")}
        lost = {cell: row["missing"] for cell, row in rows.items()}
        packets = {
            cell: sum(row["messages"] for row in results.rows("link_use", cell)) / max(1, rows[cell]["accepted"])
            for cell in rows
        }
        by_brokers = ", ".join(f"{cell} {count:,.1f}" for cell, count in packets.items())
        least = min(packets, key=lambda cell: packets[cell], default="")
        return [
            Finding(
                "the algorithm is meant for hundreds to thousands of routers",
                "deliveries missing on 1,000 brokers: " + ", ".join(f"{cell} {count}" for cell, count in lost.items()),
                results.verdict(not any(lost.values()), *STRATEGY_NAMES),
                "every strategy delivers everything; they differ in what that costs",
            ),
            Finding(
                "destination sets make the delivery tree minimal",
                f"links crossed per message: {by_brokers}",
                results.verdict(least == "drp", *STRATEGY_NAMES),
                "drp takes shortest paths, and once what they share; paths of a tree are longer, and a flood takes "
                "every link",
            ),
        ]

    def tables(self, results: Results) -> dict[str, list[dict[str, Any]]]:
        return {"Deliveries and latency": deliveries_table(results)}


class FailureExperiment(Experiment):
    """Brokers and links are killed under load; those that die have no clients, so every loss is the network's."""

    name: ClassVar[str] = "failures"
    title: ClassVar[str] = "kill k of 20 brokers, or k of their links, under load"
    source: ClassVar[str] = "beyond the papers, which leave failures open"
    scaled: ClassVar[str] = "seconds of publishing (60 at scale 1); failures after a third of them"
    small: ClassVar[float] = 0.2

    BROKERS, RATE = 20, 300.0
    KILLS = (("brokers", 1), ("brokers", 3), ("links", 3))

    def trials(self, request: RunRequest) -> list[Trial]:
        return [
            self._trial(request, strategy, what, count) for strategy in STRATEGY_NAMES for what, count in self.KILLS
        ]

    def _trial(self, request: RunRequest, strategy: StrategyName, what: str, count: int) -> Trial:
        plan = plan_for(strategy, self.BROKERS)
        draw = random.Random(request.seed)
        victims = _victims(plan, draw, count) if what == "brokers" else []
        cut = draw.sample(sorted(plan.graph().links), count) if what == "links" else []
        living = [broker for broker in plan.graph().brokers if broker not in victims]
        seconds = 60 * request.scale
        scenario = DescribedScenario(
            self.BROKERS,
            seconds,
            request.seed,
            {"topic": DrawnValue(low=0, high=19)},
            (SubscriberGroup("topic.{topic}", 3 * len(living), brokers=living),),
            (PublisherGroup("topic.{topic}", len(living), self.RATE / len(living), body=100, brokers=living),),
        )
        at = round(seconds * 1_000 / 3)

        def fail(net: SimulatedNetwork) -> None:
            for broker in victims:
                net.crash(broker)
            for link in cut:
                if net.link(*link).up:
                    net.cut(*link)

        performance = Performance(
            plan,
            scenario,
            WIDE,
            request.service,
            seed=request.seed,
            drain_seconds=15.0,
            gather_us=1_000,
            happenings=((at, fail),),
        )

        def play(events: RawEvents, tell: Callable[[float], None]) -> None:
            events.measure("failure at", at / 1_000, "s")
            agreement = _Agreement(at)
            watched = replace(performance, happenings=(*performance.happenings, *agreement.looks()))
            play_simulated(watched, events, tell)
            events.measure("agreed after", agreement.after_s, "s")

        parameters = {"strategy": strategy, "killed": victims, "cut": cut, "at_ms": at}
        return Trial(f"{strategy}-{what}-{count}", parameters, play)

    def findings(self, results: Results) -> list[Finding]:
        return [self._finding(results, strategy) for strategy in STRATEGY_NAMES]

    def _finding(self, results: Results, strategy: StrategyName) -> Finding:
        rows = [row for row in self.tables(results)["Failures"] if row["cell"].startswith(f"{strategy}-")]
        lost = sum(row["lost"] for row in rows)
        twice = sum(row["twice"] for row in rows)
        late = sum(row["out of order"] for row in rows)
        times = [row["seconds to recover"] for row in rows]
        again = f"after {max(times, default=math.nan):.1f} s at most"
        if math.inf in times:
            again = f"by the end of the run in {sum(map(math.isfinite, times))} of them only"
        agreed = [row["seconds to agree"] for row in rows if not math.isnan(row["seconds to agree"])]
        ways = f"; all brokers agree on the links that are left after {max(agreed):.2f} s at most" if agreed else ""
        reasons = {
            "drp": "a message in the memory of a broker that dies is gone under `relay`; `custody` would keep it",
            "flood": "where several ways lead to a broker, one that breaks loses nothing",
            "tree": "there is one way between two brokers; children of a dead parent attach elsewhere after a while",
            "cluster": "the deputy of a controller takes over; a broker that is cut off from every parent that its "
            "plan names has no other way",
        }
        return Finding(
            "not stated (the papers do not measure failures)",
            f"{strategy}: {lost:,} deliveries lost, {twice} made twice, {late} out of order in {len(rows)} runs; "
            f"complete again {again}{ways}",
            None,
            reasons[strategy],
        )

    def tables(self, results: Results) -> dict[str, list[dict[str, Any]]]:
        found = []
        for row in results.rows("completeness"):
            cell = row["cell"]
            failed = results.figure(cell, "failure at")
            missing = max((one["last_missing_at"] / 1e6 for one in results.rows("losses", cell)), default=failed)
            # What is still missing of the last messages was never to come.
            recovered = missing < row["seconds"] - END_SECONDS or not row["missing"]
            after = [one for one in results.rows("link_time", cell) if one["at"] / 1e6 >= failed]
            found.append(
                {
                    "cell": cell,
                    "wanted": row["wanted"],
                    "lost": row["missing"],
                    "twice": row["doubled"],
                    "out of order": row["disordered"],
                    "seconds to recover": round(max(0.0, missing - failed), 2) if recovered else math.inf,
                    "seconds to agree": round(results.figure(cell, "agreed after"), 2),
                    "control bytes after it": sum(one["control_bytes"] for one in after),
                }
            )
        return {"Failures": found}


class _Agreement:
    """When all brokers agree on the existing links after a failure; never, if they spread no link state."""

    STEP_MS, MOST_MS = 50, 15_000

    def __init__(self, failed_ms: int) -> None:
        self._failed = failed_ms
        self.after_s = float("nan")

    def looks(self) -> Iterator[tuple[int, Callable[[SimulatedNetwork], None]]]:
        """Yield checks of the network, each with its time."""
        for after in range(self.STEP_MS, self.MOST_MS, self.STEP_MS):
            yield self._failed + after, partial(self._look, after)

    def _look(self, after: int, net: SimulatedNetwork) -> None:
        states = [net.relay(broker).strategy.link_state for broker in net.running]
        if not math.isnan(self.after_s) or any(state is None for state in states):
            return
        up: dict[int, set[int]] = {broker: set() for broker in net.running}
        for (here, there), way in net.links().items():
            if way.up and {here, there} <= up.keys():
                up[here].add(there)
        if all(state is not None and _linked(state.graph(), up) for state in states):
            self.after_s = after / 1_000


def _linked(known: Mapping[int, Mapping[int, int]], up: Mapping[int, set[int]]) -> bool:
    """Return whether a broker knows exactly the links that are up."""
    return all(set(known.get(broker, ())) == others for broker, others in up.items())


def _victims(plan: Plan, draw: random.Random, count: int) -> list[int]:
    """Return brokers whose death leaves the others connected in the plan's graph, or able to attach in a hierarchy."""
    graph = plan.graph()
    # The top of a hierarchy stays: without it there is no route at all for seconds, whatever else happens.
    able = [broker.number for broker in plan.brokers if broker.parents or plan.strategy not in HIERARCHICAL]
    while True:
        chosen = sorted(draw.sample(able, count))
        left = [broker for broker in graph.brokers if broker not in chosen]
        links = {ends: cost for ends, cost in graph.links.items() if not set(ends) & set(chosen)}
        if plan.strategy in HIERARCHICAL or Graph(left, links).is_connected:
            return chosen


class CrossoverExperiment(Experiment):
    """What link state and advertisements cost against the size of the network, its churn and its traffic."""

    name: ClassVar[str] = "crossover"
    title: ClassVar[str] = "where drp stops paying: link state and advertisements against size, churn and traffic"
    source: ClassVar[str] = "beyond the papers"
    scaled: ClassVar[str] = "the largest network (160 brokers at scale 1), in steps of a factor of two"
    small: ClassVar[float] = 0.5

    SIZES = (10, 20, 40, 80, 160)
    # Changes of subscriptions at one broker, per hour.
    CHURN = (0, 60, 3_600)
    SHARE = 0.1
    MESSAGES = 100

    def trials(self, request: RunRequest) -> list[Trial]:
        return [
            Trial(
                f"{strategy}-{size}",
                {"brokers": size, "strategy": strategy},
                partial(self._play, request, strategy, size),
            )
            for size in self.SIZES
            if size <= max(20, 160 * request.scale)
            for strategy in ("drp", "flood", "tree")
        ]

    def _play(
        self, request: RunRequest, strategy: StrategyName, size: int, events: RawEvents, tell: Callable[[float], None]
    ) -> None:
        topics = max(4, size)
        scenario = FloodScenario(
            size, topics, max(1, round(topics * self.SHARE)), self.MESSAGES, seconds=10.0, seed=request.seed
        )
        net = simulated_network(Performance(plan_for(strategy, size), scenario, WIDE, seed=request.seed))
        draw = random.Random(request.seed)

        def control() -> int:
            return sum(way.control_bytes for way in net.links().values())

        tell(0.2)
        before = control()
        net.run(60_000)
        events.measure("bytes/s at rest", (control() - before) / 60, "bytes/s")
        tell(0.6)
        before = control()
        for place in range(10):
            net.subscribe(draw.choice(net.graph.brokers), f"churn-{place}", f"other.{place}", "price > 20")
            net.run(1_000)
        events.measure("bytes per subscription", (control() - before) / 10, "bytes")
        events.measure("bytes per message", self._data(net, draw, topics), "bytes")
        events.measure("brokers", size)
        tell(1.0)

    def _data(self, net: SimulatedNetwork, draw: random.Random, topics: int) -> float:
        def data() -> int:
            return sum(way.bytes - way.control_bytes for way in net.links().values())

        before = data()
        for _ in range(self.MESSAGES):
            net.publish(draw.choice(net.graph.brokers), [(f"topic.{draw.randrange(topics)}", {}, {}, b"x" * 200)])
            net.run(20)
        net.run(2_000)
        return (data() - before) / self.MESSAGES

    def crossings(self, results: Results, against: str, churn: float) -> list[tuple[int, float]]:
        """Return (brokers, messages per second in the whole network above which drp moves fewer bytes than another)."""
        found = []
        for size in self.SIZES:
            drp, other = f"drp-{size}", f"{against}-{size}"
            if not results.has(drp, other):
                continue
            saved = results.figure(other, "bytes per message") - results.figure(drp, "bytes per message")
            changes = churn * size / 3_600
            extra = results.figure(drp, "bytes/s at rest") - results.figure(other, "bytes/s at rest")
            extra += changes * (
                results.figure(drp, "bytes per subscription") - results.figure(other, "bytes per subscription")
            )
            found.append((size, max(extra, 1e-3) / saved if saved > 0 else float("inf")))
        return found

    def findings(self, results: Results) -> list[Finding]:
        found = []
        for against in ("flood", "tree"):
            for churn in self.CHURN:
                crossings = self.crossings(results, against, churn)
                by_brokers = ", ".join(
                    f"{size}: {'never' if rate == float('inf') else f'{rate:,.2f}/s'}" for size, rate in crossings
                )
                found.append(
                    Finding(
                        "not stated",
                        f"drp moves fewer bytes than {against} from this many messages/s in the whole network on, with "
                        f"{churn:,} changes of subscriptions an hour at each broker; by brokers: {by_brokers}",
                        None,
                        "link state is repeated to everybody every 30 s, and each change is told to everybody once",
                    )
                )
        return found

    def plots(self, results: Results) -> list[Plot]:
        made = []
        for against in ("flood", "tree"):
            lines = []
            for churn in self.CHURN:
                points = [one for one in self.crossings(results, against, churn) if one[1] != float("inf")]
                if points:
                    lines.append(PlottedLine.of(f"{churn:,} changes an hour", points))
            caption = (
                f"Above a line drp moves fewer bytes over links than {against}, below it more. Messages have 200 bytes "
                "and are wanted at a tenth of the brokers or so."
            )
            title = f"Where drp pays against {against}"
            made.append(Plot(against, title, "brokers", "messages/s in all", lines, "xy", caption))
        costs = [
            PlottedLine.of(
                f"{strategy}: {what}",
                [
                    (size, results.figure(f"{strategy}-{size}", what))
                    for size in self.SIZES
                    if results.has(f"{strategy}-{size}")
                ],
                dashed=what != "bytes per message",
            )
            for strategy in ("drp", "flood", "tree")
            for what in ("bytes per message", "bytes per subscription")
        ]
        made.append(Plot("costs", "What things cost", "brokers", "bytes on all links", costs, "xy", ""))
        return made

    def tables(self, results: Results) -> dict[str, list[dict[str, Any]]]:
        names = ("bytes/s at rest", "bytes per subscription", "bytes per message")
        return {
            "Costs": [
                {"cell": cell, **{name: round(results.figure(cell, name)) for name in names}}
                for cell in results.cells
                if results.has(cell)
            ]
        }
