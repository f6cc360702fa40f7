from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
import urllib.error
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from postroad.config import TrackingConfig
from postroad.messages import AliasError, MessageId
from postroad.recording import inquiry as inquiry_module
from postroad.recording import record as record_module
from postroad.topology import line, ring
from postroad.tracking import Verdict, chronicle
from postroad.trail import GapReason, Trail, TrailWriter
from tests.server.http_client import get
from tests.server.live import live, subscriber
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path


async def published(client: Client, price: int) -> MessageId:
    """Publish a quote; returns the id that its receipt names."""
    client.publish("quotes", str(price).encode(), price=str(price), receipt=f"r{price}")
    receipt = await client.frame()
    assert receipt.command == "RECEIPT", receipt
    assert "tracked" not in dict(receipt.headers)
    return MessageId.parse(dict(receipt.headers)["message-id"])


def merged_trail(folder: Path, brokers: tuple[int, ...]) -> Path:
    """Each broker has written a trail of its own; together they are one."""
    whole = folder / "whole"
    for number in brokers:
        for file in (folder / str(number) / "trail").rglob("*"):
            if file.is_file():
                copy = whole / file.relative_to(folder / str(number) / "trail")
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(file.read_bytes())
    return whole


def test_a_network_tells_where_a_message_went_while_it_runs_and_from_its_trails(tmp_path: Path) -> None:
    ids: dict[str, MessageId] = {}

    async def talk() -> None:
        async with live(line(3), tmp_path) as network:
            far = await subscriber(network.services[3], selector="price > 20")
            await network.converged()
            sender = await Client.connect(network.services[1].port, login="alice")
            ids["delivered"] = await published(sender, 30)
            ids["unwanted"] = await published(sender, 10)
            assert (await far.frame()).body == b"30"
            inquiry = network.services[2].inquiry
            assert inquiry is not None
            story = await inquiry.trace(ids["delivered"])
            assert [stop.broker for stop in story.journey.stops] == [1, 2, 3]
            assert story.journey.verdict is Verdict.DELIVERED
            assert story.journey.certainty == 1.0
            assert [one.selector for one in story.subscriptions.values()] == ["price > 20"]
            assert (await inquiry.trace(ids["unwanted"])).journey.verdict is Verdict.MATCHED_NOBODY
            for client in (far, sender):
                await client.close()

    run(talk)
    trail = Trail(merged_trail(tmp_path, (1, 2, 3)))
    story = trail.trace(ids["delivered"])
    assert [stop.broker for stop in story.journey.stops] == [1, 2, 3]
    assert story.journey.verdict is Verdict.DELIVERED
    assert [(broker, one.selector) for (broker, _), one in story.subscriptions.items()] == [(3, "price > 20")]
    assert trail.trace(ids["unwanted"]).journey.verdict is Verdict.MATCHED_NOBODY
    never = MessageId(ids["delivered"].publisher, 1, ids["delivered"].time, 999)
    assert trail.trace(never).journey.verdict is Verdict.NEVER_ACCEPTED
    assert trail.warnings == []


def test_what_went_on_behind_a_broker_that_does_not_answer_is_found_round_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiry_module, "ANSWER_SECONDS", 1.0)

    async def talk() -> None:
        async with live(ring(4), tmp_path) as network:
            far = await subscriber(network.services[3])
            await network.converged()
            sender = await Client.connect(network.services[1].port)
            message = await published(sender, 30)
            assert (await far.frame()).body == b"30"
            silent = network.services[2].links
            assert silent is not None
            silent.on_question = None
            inquiry = network.services[1].inquiry
            assert inquiry is not None
            journey = (await inquiry.trace(message)).journey
            assert journey.silent == (2,)
            assert [(stop.parent, stop.broker, stop.recorded) for stop in journey.stops] == [
                (0, 1, True), (1, 2, False), (2, 3, True),
            ]  # fmt: skip
            assert journey.verdict is Verdict.RECORDED_IN_PART
            assert len(journey.delivered) == 1
            for client in (far, sender):
                await client.close()

    run(talk)


def test_what_a_crash_left_half_written_is_deleted_when_the_broker_starts_again(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await Client.connect(broker.port)
            await published(client, 30)
            await client.close()
        (file,) = (tmp_path / "trail" / "passages").rglob("*.parquet")
        TrailWriter(tmp_path / "trail", 1, int(time.time() * 1_000))  # and it crashed
        orphan = file.with_name("000000000002-000001.parquet")
        orphan.write_bytes(b"?")
        async with service(tmp_path):
            await until(lambda: not orphan.exists())
        assert file.exists()

    run(talk)


def test_what_a_dead_broker_has_written_on_the_trail_they_share_is_read_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiry_module, "ANSWER_SECONDS", 1.0)

    async def talk() -> None:
        settings = TrackingConfig(trail=str(tmp_path / "shared"))
        async with live(line(2), tmp_path, tracking=settings) as network:
            far = await subscriber(network.services[2])
            await network.converged()
            sender = await Client.connect(network.services[1].port)
            message = await published(sender, 30)
            assert (await far.frame()).body == b"30"
            links = network.services[1].links
            assert links is not None
            # What is not confirmed when a link breaks waits for another way, and the message would still be waiting.
            await until(lambda: not any(one.held_messages_now for one in links.neighbours()))
            await far.close()
            await network.services.pop(2).stop()
            inquiry = network.services[1].inquiry
            assert inquiry is not None
            journey = (await inquiry.trace(message)).journey
            assert (journey.verdict, journey.silent) == (Verdict.DELIVERED, ())
            assert [stop.broker for stop in journey.stops] == [1, 2]
            await sender.close()

    run(talk)


@pytest.mark.parametrize(
    "chosen",
    [
        {"recorder": "log"},
        {"recorder": "exact"},
        {"recorder": "bloom"},
        {"recorder": "bloom", "persist_seconds": 0.2, "hold_seconds": 1.0},
        {"recorder": "sealed"},
        {"recorder": "sealed", "relay_keys": "sets"},
        {"recorder": "sealed", "layout": "paper"},
    ],
    ids=str,
)
def test_every_recorder_answers_while_it_runs_and_from_its_trail(tmp_path: Path, chosen: dict[str, Any]) -> None:
    ids: dict[str, MessageId] = {}

    async def talk() -> None:
        async with live(line(2), tmp_path, tracking=TrackingConfig(memory_bytes=1 << 24, **chosen)) as network:
            far = await subscriber(network.services[2], selector="price > 20")
            await network.converged()
            sender = await Client.connect(network.services[1].port)
            ids["delivered"] = await published(sender, 30)
            ids["unwanted"] = await published(sender, 10)
            assert (await far.frame()).body == b"30"
            inquiry = network.services[1].inquiry
            assert inquiry is not None
            story = await inquiry.trace(ids["delivered"])
            assert [stop.broker for stop in story.journey.stops] == [1, 2]
            assert story.journey.verdict is Verdict.DELIVERED
            assert (await inquiry.trace(ids["unwanted"])).journey.verdict is Verdict.MATCHED_NOBODY
            for client in (far, sender):
                await client.close()

    run(talk)
    trail = Trail(merged_trail(tmp_path, (1, 2)))
    story = trail.trace(ids["delivered"])
    assert [stop.broker for stop in story.journey.stops] == [1, 2]
    assert story.journey.verdict is Verdict.DELIVERED
    assert [(broker, one.selector) for (broker, _), one in story.subscriptions.items()] == [(2, "price > 20")]
    assert trail.trace(ids["unwanted"]).journey.verdict is Verdict.MATCHED_NOBODY
    assert trail.warnings == []


def test_the_admin_endpoint_traces_and_says_when_the_record_cannot_be_written(tmp_path: Path) -> None:
    async def talk() -> None:
        tracking = TrackingConfig(persist_seconds=0.1)
        async with service(tmp_path, admin_port=0, tracking=tracking) as running:
            client = await Client.connect(running.port)
            message = await published(client, 1)

            def ask(path: str) -> Any:
                url = f"http://127.0.0.1:{running.admin_port}{path}"
                with urllib.request.urlopen(url, timeout=10) as answer:
                    return answer.read()

            found = json.loads(await asyncio.to_thread(ask, f"/trace/{message}"))
            assert found["verdict"] == "matched nobody"
            assert json.loads(await asyncio.to_thread(ask, f"/trace/{message}?explore=neighbours")) == found
            with pytest.raises(urllib.error.HTTPError, match="400"):
                await asyncio.to_thread(ask, f"/trace/{message}?explore=bad")
            assert (await asyncio.to_thread(ask, "/health")).strip() == b"ok"
            tracking_now = running.tracking
            assert tracking_now is not None
            # Nothing can be written under a path that is a file.
            root = tmp_path / "trail"
            await until(lambda: tracking_now.statistics()["commits"] > 0)
            root.rename(tmp_path / "elsewhere")
            root.write_text("no directory")
            await until(lambda: bool(tracking_now.trouble))
            assert (await asyncio.to_thread(ask, "/health")).startswith(b"degraded")
            client.publish("quotes", b"2", receipt="r2")
            receipt = await client.frame()
            assert dict(receipt.headers)["tracked"] == "false"
            root.unlink()
            (tmp_path / "elsewhere").rename(root)
            await until(lambda: not tracking_now.trouble)
            await published(client, 3)
            await client.close()

    run(talk)


@pytest.mark.parametrize("recorder", ["exact", "sealed", "log"])
def test_the_message_id_that_a_plain_client_gives_is_another_name_of_the_message(tmp_path: Path, recorder: str) -> None:
    ids: dict[str, MessageId] = {}
    names = ["ID:broker-7:1:1", "123e4567-e89b-12d3-a456-426614174000", "\u00e9t\u00e9 \\ 1"]
    # As long as names may be; escaped in a header, they are twice as long.
    names += ["x" * 1_024, "\\" * 1_024]

    async def talk() -> None:
        tracking = msgspec.convert({"recorder": recorder}, TrackingConfig)
        async with service(tmp_path, tracking=tracking) as running:
            client = await Client.connect(running.port)
            for name in names:
                client.publish("quotes", b"1", **{"message-id": name}, receipt="r")
                ids[name] = MessageId.parse(dict((await client.frame()).headers)["message-id"])
            client.publish("quotes", b"2", receipt="r")
            client.publish("quotes", b"2", **{"message-id": "x" * 1_025}, receipt="r")
            for _ in range(2):
                await client.frame()
            client.send("BEGIN", transaction="t")
            client.publish("quotes", b"3", **{"message-id": "in a transaction"}, transaction="t")
            client.send("COMMIT", transaction="t", receipt="c")
            ids["in a transaction"] = MessageId.parse(dict((await client.frame()).headers)["message-id"])
            assert running.tracking is not None
            assert await running.tracking.aliased(names[0]) == ([ids[names[0]]], [])
            await client.close()

    run(talk)
    trail = Trail(tmp_path / "trail")
    for name, identity in ids.items():
        assert trail.aliased(name) == [identity]
    with pytest.raises(AliasError, match="1,025 bytes is never recorded"):
        trail.aliased("x" * 1_025)


def test_a_trace_does_not_wait_for_ever_for_a_disk_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_module, "READ_SECONDS", 0.2)
    answers = threading.Event()

    async def talk() -> None:
        async with service(tmp_path, tracking=TrackingConfig()) as running:
            client = await Client.connect(running.port)
            message = await published(client, 1)
            tracking, inquiry = running.tracking, running.inquiry
            assert tracking is not None
            assert inquiry is not None
            stuck = asyncio.create_task(tracking.writer.in_thread(answers.wait))
            await asyncio.sleep(0)
            journey = (await inquiry.trace(message)).journey
            assert [stop.broker for stop in journey.stops] == [1]
            assert journey.verdict is Verdict.RECORDED_IN_PART
            assert ["the disk has not answered" in gap.reason for _, gap in journey.gaps] == [True]
            answers.set()
            await stuck
            assert (await inquiry.trace(message)).journey.verdict is Verdict.MATCHED_NOBODY
            await client.close()

    run(talk)


def test_aliases_are_recorded_for_messages_that_bear_one(tmp_path: Path) -> None:
    ids: list[MessageId] = []

    async def talk() -> None:
        async with service(tmp_path, tracking=TrackingConfig(alias_attribute="order")) as running:
            client = await Client.connect(running.port)
            client.publish("quotes", b"1", order="A-17", receipt="r")
            ids.append(MessageId.parse(dict((await client.frame()).headers)["message-id"]))
            client.publish("quotes", b"2", receipt="r")
            await client.frame()
            await client.close()

    run(talk)
    assert Trail(tmp_path / "trail").aliased("A-17") == ids


def test_aliases_that_are_too_many_or_too_long_are_left_out_and_searches_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chronicle, "MAX_ALIAS_BYTES", 2_000)

    async def talk() -> None:
        async with service(tmp_path, admin_port=0, tracking=TrackingConfig(alias_attribute="order")) as running:
            client = await Client.connect(running.port)

            async def publish(order: str) -> None:
                client.publish("quotes", b"1", order=order, receipt="r")
                await client.frame()

            async def search(order: str) -> tuple[list[str], list[str]]:
                status, body = await get(running.admin_port, f"/aliases/{order}")
                assert status == 200, body
                found = json.loads(body)
                return found["ids"], found["may_hide"]

            for order in ("", "x" * 1_025):
                await publish(order)
            for order in ("", "x" * 1_025):
                # Messages have it, and nobody knows which.
                status, body = await get(running.admin_port, f"/aliases/{order}")
                assert (status, "never recorded" in body) == (400, True)
            for number in range(9):
                await publish(f"{number:0500}")
            assert await search(f"{8:0500}") == ([], [f"broker 1: {GapReason.LEFT_OUT}"])
            assert json.loads((await get(running.admin_port, "/status"))[1])["tracking"]["aliases_left_out"] == 7
            await client.close()

    run(talk)
    trail = Trail(tmp_path / "trail")
    assert len(trail.aliased(f"{1:0500}")) == 1
    assert trail.may_hide() == [f"broker 1: {GapReason.LEFT_OUT}"]


def test_what_has_a_receipt_survives_a_crash_with_a_journal_and_is_a_gap_without(tmp_path: Path) -> None:
    """The crash: the directories as they are at one moment, under a broker that never gets to stop."""
    ids: dict[bool, MessageId] = {}

    async def talk(journal: bool) -> None:
        data = tmp_path / f"journal-{journal}"
        tracking = TrackingConfig(journal=journal)
        async with service(data, tracking=tracking) as running:
            reader = await subscriber(running)
            sender = await Client.connect(running.port)
            ids[journal] = await published(sender, 7)
            assert (await reader.frame()).body == b"7"
            shutil.copytree(data, tmp_path / f"crashed-{journal}")
            for client in (reader, sender):
                await client.close()
        async with service(tmp_path / f"crashed-{journal}", tracking=tracking):
            pass

    for journal in (True, False):
        run(partial(talk, journal))
        before = Trail(tmp_path / f"journal-{journal}" / "trail").trace(ids[journal])
        assert before.journey.verdict is Verdict.DELIVERED
        after = Trail(tmp_path / f"crashed-{journal}" / "trail").trace(ids[journal])
        if journal:
            # What the crashed broker did with the message is on record as a whole, whatever came after.
            assert after.journey.verdict is Verdict.DELIVERED
            assert after.journey.certainty == 1.0
            assert len(after.journey.delivered) == 1
        else:
            assert after.journey.verdict is Verdict.NOT_RECORDED
            assert not after.journey.stops
