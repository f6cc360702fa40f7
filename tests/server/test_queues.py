"""Queues over sockets: each message goes to one consumer, and is there until one has acknowledged it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.broker import QueueSettings, queue_home
from postroad.config import NetworkConfig
from tests.server.queue_scene import answer, consumer, messages, produce, texts
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path

SOON = QueueSettings(redelivery_ms=1, max_deliveries=3)


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_messages_wait_for_a_consumer_and_go_to_one_only(tmp_path: Path, ack: str) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            await produce(broker.port, "a", "b")
            first = await consumer(broker.port, ack=ack)
            frames = await messages(first, 2)
            assert texts(frames) == ["a", "b"]
            assert frames[0].headers["destination"] == "/queue/work"
            assert "redelivered" not in frames[0].headers
            if ack == "client":
                await answer(first, "ACK", frames[1])
            if ack == "client-individual":
                for frame in frames:
                    await answer(first, "ACK", frame)
            second = await consumer(broker.port, ack=ack)
            await first.close()
            await produce(broker.port, "c")
            assert texts(await messages(second, 1)) == ["c"]
            await second.close()
        async with service(tmp_path) as broker:
            await produce(broker.port, "d")
            third = await consumer(broker.port)
            assert texts(await messages(third, 1 if ack == "auto" else 2))[-1] == "d"
            await third.close()

    run(talk, patience=60)


def test_consumers_share_what_comes_and_topics_see_none_of_it(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            reader = await Client.connect(broker.port)
            await reader.subscribe("1", ">")
            consumers = [await consumer(broker.port, **{"prefetch-count": "2"}) for _ in range(2)]
            await produce(broker.port, *"abcdef")
            found = [await messages(each, 2) for each in consumers]
            assert sorted(texts(found[0]) + texts(found[1])) == list("abcd")
            for frame in found[0]:
                consumers[0].send("ACK", id=frame.headers["ack"])
            assert texts(await messages(consumers[0], 2)) == ["e", "f"]
            reader.publish("x", b"a topic")
            assert (await reader.frame()).body == b"a topic"
            for each in (reader, *consumers):
                await each.close()

    run(talk)


def test_refused_message_comes_again_counted_and_then_goes_to_the_dead_letter_queue(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, queues=SOON) as broker:
            client = await consumer(broker.port)
            await produce(broker.port, "poison", "fine")
            frames = await messages(client, 2)
            await answer(client, "ACK", frames[1])
            for count in (2, 3):
                client.send("NACK", id=frames[0].headers["ack"])
                frames = await messages(client, 1)
                assert frames[0].headers["redelivered"] == "true"
                assert frames[0].headers["JMSXDeliveryCount"] == str(count)
            await answer(client, "NACK", frames[0])
            dead = await consumer(broker.port, "DLQ.work")
            (frame,) = await messages(dead, 1)
            assert frame.body == b"poison"
            assert frame.headers["dead-letter-queue"] == "work"
            assert frame.headers["dead-letter-reason"] == "refused, delivery 3"
            await answer(dead, "NACK", frame)
            await dead.close()
            await client.close()
        async with service(tmp_path, queues=SOON) as broker:
            dead = await consumer(broker.port, "DLQ.work")
            (frame,) = await messages(dead, 1)
            assert (frame.body, frame.headers["dead-letter-queue"]) == (b"poison", "work")
            await dead.close()

    run(talk, patience=60)


def test_message_that_is_due_soon_does_not_wait_for_one_that_came_back_before_it(tmp_path: Path) -> None:
    async def talk() -> None:
        # What is refused twice in a dead-letter queue waits as long as any; the other message waits a moment.
        long = QueueSettings(redelivery_ms=1, max_deliveries=2, max_redelivery_ms=3_600_000)
        async with service(tmp_path, queues=long) as broker:
            late, soon = await consumer(broker.port, "DLQ.work"), await consumer(broker.port)
            await produce(broker.port, "late", queue="DLQ.work")
            (frame,) = await messages(late, 1)
            late.send("NACK", id=frame.headers["ack"])
            (frame,) = await messages(late, 1)
            await answer(late, "NACK", frame)
            await produce(broker.port, "soon")
            (frame,) = await messages(soon, 1)
            soon.send("NACK", id=frame.headers["ack"])
            (frame,) = await messages(soon, 1)
            assert frame.headers["JMSXDeliveryCount"] == "2"
            await late.close()
            await soon.close()

    run(talk, patience=60)


def test_message_of_a_lost_consumer_goes_to_another_at_once(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            first = await consumer(broker.port)
            await produce(broker.port, "a", "b")
            assert texts(await messages(first, 2)) == ["a", "b"]
            second = await consumer(broker.port)
            first.writer.transport.abort()
            frames = await messages(second, 2)
            assert texts(frames) == ["a", "b"]
            assert [frame.headers["JMSXDeliveryCount"] for frame in frames] == ["2", "2"]
            await second.close()
            await first.close()

    run(talk)


def test_broker_keeps_what_is_sent_to_a_queue_whose_home_it_has_no_way_to(tmp_path: Path) -> None:
    async def talk() -> None:
        homes = {name: queue_home(name, [1, 2]) for name in ("a", "b", "c", "d", "e")}
        here = next(name for name, home in homes.items() if home == 1)
        away = next(name for name, home in homes.items() if home == 2)
        async with service(tmp_path, network=NetworkConfig(brokers=[1, 2], strategy="flood")) as broker:
            await produce(broker.port, "x", queue=here)
            client = await consumer(broker.port, here)
            assert texts(await messages(client, 1)) == ["x"]
            await produce(broker.port, "y", "z", queue=away)
            assert broker.statistics().outgoing_messages_now == 2
            waiting = await consumer(broker.port, away)
            await waiting.close()
            await client.close()

    run(talk)


def test_what_a_publisher_sends_again_after_a_restart_is_stored_once(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await Client.connect(broker.port, **{"postroad-ids": "client"})
            said = client.connected.headers
            start = f"{int(said['postroad-publisher']):08x}-{int(said['postroad-broker']):08x}-"
            time = f"{int(said['server-time']):012x}"
            ids = [f"{start}{time}-{number:04x}" for number in range(4)]
            for number in (0, 1):
                client.send("SEND", b"%d" % number, destination="/queue/work", **{"message-id": ids[number]})
            await until(lambda: broker.statistics().queued_messages_now == 2)
            client.writer.transport.abort()
        async with service(tmp_path) as broker:
            was = {name: said[name] for name in ("postroad-publisher", "postroad-token")}
            client = await Client.connect(broker.port, **{"postroad-ids": "client"}, **was)
            assert client.connected.headers["postroad-publisher"] == said["postroad-publisher"]
            for number in (0, 1, 2):
                headers = {"message-id": ids[number], "receipt": str(number)}
                client.send("SEND", b"%d" % number, destination="/queue/work", **headers)
            for number in (0, 1, 2):
                assert (await client.frame()).headers["receipt-id"] == str(number)
            assert broker.statistics().resent == 2
            worker = await consumer(broker.port)
            assert texts(await messages(worker, 3)) == ["0", "1", "2"]
            assert broker.statistics().queued_messages_now == 0
            for each in (client, worker):
                await each.close()

    run(talk, patience=60)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"destination": "/queue/a.*"}, "wildcards"),
        ({"destination": "/queue/a", "prefetch-count": "many"}, "it is a number of messages"),
        ({"destination": "/queue/>"}, "the name of a queue, or of a topic published to, cannot have >"),
        ({"destination": "/queue/a", "selector": "n >"}, "selector"),
        ({"destination": "/queue/a", "from": "first"}, "a queue has no past"),
        ({"destination": f"/queue/{'a' * 256}"}, "at most 255 bytes"),
        ({"destination": "/queue/one-too-many"}, "2 queues, the limit"),
    ],
)
def test_subscribe_that_cannot_be_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], said: str
) -> None:
    monkeypatch.setattr("postroad.broker.queue_quota.MAX_QUEUES", 2)

    async def talk() -> None:
        async with service(tmp_path) as broker:
            await produce(broker.port, "x", queue="first")
            if "many" in headers["destination"]:
                await produce(broker.port, "x", queue="second")
            client = await Client.connect(broker.port)
            client.send("SUBSCRIBE", id="1", **headers)
            error = await client.frame()
            assert (error.command, said in error.headers["message"].lower()) == ("ERROR", True), error
            await client.close()
            # Others are served.
            other = await consumer(broker.port, "first")
            assert texts(await messages(other, 1)) == ["x"]
            await other.close()

    run(talk)
