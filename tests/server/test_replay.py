"""Retained topics over sockets: a subscriber begins in the past and goes on with what comes, also after a restart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import pytest

from postroad.config.tracking import TrackingConfig
from postroad.messages import MessageId
from postroad.store import RetainedTopic, StoreSettings
from postroad.tracking import Verdict
from postroad.trail import Trail
from tests.server.durable_scene import bodies, connect, publish, said, take
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path

# Small enough that history has to be read from disk.
SETTINGS = StoreSettings(retain=[RetainedTopic(topic="a.>", age="7d")], cache_bytes=20_000, segment_bytes=65_536)


def test_subscriber_gets_what_was_published_before_a_restart_and_goes_on_without_a_gap(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, store=SETTINGS) as broker:
            for first in range(0, 600, 100):
                await publish(broker.port, *range(first, first + 100), topic="a.x")
        async with service(tmp_path, store=SETTINGS) as broker:
            assert broker.statistics().retained_messages_now == 600
            # Somebody publishes all the while.
            publishing = asyncio.create_task(publish(broker.port, *range(600, 1_000), topic="a.y"))
            reader = await Client.connect(broker.port)
            reader.send("SUBSCRIBE", id="1", destination="/topic/a.>", **{"from": "first"})
            assert bodies(await take(reader, 1_000, acknowledge=False)) == list(range(1_000))
            await publishing
            await until(lambda: broker.statistics().replays_now == 0)
            await publish(broker.port, 1_000, 1_001, topic="a.x")
            assert bodies(await take(reader, 2, acknowledge=False)) == [1_000, 1_001]
            await reader.close()

    run(talk)


@pytest.mark.parametrize("recorder", ["exact", "sealed"])
def test_message_that_only_a_replay_delivered_is_not_said_to_match_nobody(
    tmp_path: Path, recorder: Literal["exact", "sealed"]
) -> None:
    trail = tmp_path / "trail"
    tracking = TrackingConfig(recorder=recorder, trail=str(trail))

    def told(message: str) -> tuple[Verdict, bool]:
        journey = Trail(trail).trace(MessageId.parse(message)).journey
        return journey.verdict, journey.certainty > 0.9

    async def talk() -> None:
        async with service(tmp_path, store=SETTINGS, tracking=tracking) as broker:
            await publish(broker.port, 1, topic="a.x")
        async with service(tmp_path, store=SETTINGS, tracking=tracking) as broker:
            reader = await Client.connect(broker.port)
            reader.send("SUBSCRIBE", id="1", destination="/topic/a.x", **{"from": "first"})
            message = (await take(reader, 1, acknowledge=False))[0].headers["message-id"]
            # The delivery is in the memory of the broker alone.
            assert told(message) == (Verdict.RECORDED_IN_PART, False)
            await reader.close()
        assert told(message) == (Verdict.DELIVERED, True)

    run(talk)


def test_subscriber_begins_behind_the_last_message_it_has_or_at_a_time(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, store=SETTINGS) as broker:
            await publish(broker.port, 1, 2, 3, topic="a.x")
            reader = await Client.connect(broker.port)
            reader.send("SUBSCRIBE", id="1", destination="/topic/a.x", selector="n <> 3", **{"from": "first"})
            frames = await take(reader, 2, acknowledge=False)
            assert bodies(frames) == [1, 2]
            await reader.close()
            second = frames[1].headers["message-id"]
            for header, expected in (("after", [3]), ("from", [2, 3, 4])):
                reader = await Client.connect(broker.port)
                reader.send("SUBSCRIBE", id="1", destination="/topic/a.x", **{header: second})
                assert bodies(await take(reader, len(expected), acknowledge=False)) == expected
                await publish(broker.port, 4, topic="a.x")
                assert bodies(await take(reader, 1, acknowledge=False)) == [4]
                await reader.close()
            reader = await Client.connect(broker.port)
            reader.send("SUBSCRIBE", id="1", destination="/topic/a.x", **{"from": "2100-01-01T00:00:00Z"})
            await publish(broker.port, 5, topic="a.x")
            assert bodies(await take(reader, 1, acknowledge=False)) == [5]
            await reader.close()

    run(talk)


def test_durable_subscription_that_begins_in_the_past_gets_history_once(tmp_path: Path) -> None:
    async def talk() -> None:
        headers = {"durable": "true", "auto-delete": "false", "ack": "client-individual", "from": "first"}
        async with service(tmp_path, store=SETTINGS) as broker:
            await publish(broker.port, 1, 2, 3, topic="a.x")
            client = await connect(broker.port)
            client.send("SUBSCRIBE", id="s", destination="/topic/a.>", **headers)
            assert bodies(await take(client, 2)) == [1, 2]
            assert bodies(await take(client, 1, acknowledge=False)) == [3]
            await said(client, "DISCONNECT")
            await client.close()
        async with service(tmp_path, store=SETTINGS) as broker:
            await publish(broker.port, 4, topic="a.y")
            client = await connect(broker.port)
            client.send("SUBSCRIBE", id="s", destination="/topic/a.>", **headers)
            frames = await take(client, 2)
            assert bodies(frames) == [3, 4]
            assert frames[0].headers["redelivered"] == "true"
            await client.close()

    run(talk)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"from": "yesterday"}, "from: 'yesterday' is not first, a time"),
        ({"from": "first", "after": "00000001-00000001-000000000001-0001"}, "contradict each other"),
        ({"after": "first"}, "is not a message id"),
        ({"from": "999999999999999"}, "outside the range"),
        ({"from": "first", "topic": "b"}, "no retained topic has all of it (retained are: a.>)"),
    ],
)
def test_subscription_from_nowhere_is_refused(tmp_path: Path, headers: dict[str, str], reason: str) -> None:
    async def talk() -> None:
        async with service(tmp_path, store=SETTINGS) as broker:
            reader = await Client.connect(broker.port)
            topic = headers.pop("topic", "a.x")
            reader.send("SUBSCRIBE", id="1", destination=f"/topic/{topic}", **headers)
            answer = await reader.frame()
            assert answer.command == "ERROR"
            assert reason in answer.headers["message"]
            await reader.close()

    run(talk)
