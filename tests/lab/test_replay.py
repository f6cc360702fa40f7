"""Recorded traffic is played again as it was, and through another network."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.broker import planned_strategy
from postroad.lab.errors import LabError
from postroad.lab.replay import ReplayRequest, replay
from postroad.lab.scenarios.recorded_trail import read_record
from postroad.simulation import SimulatedNetwork
from postroad.topology import Plan, line, ring, star
from postroad.tracking import ExactRecorder
from postroad.trail import TrailWriter
from tests.cli.programs import here

if TYPE_CHECKING:
    from pathlib import Path

START = 1_700_000_000_000


class Recorded:
    """A simulated ring whose brokers write a trail, and what went over its links."""

    def __init__(self, root: Path) -> None:
        self.plan = Plan.of(ring(5), "ring")
        recorders: dict[int, ExactRecorder] = {}

        def recorder(broker: int) -> ExactRecorder:
            recorders[broker] = ExactRecorder(broker, 0)
            return recorders[broker]

        net = SimulatedNetwork(self.plan.graph(), planned_strategy(self.plan), random.Random(1), recorder=recorder)
        net.run(3_000)
        draw = random.Random(7)
        for place in range(10):
            net.subscribe(1 + place % 5, f"s{place}", f"t.{draw.randrange(4)}")
        net.run(3_000)
        before = {ends: way.messages for ends, way in net.links().items()}
        self.times = []
        for _ in range(120):
            net.publish(draw.randint(1, 5), [(f"t.{draw.randrange(4)}",)])
            self.times.append(net.now)
            net.run(draw.randrange(1, 30))
        net.run(3_000)
        carried = {ends: way.messages - before[ends] for ends, way in net.links().items()}
        self.carried = {ends: count for ends, count in carried.items() if count}
        self.copies = sum(len(got) for got in net.delivered.values())
        for broker, kept in recorders.items():
            writer = TrailWriter(root, broker, 0)
            for job in kept.due(net.now, True):
                writer.write(job.make(), max(job.through, writer.run.through))
                kept.release(job.number)
            writer.close(net.now + 60_000)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recorded]:
    root = tmp_path_factory.mktemp("recorded") / "trail"
    return root, Recorded(root)


def test_a_record_has_what_happened(recorded: tuple[Path, Recorded]) -> None:
    root, truth = recorded
    record = read_record(root)
    assert record.times.tolist() == truth.times
    assert record.carried == truth.carried
    assert record.copies == truth.copies
    assert record.brokers == [1, 2, 3, 4, 5]
    assert set(record.links) == set(ring(5).links)


def test_the_network_on_record_carries_again_what_it_carried(recorded: tuple[Path, Recorded]) -> None:
    root, truth = recorded
    found = replay(read_record(root), ReplayRequest(Plan.of(star(5), "star"), message_bytes=100))
    assert found.before.messages == truth.carried
    assert found.before.missing == found.after.missing == 0
    assert found.before.deliveries == found.after.deliveries > 100
    assert found.moved == {}
    # In a star every message crosses the hub.
    assert all(1 in ends for ends in found.after.messages)
    assert found.after.total_bytes != found.before.total_bytes
    assert 0 < found.before.p50_ms <= found.before.p99_ms


def test_a_plan_with_fewer_brokers_moves_clients_and_says_so(recorded: tuple[Path, Recorded]) -> None:
    root, _ = recorded
    found = replay(read_record(root), ReplayRequest(Plan.of(line(2), "line")))
    assert found.moved == {3: 1, 4: 2, 5: 1}
    assert set(found.after.messages) == {(1, 2), (2, 1)}
    assert found.after.missing == 0


def test_a_part_of_the_time_can_be_played_and_another_is_refused(recorded: tuple[Path, Recorded]) -> None:
    root, truth = recorded
    since, until = truth.times[30], truth.times[60]
    part = read_record(root, since, until)
    assert part.times.tolist() == [time for time in truth.times if since <= time < until]
    with pytest.raises(LabError, match="no exact record of messages in that time"):
        read_record(root, truth.times[-1] + 10**9, truth.times[-1] + 2 * 10**9)


def test_the_command_says_what_would_change(
    recorded: tuple[Path, Recorded], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root, truth = recorded
    (tmp_path / "new.toml").write_text(Plan.of(line(5), "line").to_toml())
    arguments = ("lab", "replay", "--trail", str(root), "--plan", str(tmp_path / "new.toml"))
    outcome = here(monkeypatch, *arguments, "--json")
    told = json.loads(outcome.out)
    assert told["messages"] == len(truth.times)
    assert told["copies_to_clients"] == truth.copies
    crossed = sum(truth.carried.values()) / len(truth.times)
    assert told["before"]["links_crossed_per_message"] == pytest.approx(crossed, abs=0.001)
    assert told["links_crossed_per_message_on_record"] == pytest.approx(crossed, abs=0.001)
    assert "1-5" not in told["after"]["bytes_by_link"]
    assert np.isfinite(told["after"]["p99_ms"])
    shown = here(monkeypatch, *arguments)
    assert "as planned" in shown.out
    (tmp_path / "bad.toml").write_text("version = 1\n")
    refused = here(monkeypatch, *arguments[:-1], str(tmp_path / "bad.toml"))
    assert refused.code == 2
