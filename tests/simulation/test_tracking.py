"""Simulated networks with known truth: both readers find all that happened, and little else."""

from __future__ import annotations

import math
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.filters import shape_for
from postroad.messages import MessageId
from postroad.simulation import SimulatedNetwork
from postroad.topology import ring
from postroad.tracking import (
    BloomRecorder,
    ExactRecorder,
    HistorySettings,
    Reconstruction,
    SealedRecorder,
    Verdict,
    merged,
)
from postroad.trail import Trail, TrailWriter
from postroad.trail.coverage import GapReason
from tests.simulation.scene import SETTLED_MS, graphs, strategy

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.messages import Batch
    from postroad.topology import Graph
    from postroad.tracking import Findings, Journey

TOPICS = ("red", "green", "blue")
# Later than any clock that a reader allows for.
LONG_AFTER_MS = 60_000


class Witness:
    """Sees where messages come from, and passes everything on to a recorder."""

    def __init__(self, recorder: Any, broker: int, hops: dict[MessageId, set[tuple[int, int]]]) -> None:
        self.recorder = recorder
        self._broker = broker
        self._hops = hops

    def __getattr__(self, name: str) -> Any:
        return getattr(self.recorder, name)

    def arrived(self, batch: Batch, link: int, now: int) -> None:
        for message in batch:
            self._hops[message.id].add((link, self._broker))
        self.recorder.arrived(batch, link, now)


class Tracked:
    """A network whose brokers write one trail, and what really happened in it."""

    def __init__(self, graph: Graph, root: Path, seed: int, kind: str, effective: float = 1e-5, keys: int = 60) -> None:
        self.random = Random(seed)
        self.root = root
        self.hops: dict[MessageId, set[tuple[int, int]]] = defaultdict(set)
        self.ids: list[MessageId] = []
        self.witnesses: dict[int, Witness] = {}
        history = HistorySettings(interval=2_000, linger=0, effective=effective)
        history = HistorySettings(interval=2_000, linger=0, effective=effective, shape=shape_for(keys, history.rate))
        kinds = {
            "exact": lambda broker: ExactRecorder(broker, 0, 2_000),
            "sealed": lambda broker: SealedRecorder(broker, history, 0),
            "bloom": lambda broker: BloomRecorder(broker, history, 0),
        }

        def recorder(broker: int) -> Any:
            self.witnesses[broker] = Witness(kinds[kind](broker), broker, self.hops)  # type: ignore[no-untyped-call]
            return self.witnesses[broker]

        self.net = SimulatedNetwork(graph, strategy("drp"), self.random, recorder=recorder)
        self.writers = {broker: TrailWriter(root, broker, 0) for broker in graph.brokers}
        self.places: dict[str, tuple[int, int]] = {}

    def live(self, rounds: int, messages: int) -> None:
        """Subscribers come, publishers publish, and some of the record is written on the way."""
        brokers = self.net.graph.brokers
        for turn in range(2 * len(brokers)):
            broker = self.random.choice(brokers)
            name = f"s{turn}"
            self.places[name] = (broker, self.net.subscribe(broker, name, self.random.choice(TOPICS)).number)
        self.net.run(SETTLED_MS)
        for _ in range(rounds):
            for _ in range(messages):
                draft = (self.random.choice(TOPICS),)
                self.ids += self.net.publish(self.random.choice(brokers), [draft])
            self.net.run(self.random.randint(1, 900))
            self.write()

    def write(self, force: bool = False) -> None:
        for broker, writer in self.writers.items():
            for job in self.witnesses[broker].due(self.net.now, force):
                writer.write(job.make(), max(job.through, writer.run.through))
                self.witnesses[broker].release(job.number)

    def rest(self) -> None:
        self.net.run(SETTLED_MS)
        self.write(force=True)
        for writer in self.writers.values():
            writer.close(self.net.now + LONG_AFTER_MS)

    def brokers(self, message: MessageId) -> set[int]:
        return {message.broker, *(to for _, to in self.hops.get(message, set()))}

    def deliveries(self, message: MessageId) -> set[tuple[int, int]]:
        return {self.places[name] for name, ids in self.net.delivered.items() if message in ids}

    def absent(self) -> list[MessageId]:
        """Ids that never were, of the times of some that were."""
        some = self.random.sample(self.ids, len(self.ids) // 3)
        return [MessageId(one.publisher, one.broker, one.time, one.counter + 1_000) for one in some]

    def asked(self, message: MessageId, trail: Trail) -> Journey:
        """As a running network answers: each broker from what is open and what it has written."""
        work = Reconstruction(message)
        while wanted := work.to_ask():
            for broker in wanted:
                work.tell(broker, self._answer(trail, broker, message))
        return work.journey()

    def _answer(self, trail: Trail, broker: int, message: MessageId) -> Findings:
        stored = trail.findings(broker, message)
        known = tuple(gap for gap in stored.gaps if gap.reason != GapReason.NOT_YET_WRITTEN)
        return merged(self.witnesses[broker].findings(message, self.net.now), stored._replace(gaps=known))


def told(journey: Journey) -> tuple[set[int], set[tuple[int, int]]]:
    return {stop.broker for stop in journey.stops}, {(broker, hit.number) for broker, hit in journey.delivered}


@pytest.mark.parametrize("kind", ["exact", "sealed", "bloom"])
@settings(max_examples=5)
@given(graph=graphs, seed=st.integers(0, 1_000))
def test_both_readers_tell_the_truth_about_every_message(
    tmp_path_factory: pytest.TempPathFactory, kind: str, graph: Graph, seed: int
) -> None:
    world = Tracked(graph, tmp_path_factory.mktemp("trail"), seed, kind)
    world.live(rounds=6, messages=2)
    world.net.run(SETTLED_MS)
    # Some is written, some is not: the running network knows both.
    so_far = Trail(world.root)
    live = {message: world.asked(message, so_far) for message in [*world.ids, *world.absent()]}
    world.rest()
    trail = Trail(world.root)
    stored = {message: trail.trace(message).journey for message in live}
    assert trail.warnings == []
    for message in live:
        for journey in (live[message], stored[message]):
            assert journey.gaps == ()
            if message in world.ids:
                # With an error of one in a hundred thousand nothing false is to be expected in so few answers.
                assert told(journey) == (world.brokers(message), world.deliveries(message))
            else:
                assert journey.verdict is Verdict.NEVER_ACCEPTED
        assert live[message].verdict is stored[message].verdict


@pytest.mark.parametrize("kind", ["sealed", "bloom"])
def test_a_coarse_record_says_yes_too_often_no_more_than_promised(tmp_path: Path, kind: str) -> None:
    effective = 0.2
    # About as many keys as a history gets before it is sealed.
    world = Tracked(ring(4), tmp_path, 7, kind, effective, keys=12)
    world.live(rounds=10, messages=12)
    world.rest()
    trail = Trail(world.root)
    trials = wrong = false_stops = 0
    for message in [*world.ids, *world.absent()]:
        true = world.brokers(message) if message in world.ids else set()
        for broker in world.net.graph.brokers:
            found = trail.findings(broker, message)
            own = found.accepted if broker == message.broker else found.arrived
            assert own is not None or broker not in true
            if broker not in true:
                trials += 1
                wrong += own is not None
        stops, deliveries = told(trail.trace(message).journey)
        assert true <= stops
        assert message not in world.ids or world.deliveries(message) <= deliveries
        false_stops += len(stops - true)
    likely = effective * trials
    assert 0 < wrong <= likely + 3 * math.sqrt(likely)
    # Both ends of a hop must be wrong at once for a broker that never had it to be told.
    assert false_stops <= wrong
