"""A client and a broker of ours, over sockets of this machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from postroad.broker import QueueSettings
from postroad.client import ClientError, ReceivedMessage, connect
from postroad.messages import Draft
from tests.client.serving import address, broker, run, until

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.client import Subscription
    from postroad.messages import Value


async def take(subscription: Subscription, count: int) -> list[ReceivedMessage]:
    return [await subscription.get() for _ in range(count)]


def test_subscriber_gets_what_its_selector_wants_with_the_publisher_s_ids(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:
            async with client.subscribe("quotes.>", where="price > 20 AND stock = 'S:1'") as quotes:
                low = await client.publish("quotes.tokyo", {"price": 10, "stock": "S:1"}, receipt=True)
                high = await client.publish("quotes.tokyo", {"price": 20.5, "stock": "S:1"}, "höher", receipt=True)
                message = await quotes.get()
            assert low is not None
            assert low < message.id == high
            assert (message.topic, message.text) == ("quotes.tokyo", "höher")
            assert message.attributes == {"price": "20.5", "stock": "S:1"}
            assert (message.number("price"), message.number("stock"), message.number("gone")) == (20.5, None, None)

    run(talk())


def test_values_arrive_as_text_that_selectors_read_as_the_same_numbers(tmp_path: Path) -> None:
    sent: dict[str, Value] = {
        "whole": -(2**63),
        "large": 1e300,
        "small": 5e-324,
        "text": "a:b\\c\nd\re",
        "flag": True,
        "empty": "",
    }
    where = "whole = -9223372036854775808 AND large = 1e300 AND small = 5e-324 AND flag = 'true' AND empty = ''"

    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:
            async with client.subscribe("a", where) as subscription:
                await client.publish("a", sent, b"\0\n\0", headers={"content-type": "image/png"})
                message = await subscription.get()
            shown = {"large": "1e+300", "small": "5e-324", "whole": str(-(2**63)), "flag": "true"}
            assert message.attributes == {**sent, **shown, "content-type": "image/png"}
            assert message.body == b"\0\n\0"

    run(talk())


def test_many_are_published_in_order_with_rising_ids(tmp_path: Path) -> None:
    drafts = [Draft("a.b", {"n": number}, body=b"x" * (number % 7)) for number in range(2_500)]

    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:
            async with client.subscribe("a.*", queue=200) as subscription:
                ids = await client.publish_many(drafts, receipt=True)
                got = await take(subscription, len(drafts))
            assert ids == sorted(set(ids))
            assert [message.id for message in got] == ids
            assert [message.number("n") for message in got] == list(range(2_500))
            later = await client.publish_many(drafts[:3])
            assert [*ids, *later] == sorted({*ids, *later})
            await until(lambda: service.statistics().accepted == 2_503)

    run(talk())


def test_loop_subscribes_when_it_begins_and_unsubscribes_when_it_ends(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:

            async def publish() -> None:
                await until(lambda: service.statistics().subscriptions_now == 1)
                await client.publish_many([Draft("a", {"n": number}) for number in range(5)])

            task = asyncio.create_task(publish())
            got = []
            async for message in client.subscribe("a"):
                got.append(message.number("n"))
                if message.number("n") == 2:
                    break
            await task
            assert got == [0, 1, 2]
            await until(lambda: service.statistics().subscriptions_now == 0)
            assert service.statistics().accepted == 5

    run(talk())


def test_what_arrived_can_be_taken_after_unsubscribing_and_then_it_ends(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:
            subscription = client.subscribe("a")
            with pytest.raises(ClientError, match="is not started"):
                await subscription.get()
            await subscription.start()
            await client.publish("a", {"n": 1})
            await until(lambda: subscription.waiting == 1)
            await client.unsubscribe(subscription)
            await client.publish("a", {"n": 2}, receipt=True)
            assert [message.number("n") async for message in subscription] == [1]
            with pytest.raises(ClientError, match="has ended"):
                await subscription.get()
            with pytest.raises(ClientError, match="started before"):
                await subscription.start()

    run(talk())


def test_individual_acknowledgements_are_counted_by_the_broker(tmp_path: Path) -> None:
    async def talk() -> None:
        async with (
            broker(tmp_path) as service,
            connect(address(service)) as client,
            client.subscribe("a", ack="client-individual") as subscription,
        ):
            await client.publish_many([Draft("a")] * 3)
            first, second, third = await take(subscription, 3)
            await client.ack(third)
            await client.nack(second)
            await client.ack(first)
            await until(lambda: service.statistics().acknowledged == 2)
            assert service.statistics().refused == 1

    run(talk())


def test_acknowledging_what_needs_none_is_refused_here(tmp_path: Path) -> None:
    async def talk() -> None:
        async with (
            broker(tmp_path) as service,
            connect(address(service)) as client,
            client.subscribe("a") as subscription,
        ):
            await client.publish("a")
            message = await subscription.get()
            with pytest.raises(ClientError, match="ack='auto'"):
                await client.ack(message)
            assert await client.publish("a", receipt=True) is not None

    run(talk())


def test_transaction_publishes_and_acknowledges_at_its_end(tmp_path: Path) -> None:
    async def talk() -> None:
        async with (
            broker(tmp_path) as service,
            connect(address(service)) as client,
            client.subscribe("in", ack="client-individual") as inbox,
            client.subscribe("out") as outbox,
        ):
            await client.publish("in")
            request = await inbox.get()
            async with client.transaction() as transaction:
                await transaction.publish("out", {"n": 1}, "one")
                await transaction.publish("out", {"n": 2}, "two")
                await transaction.ack(request)
                await client.publish("mark", receipt=True)
                assert service.statistics().accepted == 2
            got = await take(outbox, 2)
            assert [message.text for message in got] == ["one", "two"]
            assert (transaction.first_id, transaction.count) == (got[0].id, 2)
            assert service.statistics().acknowledged == 1

    run(talk())


def test_transaction_whose_block_raises_leaves_nothing(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:
            transaction = client.transaction()

            async def fail() -> None:
                async with transaction:
                    await transaction.publish("a")
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            await client.publish("b", receipt=True)
            assert service.statistics().accepted == 1
            assert transaction.first_id is None

    run(talk())


def test_empty_transaction_has_no_first_id(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:
            async with client.transaction() as transaction:
                pass
            assert (transaction.first_id, transaction.count) == (None, 0)

    run(talk())


def test_subscribing_that_is_cancelled_leaves_no_subscription_behind(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:
            task = asyncio.create_task(client.subscribe("a").start())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.publish("b", receipt=True)
            assert service.statistics().subscriptions_now == 0

    run(talk())


def test_subscriber_chooses_what_happens_when_it_is_too_slow(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:
            async with client.subscribe("a", overflow="push-back"):
                pass
            with pytest.raises(ClientError, match="choose one of"):
                await client.subscribe("a", overflow="explode").start()  # type: ignore[arg-type]

    run(talk())


def test_message_refused_in_a_transaction_counts_when_it_commits(tmp_path: Path) -> None:
    async def talk() -> None:
        async with (
            broker(tmp_path) as service,
            connect(address(service)) as client,
            client.subscribe("a", ack="client-individual") as subscription,
        ):
            await client.publish("a")
            message = await subscription.get()
            transaction = client.transaction()
            with pytest.raises(ClientError, match="has not begun"):
                await transaction.nack(message)
            async with transaction:
                await transaction.nack(message)
                await client.publish("b", receipt=True)
                assert service.statistics().refused == 0
            assert service.statistics().refused == 1
            with pytest.raises(ClientError, match="used once"):
                await transaction.__aenter__()

    run(talk())


def test_queue_without_room_is_refused() -> None:
    async def talk() -> None:
        with pytest.raises(ClientError, match="1 message or more"):
            connect("stomp://127.0.0.1").subscribe("a", queue=0)

    run(talk())


@pytest.mark.parametrize(
    ("topic", "choices", "told"),
    [
        ("/queue/q", {"durable": "d"}, "leave out durable"),
        ("/queue/q", {"overflow": "spool"}, "leave out overflow"),
        ("a", {"durable": "d", "overflow": "spool"}, "leave out overflow"),
        ("a", {"prefetch": 5}, "leave out prefetch, or choose ack"),
    ],
)
def test_choice_that_the_broker_would_ignore_is_refused(topic: str, choices: dict[str, Any], told: str) -> None:
    async def talk() -> None:
        with pytest.raises(ClientError, match=told):
            connect("stomp://127.0.0.1").subscribe(topic, **choices)

    run(talk())


def test_queue_hands_each_message_to_one_client_and_again_if_it_is_refused(tmp_path: Path) -> None:
    async def talk() -> None:
        settings = QueueSettings(redelivery_ms=1)
        async with broker(tmp_path, queues=settings) as service, connect(address(service)) as client:
            await client.publish("/queue/work", {"n": 1}, "one", receipt=True)
            work = client.subscribe("/queue/work", where="n = 1", ack="client-individual", prefetch=5)
            async with work as subscription:
                message = await subscription.get()
                assert (message.topic, message.text) == ("/queue/work", "one")
                await client.nack(message)
                again = await subscription.get()
                assert (again.id, again.attributes["redelivered"]) == (message.id, "true")
                await client.ack(again)

    run(talk())


def test_durable_subscription_keeps_what_comes_while_the_client_is_away(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service)) as client:
            async with client.subscribe("a", durable="mine", ack="client"):
                pass
            await client.publish("a", {}, "meanwhile", receipt=True)
            async with client.subscribe("a", durable="mine", ack="client") as subscription:
                message = await subscription.get()
                assert message.text == "meanwhile"
                await client.ack(message)

    run(talk())
