"""`postroad trace`: from a trail and from a running broker, by id and by alias."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from postroad.cli.journeys import END_OF_TIME, journey_lines, journey_tree
from postroad.messages import MessageId
from postroad.server.tracking import TrackingConfig
from postroad.tracking.reasons import DETOURS, HELD
from postroad.trail.coverage import FOREVER
from tests.cli.programs import here
from tests.server import scene

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cli.programs import Outcome


def test_a_message_is_told_by_id_and_by_alias_while_the_broker_runs_and_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Outcome] = {}
    ids: list[str] = []

    async def talk() -> None:
        settings = TrackingConfig(alias_attribute="order")
        async with scene.service(tmp_path, admin_port=0, tracking=settings) as broker:
            reader, writer = [await scene.Client.connect(broker.port, login=name) for name in ("ann", "bob")]
            await reader.subscribe("s", "quotes.>", selector="price > 20")
            writer.publish("quotes.a", b"1", price="30", order="A 17/b", receipt="r")
            ids.append((await writer.frame()).headers["message-id"])
            await reader.frame()
            network = f"127.0.0.1:{broker.admin_port}"
            for name, text in {"id": ids[0], "alias": "A 17/b", "nothing": "A 18"}.items():
                told[name] = await asyncio.to_thread(here, monkeypatch, "trace", text, "--network", network)
            for client in (reader, writer):
                await client.close()

    scene.run(talk)
    trail = ("--trail", str(tmp_path / "trail"))
    told["later"] = here(monkeypatch, "trace", "A 17/b", *trail)
    tree = told["id"].out.splitlines()
    assert tree[0] == f"{ids[0]}  delivered, certain"
    assert "publisher 1 (bob) at broker 1" in tree[1]
    assert tree[-1].endswith("subscriber 1 (ann, quotes.> where price > 20): delivered")
    assert told["id"].code == 0
    assert told["alias"] == told["id"]
    assert told["later"] == told["id"]
    assert told["nothing"].code == 2
    assert "knows no message that has the alias 'A 18'" in told["nothing"].err
    document = json.loads(here(monkeypatch, "trace", ids[0], *trail, "--json").out)
    assert (document["verdict"], document["certainty"], document["warnings"]) == ("delivered", 1.0, [])
    assert document["files_opened"] > 0
    message = MessageId.parse(ids[0])
    never = here(monkeypatch, "trace", str(MessageId(9, message.broker, message.time, 0)), *trail)
    assert never.code == 1
    assert "never accepted, certain" in never.out


def test_a_damaged_file_is_named_on_stderr_and_the_answer_is_no_longer_a_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: list[str] = []

    async def talk() -> None:
        async with scene.service(tmp_path) as broker:
            writer = await scene.Client.connect(broker.port)
            writer.publish("quotes", b"1", receipt="r")
            ids.append((await writer.frame()).headers["message-id"])
            await writer.close()

    scene.run(talk)
    (file,) = (tmp_path / "trail" / "passages").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    outcome = here(monkeypatch, "trace", ids[0], "--trail", str(tmp_path / "trail"))
    assert outcome.code == 1
    assert "not recorded" in outcome.out
    assert file.name in outcome.err
    assert "Traceback" not in outcome.err


def test_detours_are_told_as_such_and_not_as_losses() -> None:
    def branches(reason: str) -> str:
        drop = {"subscriber": 0, "link": 0, "reason": reason, "at": 0}
        stop = {"broker": 1, "from": 0, "window": [0, 0], "doubt": 0, "delivered": [], "waiting": [], "dropped": [drop]}
        origin = {"broker": 1, "publisher": 7, "name": None, "time": 0}
        told = {"id": "x", "verdict": "y", "certainty": 1.0, "origin": origin, "stops": [stop], "lost": []}
        return str(journey_tree(told).children[1].children[0].label)

    assert all("not to" not in branches(reason) for reason in DETOURS)
    assert "waits for a way" in branches(HELD)
    assert "not to other brokers: unreachable" in branches("unreachable")


def test_a_gap_that_has_not_ended_names_no_end() -> None:
    assert END_OF_TIME == FOREVER
    gap = {"broker": 1, "since": 0, "until": FOREVER, "reason": "not yet written"}
    (line,) = journey_lines({"pruned": [], "gaps": [gap], "silent": []})
    assert line == "broker 1: not recorded since 1970-01-01 00:00:00.000 UTC (not yet written)"
