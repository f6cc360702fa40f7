"""Durable subscriptions over sockets: they miss nothing while their client, or the broker, is away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from postroad.broker import QueueSettings
from postroad.store import StoreSettings
from tests.server.durable_scene import (
    SPELLINGS,
    bodies,
    connect,
    publish,
    redelivered,
    said,
    subscribe,
    take,
)
from tests.server.failing_disk import fail
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_client_that_returns_gets_what_came_while_it_was_away(tmp_path: Path, spelling: str) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await connect(broker.port)
            await subscribe(client, spelling, ack="client-individual")
            await publish(broker.port, 1, 2)
            assert bodies(await take(client, 2)) == [1, 2]
            await said(client, "DISCONNECT")
            await client.close()
            await publish(broker.port, 3, 4)
            assert broker.statistics().durable_away_now == 1
            client = await connect(broker.port)
            await subscribe(client, spelling, ack="client-individual")
            frames = await take(client, 2)
            assert bodies(frames) == [3, 4]
            assert redelivered(frames) == [False, False]
            await client.close()

    run(talk)


@pytest.mark.parametrize("header", ["prefetch-count", "activemq.prefetchSize"])
def test_client_gets_no_more_than_its_prefetch_until_it_acknowledges(tmp_path: Path, header: str) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            durable, plain = await connect(broker.port), await Client.connect(broker.port)
            await subscribe(durable, ack="client-individual", **{header: "2"})
            await plain.subscribe("1", "a", ack="client", **{header: "2"})
            await publish(broker.port, 1, 2, 3, 4, 5)
            for client in (durable, plain):
                frames = await take(client, 2, acknowledge=False)
                await said(client, "BEGIN", transaction="nothing came in between")
                client.send("ACK", id=frames[1].headers["ack"])
                seen = bodies(frames + await take(client, 1, acknowledge=False))
                assert seen == [1, 2, 3]
            # One acknowledged one of two, the other both at once.
            assert bodies(await take(plain, 1, acknowledge=False)) == [4]
            assert broker.statistics().unacknowledged_now == 4
            # Without the header it has no bound of its own any more.
            await said(durable, "DISCONNECT")
            await durable.close()
            durable = await connect(broker.port)
            await subscribe(durable, ack="client-individual")
            assert bodies(await take(durable, 4, acknowledge=False)) == [1, 3, 4, 5]
            await durable.close()
            await plain.close()

    run(talk)


@pytest.mark.parametrize("asked", [{}, {"durable": "true", "auto-delete": "false"}])
def test_a_prefetch_that_is_no_number_is_refused_and_subscribes_nothing(tmp_path: Path, asked: dict[str, str]) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await connect(broker.port)
            client.send("SUBSCRIBE", id="1", destination="/topic/a", **asked, **{"prefetch-count": "many"})
            assert "it is a number of messages" in (await client.frame()).headers["message"]
            assert broker.statistics().durable_now == 0
            await client.close()

    run(talk)


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_durable_subscription_survives_a_restart_of_the_broker(tmp_path: Path, fsync: Any) -> None:
    async def talk() -> None:
        settings = StoreSettings(fsync=fsync)
        async with service(tmp_path, store=settings) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client", selector="n <> 3")
            await said(client, "DISCONNECT")
            await client.close()
            await publish(broker.port, 1, 2, 3)
        async with service(tmp_path, store=settings) as broker:
            await publish(broker.port, 3, 4)
            client = await connect(broker.port)
            await subscribe(client, ack="client", selector="n <> 3")
            frames = await take(client, 3)
            assert bodies(frames) == [1, 2, 4]
            assert redelivered(frames) == [False, False, False]
            await said(client, "DISCONNECT")
            await client.close()
        async with service(tmp_path, store=settings) as broker:
            assert broker.statistics().stored_messages_now == 0
            assert broker.statistics().durable_now == 1

    run(talk, patience=120)


def test_message_that_is_not_acknowledged_comes_again_and_is_marked(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client-individual")
            await publish(broker.port, 1, 2, 3)
            frames = await take(client, 3, acknowledge=False)
            await said(client, "ACK", id=frames[1].headers["ack"])
            client.writer.transport.abort()
            await until(lambda: broker.statistics().durable_away_now == 1)
            client = await connect(broker.port)
            await subscribe(client, ack="client-individual")
            await publish(broker.port, 4)
            frames = await take(client, 3)
            assert bodies(frames) == [1, 3, 4]
            assert redelivered(frames) == [True, True, False]
            await client.close()

    run(talk)


def test_changed_selector_keeps_what_had_matched(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client", selector="n < 10")
            await said(client, "DISCONNECT")
            await client.close()
            await publish(broker.port, 1, 50)
            client = await connect(broker.port)
            await subscribe(client, ack="client", selector="n > 10", topic="b")
            await publish(broker.port, 2, 60, topic="b")
            await publish(broker.port, 3, 70)
            assert bodies(await take(client, 2)) == [1, 60]
            await said(client, "DISCONNECT")
            await client.close()
        async with service(tmp_path) as broker:
            await publish(broker.port, 4, 80, topic="b")
            client = await connect(broker.port)
            await subscribe(client, ack="client", selector="n > 10", topic="b")
            assert bodies(await take(client, 1)) == [80]
            await client.close()

    run(talk, patience=120)


def test_ten_subscriptions_get_a_message_that_is_stored_once(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            for number in range(10):
                client = await Client.connect(broker.port, **{"client-id": f"c{number}"})
                await subscribe(client, ack="client")
                await said(client, "DISCONNECT")
                await client.close()
            writer = await Client.connect(broker.port)
            writer.publish("a", bytes(100_000), receipt="r")
            assert (await writer.frame()).command == "RECEIPT"
            store = broker.storage.log
            assert store is not None
            assert store.size < 150_000
            assert broker.statistics().stored_messages_now == 10
            for number in range(10):
                client = await Client.connect(broker.port, **{"client-id": f"c{number}"})
                await subscribe(client, ack="client")
                assert len((await client.frame()).body) == 100_000
                await client.close()
            await writer.close()

    run(talk)


def test_unsubscribe_leaves_a_durable_subscription_and_deletes_it_when_it_names_it(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client")
            await said(client, "UNSUBSCRIBE", id="orders")
            assert broker.statistics().durable_away_now == 1
            await publish(broker.port, 1)
            await subscribe(client, ack="client")
            assert bodies(await take(client, 1, acknowledge=False)) == [1]
            await said(client, "UNSUBSCRIBE", id="orders", **SPELLINGS["activemq"])
            assert broker.statistics().durable_now == 0
            await until(lambda: broker.statistics().shed_stored == 1)
            await subscribe(client, ack="client")
            await said(client, "UNSUBSCRIBE", id="orders")
            await said(client, "UNSUBSCRIBE", id="orders", **SPELLINGS["activemq"])
            assert broker.statistics().durable_now == 0
            await client.close()
        async with service(tmp_path) as broker:
            assert broker.statistics().durable_now == 0

    run(talk, patience=120)


def test_second_connection_takes_a_durable_subscription_over(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            first, second = await connect(broker.port), await connect(broker.port)
            await subscribe(first, ack="client")
            await publish(broker.port, 1)
            assert bodies(await take(first, 1, acknowledge=False)) == [1]
            await subscribe(second, ack="client")
            error = await first.frame()
            assert error.command == "ERROR"
            assert "taken over" in error.headers["message"]
            frames = await take(second, 1)
            assert (bodies(frames), redelivered(frames)) == ([1], [True])
            for client in (first, second):
                await client.close()

    run(talk)


@pytest.mark.parametrize(
    ("connected", "headers", "said"),
    [
        ({}, SPELLINGS["activemq"], "client-id"),
        ({"client-id": "c"}, {"durable": "true", "auto-delete": "true"}, "contradict"),
        ({"client-id": "c"}, {"activemq.subscriptionName": ""}, "1 to 255 bytes"),
        ({"client-id": "x" * 300}, SPELLINGS["activemq"], "1 to 255 bytes"),
    ],
)
def test_subscribe_that_does_not_say_whose_it_is_is_refused(
    tmp_path: Path, connected: dict[str, str], headers: dict[str, str], said: str
) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await Client.connect(broker.port, **connected)
            client.send("SUBSCRIBE", id="1", destination="/topic/a", **headers)
            answer = await client.frame()
            assert answer.command == "ERROR"
            assert said in answer.headers["message"]
            await client.close()

    run(talk)


def test_durable_subscription_belongs_to_who_made_it(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            ann, bob = await connect(broker.port, login="ann"), await connect(broker.port, login="bob")
            await subscribe(ann)
            bob.send("SUBSCRIBE", id="1", destination="/topic/a", **SPELLINGS["activemq"])
            answer = await bob.frame()
            assert answer.command == "ERROR"
            assert "belongs to unverified:ann" in answer.headers["message"]
            for client in (ann, bob):
                await client.close()

    run(talk)


def test_full_disk_refuses_publishers_with_the_reason_and_goes_on_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.server.store_driver.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("postroad.server.store_driver.GIVE_UP_SECONDS", 0.05)

    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client")
            await publish(broker.port, 1)
            disk = fail(broker)
            writer = await Client.connect(broker.port)
            writer.publish("a", b"2", receipt="r")
            answer = await writer.frame()
            assert answer.command == "ERROR"
            assert "No space left" in answer.headers["message"]
            # Those that come now are refused at once, whether they ask for a receipt or not; others are served.
            other = await Client.connect(broker.port)
            other.publish("b", b"fine", receipt="r")
            assert (await other.frame()).command == "RECEIPT"
            other.publish("a", b"3")
            answer = await other.frame()
            assert (
                "a durable subscription or a retained topic wants this, and it cannot be stored"
                in answer.headers["message"]
            )
            # What is stored stays readable.
            assert bodies(await take(client, 1)) == [1]
            disk.failing = False
            await until(lambda: not broker.storage.trouble)
            await publish(broker.port, 4)
            # 2 was never confirmed, and never denied: it was written when there was room.
            assert bodies(await take(client, 2)) == [2, 4]
            for each in (client, writer, other):
                await each.close()

    run(talk)


def test_expired_message_is_not_delivered_when_the_client_returns(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client")
            await said(client, "DISCONNECT")
            await client.close()
            writer = await Client.connect(broker.port)
            soon = str(broker.dispatcher.clock() + 300)
            writer.publish("a", b"1", receipt="r", expires=soon)
            writer.publish("a", b"2", receipt="r")
            for _ in range(2):
                assert (await writer.frame()).command == "RECEIPT"
            await until(lambda: broker.dispatcher.clock() > int(soon))
            client = await connect(broker.port)
            await subscribe(client, ack="client")
            assert bodies(await take(client, 1)) == [2]
            assert broker.statistics().shed_expired == 1
            for each in (client, writer):
                await each.close()

    run(talk)


def test_what_waited_too_long_is_given_up_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.server.store_driver.LOOK_SECONDS", 0.02)

    async def talk() -> None:
        async with service(tmp_path, store=StoreSettings(max_age_seconds=1)) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client")
            await said(client, "DISCONNECT")
            await client.close()
            await publish(broker.port, 1, 2)
            await until(lambda: broker.statistics().shed_stored == 2)
            assert broker.statistics().stored_messages_now == 0

    run(talk)


def test_durable_subscription_at_its_limit_stops_where_that_is_chosen_until_its_client_returns(tmp_path: Path) -> None:
    async def talk() -> None:
        settings = StoreSettings(subscription_bytes=500, at_limit="stop")
        async with service(tmp_path, store=settings) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client")
            await said(client, "DISCONNECT")
            await client.close()
            for number in range(1, 9):
                await publish(broker.port, number)
            stored = broker.statistics().stored_messages_now
            assert 0 < stored < 8
        async with service(tmp_path, store=settings) as broker:
            await publish(broker.port, 20)
            assert broker.statistics().stored_messages_now == stored
            client = await connect(broker.port)
            await subscribe(client, ack="client")
            assert bodies(await take(client, stored)) == list(range(1, stored + 1))
            await publish(broker.port, 21)
            assert bodies(await take(client, 1)) == [21]
            await client.close()

    run(talk, patience=120)


def test_login_has_no_more_durable_subscriptions_than_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.broker.durables.MAX_DURABLES_PER_PRINCIPAL", 2)

    async def talk() -> None:
        async with service(tmp_path) as broker:
            for number in range(3):
                client = await Client.connect(broker.port, **{"client-id": f"c{number}", "login": "ann"})
                client.send("SUBSCRIBE", id="1", destination="/topic/a", receipt="r", **SPELLINGS["activemq"])
                answer = await client.frame()
                assert answer.command == ("RECEIPT" if number < 2 else "ERROR")
                await client.close()
            assert "unverified:ann has 2 durable subscriptions" in answer.headers["message"]
            bob = await Client.connect(broker.port, **{"client-id": "c", "login": "bob"})
            await subscribe(bob)
            await bob.close()

    run(talk)


def test_message_that_a_durable_subscription_refuses_comes_again_and_then_is_a_dead_letter(tmp_path: Path) -> None:
    async def talk() -> None:
        settings = QueueSettings(max_deliveries=2, redelivery_ms=1)
        async with service(tmp_path, queues=settings) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client-individual")
            await publish(broker.port, 1, 2)
            first, second = await take(client, 2, acknowledge=False)
            client.send("ACK", id=second.headers["ack"])
            client.send("NACK", id=first.headers["ack"])
            (again,) = await take(client, 1, acknowledge=False)
            assert (bodies([again]), redelivered([again])) == ([1], [True])
            assert again.headers["JMSXDeliveryCount"] == "2"
            await said(client, "NACK", id=again.headers["ack"])
            assert broker.statistics().dead_lettered == 1
            reader = await Client.connect(broker.port)
            reader.send("SUBSCRIBE", id="1", destination="/queue/DLQ.cellar/orders")
            dead = await reader.frame()
            assert (dead.body, dead.headers["dead-letter-subscription"]) == (b"1", "cellar/orders")
            for each in (client, reader):
                await each.close()
        async with service(tmp_path, queues=settings) as broker:
            assert broker.statistics().stored_messages_now == 0

    run(talk, patience=60)


def test_refused_message_waits_no_longer_when_its_client_has_left(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, queues=QueueSettings(redelivery_ms=60_000)) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client-individual")
            await publish(broker.port, 1)
            (frame,) = await take(client, 1, acknowledge=False)
            await said(client, "NACK", id=frame.headers["ack"])
            await said(client, "UNSUBSCRIBE", id="orders")
            await subscribe(client, ack="client-individual")
            frames = await take(client, 1)
            assert (bodies(frames), redelivered(frames)) == ([1], [True])
            await client.close()

    run(talk)
