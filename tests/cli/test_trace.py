"""`postroad trace`: from a trail and from a running broker, by id and by alias."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from postroad.cli.journey_tree import END_OF_TIME, journey_lines, journey_tree
from postroad.cli.trace import show_journey
from postroad.config import TrackingConfig
from postroad.messages import MessageId
from postroad.tracking import Verdict
from postroad.tracking.reasons import FORMER, Detour
from postroad.trail import LockOwner, TrailWriter
from postroad.trail.coverage import FOREVER
from postroad.trail.lock_owner import lock_path
from tests.cli.programs import here
from tests.server import scene

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.cli.journey_tree import JourneyTree
    from tests.cli.programs import Outcome


ID = "00000007-00000001-018bcfe56800-0001"
DROP = {"subscription": 0, "link": 0, "at": 0}
STOP = {"broker": 1, "from": 0, "window": [0, 0], "doubt": 0, "delivered": [], "waiting": []}


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
    assert "publisher 1 (unverified:bob) at broker 1" in tree[1]
    assert tree[-1].endswith("subscription 1 (unverified:ann, quotes.> where price > 20): delivered")
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


@pytest.mark.parametrize("order", ["", "x" * 1_025], ids=["empty", "too long"])
def test_an_alias_that_is_never_recorded_is_not_said_to_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    told: list[Outcome] = []

    async def talk() -> None:
        settings = TrackingConfig(alias_attribute="order")
        async with scene.service(tmp_path, admin_port=0, tracking=settings) as broker:
            writer = await scene.Client.connect(broker.port)
            writer.publish("quotes.a", b"1", order=order, receipt="r")
            await writer.frame()
            network = f"127.0.0.1:{broker.admin_port}"
            told.append(await asyncio.to_thread(here, monkeypatch, "trace", order, "--network", network))
            await writer.close()

    scene.run(talk)
    told.append(here(monkeypatch, "trace", order, "--trail", str(tmp_path / "trail")))
    for one in told:
        assert one.code == 2
        assert "is never recorded" in one.err
        assert "search by the message id" in one.err


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


def unstyled(tree: JourneyTree) -> str:
    """The line of a tree without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", tree.label)


def a_journey(**more: object) -> dict[str, Any]:
    origin = {"broker": 1, "publisher": 7, "name": "n" * 300, "time": 0}
    return {"id": "x", "verdict": "delivered", "certainty": 1.0, "origin": origin, "stops": [], "lost": []} | more


@pytest.mark.parametrize("verdict", ["recorded in part", "not recorded", "unanswered"])
def test_nothing_is_called_certain_where_the_verdict_leaves_it_open(verdict: str) -> None:
    assert verdict in {one.value for one in Verdict}
    for certainty in (0.0, 0.75, 1.0):
        assert unstyled(journey_tree(a_journey(verdict=verdict, certainty=certainty))).endswith(f"  {verdict}")


def test_lines_are_whole_however_narrow_the_terminal_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    show_journey(
        a_journey(pruned=[], gaps=[], silent=[1], stops=[{**STOP, "dropped": [DROP | {"reason": "r" * 90}]}]), False
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "x  delivered, certain"
    assert "n" * 300 in lines[1]
    assert lines[1].endswith("1970-01-01 00:00:00.000 UTC")
    assert lines[3] == "    └── not to other brokers: " + "r" * 90 + " at 1970-01-01 00:00:00.000 UTC"
    assert lines[4] == "broker 1 did not answer; what it knows is missing here"


def test_a_journey_of_thousands_of_brokers_is_drawn() -> None:
    stops = [{**STOP, "broker": broker, "from": broker - 1, "dropped": []} for broker in range(1, 3_001)]
    lines = list(journey_tree(a_journey(stops=stops)).lines())
    assert len(lines) == 3_002
    assert lines[-1].startswith("    " * 2_999)


def test_text_of_clients_is_shown_as_it_is_and_never_as_pictures_or_colours(capsys: pytest.CaptureFixture[str]) -> None:
    origin = {"broker": 1, "publisher": 7, "name": ":bomb: [red]x[/]", "time": 0}
    show_journey(a_journey(origin=origin, pruned=[], gaps=[], silent=[], stops=[{**STOP, "dropped": []}]), False)
    assert "(:bomb: [red]x[/])" in capsys.readouterr().out


def test_another_program_at_the_address_is_named_and_no_traceback_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Outcome] = []

    async def talk() -> None:
        async with scene.service(tmp_path) as broker:
            address = f"127.0.0.1:{broker.port}"
            told.extend(
                [
                    await asyncio.to_thread(here, monkeypatch, "trace", ID, "--network", form)
                    for form in (address, f"{address}/", f"http://{address}/")
                ]
            )

    scene.run(talk)
    assert {(outcome.code, outcome.out) for outcome in told} == {(2, "")}
    assert all("give the admin address of a running broker" in outcome.err for outcome in told)


@pytest.mark.parametrize("name", ["nowhere/at/all", "nothing.toml"])
def test_a_network_that_is_named_by_no_file_is_not_taken_for_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    outcome = here(monkeypatch, "trace", ID, "--network", str(tmp_path / name))
    assert outcome.code == 2
    assert "no such plan or directory" in outcome.err
    assert "http:" not in outcome.err


def test_missing_trail_is_told_with_the_options_that_name_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = here(monkeypatch, "trace", ID)
    assert outcome == (
        2,
        "",
        "postroad: there is no trail at postroad-data/trail: name one with --trail, or ask running brokers with "
        "--network\n",
    )
    # The brokers of a network have stopped, and their record is there.
    (tmp_path / "net.network" / "trail").mkdir(parents=True)
    stopped = here(monkeypatch, "trace", ID, "--network", "net.network")
    assert (stopped.code, stopped.out) == (2, "")
    assert "its record is there: --trail net.network/trail" in stopped.err


def test_an_error_about_one_id_names_no_message_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TrailWriter(tmp_path, 1, 0)
    outcome = here(monkeypatch, "trace", "no-id", "--trail", str(tmp_path))
    assert outcome.code == 2
    assert "message 0" not in outcome.err
    assert "'no-id' is not a message id" in outcome.err


def test_detours_are_told_as_such_and_not_as_losses() -> None:
    def branches(reason: str) -> str:
        told = a_journey(stops=[{**STOP, "dropped": [DROP | {"reason": reason}]}])
        return unstyled(journey_tree(told).children[1].children[0])

    assert all("not to" not in branches(reason) for reason in Detour)
    assert "waits for other brokers" in branches(Detour.HELD)
    assert "not to other brokers: unreachable" in branches("unreachable")


@pytest.mark.parametrize(
    ("waited", "told"),
    [
        (5_000, "5 s"),
        (61_000, "1 min 1 s"),
        (3 * 3_600_000 + 120_000, "3 h 2 min"),
        (50 * 3_600_000, "2 d 2 h"),
        (-9, "0 s"),
    ],
)
def test_late_message_is_told_with_how_long_it_waited(waited: int, told: str) -> None:
    journey = a_journey()
    late = DROP | {"reason": Detour.DELIVERED_LATE, "at": journey["origin"]["time"] + waited}
    tree = journey_tree(a_journey(stops=[{**STOP, "dropped": [late]}]))
    assert f", {told} after it was published" in unstyled(tree.children[1].children[0])


@pytest.mark.parametrize("former", FORMER)
def test_former_texts_of_reasons_are_shown_as_those_of_today(former: str) -> None:
    shown = [
        journey_tree(a_journey(stops=[{**STOP, "dropped": [DROP | {"reason": text}]}])).children[1].children[0]
        for text in (former, FORMER[former])
    ]
    assert unstyled(shown[0]) == unstyled(shown[1]) != ""


def test_waiting_message_is_told_since_when() -> None:
    one = {"subscription": 3, "doubt": 0}
    tree = journey_tree(a_journey(stops=[{**STOP, "dropped": [], "waiting": [one], "window": [60_000, 60_000]}]))
    said = "subscription 3: waits in its queue since 1970-01-01 00:01:00.000 UTC"
    assert unstyled(tree.children[1].children[0]) == said


def test_message_of_a_queue_that_was_refused_and_then_acknowledged_is_told_as_acknowledged() -> None:
    given = {"subscription": 3, "doubt": 0, "acknowledged": True, "refused": True}
    tree = journey_tree(a_journey(stops=[STOP | {"delivered": [given], "dropped": []}]))
    assert unstyled(tree.children[1].children[0]) == "subscription 3: acknowledged"


def test_a_gap_without_a_beginning_names_none() -> None:
    gap = {"broker": 1, "since": 0, "until": 60_000, "reason": "before the record begins"}
    (told,) = journey_lines(a_journey(gaps=[gap], pruned=[], silent=[]))
    assert told == "broker 1: not recorded before 1970-01-01 00:01:00.000 UTC (before the record begins)"


def test_a_gap_that_has_not_ended_names_no_end() -> None:
    assert END_OF_TIME == FOREVER
    gap = {"broker": 1, "since": 0, "until": FOREVER, "reason": "not yet written"}
    (line,) = journey_lines({"pruned": [], "gaps": [gap], "silent": []})
    assert line == "broker 1: not recorded since 1970-01-01 00:00:00.000 UTC (not yet written)"


@pytest.mark.parametrize("persist", [60.0, 1_800.0])
def test_message_that_is_not_written_yet_is_asked_of_the_broker_that_writes_the_trail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, persist: float
) -> None:
    told: list[Outcome] = []
    trail = ("--trail", str(tmp_path / "trail"))

    async def talk() -> None:
        async with scene.service(tmp_path, admin_port=0, tracking=TrackingConfig(persist_seconds=persist)) as broker:
            writer = await scene.Client.connect(broker.port, login="bob")
            writer.publish("quotes.a", b"1", receipt="r")
            message = MessageId.parse((await writer.frame()).headers["message-id"])
            unknown = MessageId(9, message.broker, message.time, 0)
            told.extend(
                [await asyncio.to_thread(here, monkeypatch, "trace", str(one), *trail) for one in (message, unknown)]
            )
            await writer.close()

    scene.run(talk)
    written, unknown = told
    assert written.code == 0
    assert "matched nobody, certain" in written.out
    assert "not on the trail yet; asked the broker at http://127.0.0.1:" in written.err
    assert unknown.code == 1
    assert "the brokers that run do not know it" in unknown.err
    # Its broker has stopped and has written everything: nothing can come any more.
    ruled_out = here(monkeypatch, "trace", unknown.out.split()[0], *trail)
    assert "never accepted, certain" in ruled_out.out
    assert ruled_out.err == ""


def test_message_that_is_not_written_yet_is_told_when_it_will_be_where_nobody_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Outcome] = []
    trail = ("--trail", str(tmp_path / "trail"))

    async def talk() -> None:
        async with scene.service(tmp_path, tracking=TrackingConfig(persist_seconds=1_800.0)) as broker:
            writer = await scene.Client.connect(broker.port, login="bob")
            writer.publish("quotes.a", b"1", receipt="r")
            message = MessageId.parse((await writer.frame()).headers["message-id"])
            # Of twenty minutes ago, which is not too old for a broker that writes every half hour.
            old = MessageId(message.publisher, message.broker, message.time - 1_200_000, 0)
            asked = [str(message), str(old), "no such alias"]
            told.extend([await asyncio.to_thread(here, monkeypatch, "trace", one, *trail) for one in asked])
            await writer.close()

    scene.run(talk)
    for one in told[:2]:
        assert one.code == 1
        assert "if this message passed, the trail has it by " in one.err
        assert "its broker has no admin endpoint (--admin-port), so it cannot be asked before" in one.err
    assert told[2].code == 2
    assert "what came since it was last written is not there yet" in told[2].err


def test_broker_that_was_killed_is_not_asked_and_another_at_its_address_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Outcome] = []
    trail = tmp_path / "trail"
    TrailWriter(trail, 5, 0)

    async def talk() -> None:
        async with scene.service(tmp_path / "other", admin_port=0) as broker:
            now = MessageId(7, 5, int(time.time() * 1_000), 0)
            lock_path(trail, 5).parent.mkdir()
            elsewhere = [f"http://127.0.0.1:{broker.admin_port}", f"http://127.0.0.1:{broker.port}", ""]
            left = [(os.getpid(), socket.gethostname(), admin) for admin in elsewhere]
            # A process number that no system gives, and another machine.
            left += [(2**31 - 1, socket.gethostname(), elsewhere[0]), (os.getpid(), "elsewhere", elsewhere[0])]
            for pid, host, admin in left:
                owner = LockOwner(pid, host, "then", 5, "token", admin=admin, persist_seconds=60.0)
                lock_path(trail, 5).write_bytes(msgspec.json.encode(owner))
                told.append(await asyncio.to_thread(here, monkeypatch, "trace", str(now), "--trail", str(trail)))

    scene.run(talk)
    assert {one.code for one in told} == {1}
    assert all("the trail has it by " in one.err for one in told)
    reasons = ["the brokers that run do not know it", "the running broker could not be asked: ", "no admin endpoint"]
    reasons += ["no broker on this machine writes to it now"] * 2
    assert [one.err for reason, one in zip(reasons, told, strict=True) if reason not in one.err] == []
