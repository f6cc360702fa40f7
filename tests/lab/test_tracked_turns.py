"""The clients of the paper's scenario, against a relay of known behaviour and against a broker on its stage."""

from __future__ import annotations

import importlib

import pytest
from bench.dialects import BareStomp
from bench.peers.relay import Relay

from postroad.lab.errors import LabError
from postroad.lab.helper_processes import helping
from postroad.lab.papers import tracked_stage
from postroad.lab.papers.table_2 import BASE, RecorderSetup, setups
from postroad.lab.papers.tracked_clients import PUBLISHERS, SUBSCRIBERS, TOPICS, SceneClients, scene_plan
from postroad.lab.papers.tracked_turns import LiveTurns, ShownTurn, against_base, with_base
from tests.bench.relays import Forgetful, relaying

# Kernels are compiled now, where they are not yet, and not within the time that a test has.
importlib.import_module("postroad.server")

SMALL = scene_plan(publishers=4, subscribers=8, topics=10)


def test_plan_is_that_of_the_paper() -> None:
    found = scene_plan()
    assert len(found.topics) == PUBLISHERS
    assert len(found.wanted) == SUBSCRIBERS
    assert sum(found.readers) == SUBSCRIBERS
    publishers_of = [sum(topic in topics for topics in found.topics) for topic in range(TOPICS)]
    assert set(publishers_of) == {4}
    assert 0 < found.readers.count(0) < TOPICS / 2


def test_paced_clients_send_at_the_rate_and_read_every_delivery() -> None:
    with relaying(Relay) as port:
        clients = SceneClients(port, SMALL, BareStomp())
        try:
            found = clients.pace(seconds=0.3, warm_up=0.1, rate=500)
        finally:
            clients.close()
    assert found["messages"] == 200
    assert found["lost"] == 0
    assert 0 < found["p50_ms"] <= found["p99_ms"]


def test_flooding_clients_read_every_delivery() -> None:
    with relaying(Relay) as port:
        clients = SceneClients(port, SMALL, BareStomp())
        try:
            found = clients.flood(seconds=0.2, warm_up=0.1)
        finally:
            clients.close()
    assert found["lost"] == 0
    assert found["messages_per_s"] > 0
    fan_out = sum(SMALL.readers[topic] for topics in SMALL.topics for topic in topics) / 40
    assert found["deliveries_per_s"] == pytest.approx(fan_out * found["messages_per_s"], rel=0.05)


def test_paced_clients_notice_a_lost_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.lab.papers.tracked_clients.DRAIN_SECONDS", 0.2)
    with relaying(Forgetful) as port:
        # Every topic is wanted: whichever is lost is missed.
        clients = SceneClients(port, SMALL._replace(wanted=list(range(10)), readers=[1] * 10), BareStomp())
        try:
            found = clients.pace(seconds=0.2, warm_up=0.0, rate=500)
        finally:
            clients.close()
    assert found["lost"] == 1


def test_broker_on_the_stage_records_counts_forces_and_shows_what_it_stored() -> None:
    with helping(tracked_stage.PROGRAM, "the broker") as broker:
        for setup in (RecorderSetup("exact", "135K"), RecorderSetup("bloom", "10K 99.999%")):
            clients = SceneClients(broker.ask("start", tracking=setup.tracking)["port"], SMALL)
            before = broker.ask("count")
            paced = clients.pace(seconds=0.4, warm_up=0.0, rate=500)
            clients.close()
            stored = broker.ask("stop")
            assert paced["lost"] == 0
            assert before["fsyncs"] > 0
            assert not before["trouble"]
            assert 0 < stored["compressed_bytes"] < stored["trail_bytes"]


def test_helper_that_fails_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with helping("raise SystemExit('no licence')", "the broker") as broker, pytest.raises(RuntimeError, match="ended"):
        broker.ask("count")
    assert "no licence" in capfd.readouterr().err


def test_turns_are_compared_with_the_turns_of_none_around_them() -> None:
    order = with_base(setups())
    assert order[0] == order[-1] == BASE
    assert [one for one in order if one != BASE] == setups()
    turns = [shown(BASE, 2.0, 10.0), shown(RecorderSetup("log", "10K"), 6.0, 15.0), shown(BASE, 4.0, 30.0)]
    log = against_base(turns)[1]
    assert (log.p50_ratio, log.flood_ratio) == (2.0, 0.75)


# Answers whatever a turn asks, and says that one of the deliveries did not come.
LOSING = """
import json, sys
answer = dict.fromkeys(("port", "messages", "lost", "at"), 1) | {"trouble": "", "held_most": 0, "cpu_seconds": 0.0}
answer |= dict.fromkeys(("commits", "fsyncs", "raw_bytes", "compressed_bytes", "trail_bytes"), 0)
for line in sys.stdin:
    print(json.dumps(answer), flush=True)
"""


def test_turn_in_which_a_delivery_is_missing_shows_nothing() -> None:
    with helping(LOSING, "both") as both:
        turns = LiveTurns(both, both)
        with pytest.raises(LabError, match="1 deliveries of the broker with the recorder exact 10K 1 did not come"):
            turns.play(RecorderSetup("exact", "10K"), 1.0, flood=False)


def shown(setup: RecorderSetup, p50: float, flood: float) -> ShownTurn:
    return ShownTurn(setup, 1.0, 2.0, 3.0, 4.0, 5.0, 6, p50, p50, p50, 7.0, flood_per_s=flood)
