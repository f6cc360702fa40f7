"""What a slow subscriber cannot take waits in memory, then on disk; nothing is lost, and nothing comes out of order."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from postroad.broker import Limits
from postroad.store import StoreSettings
from tests.server.failing_disk import fail
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from postroad.server import Service

BODY = b"x" * 5_000
COUNT = 3_000
# A hundredth of it waits in memory.
SMALL = Limits(spool_memory_bytes=200_000)


async def publish(writer: Client, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        writer.publish("a", b"%d " % number + BODY)
        await writer.writer.drain()
    writer.publish("b", receipt="all")
    assert (await writer.frame()).command == "RECEIPT"


@asynccontextmanager
async def stalled(folder: Path, **settings: Any) -> AsyncIterator[tuple[Service, Client, Client]]:
    """A broker, a subscriber of `a` that does not read, and another client."""
    async with service(folder, **settings) as broker:
        slow, writer = await Client.connect(broker.port), await Client.connect(broker.port)
        await slow.subscribe("s", "a")
        slow.stall()
        try:
            yield broker, slow, writer
        finally:
            for client in (slow, writer):
                # What is not sent yet need not go: the broker may be reading nothing.
                client.writer.transport.abort()
                await client.close()


async def numbers(client: Client, count: int) -> list[int]:
    return [int((await client.frame()).body.split()[0]) for _ in range(count)]


def test_subscriber_that_stalls_misses_nothing_by_default(tmp_path: Path) -> None:
    async def talk() -> None:
        async with stalled(tmp_path, limits=SMALL, store=StoreSettings(segment_bytes=1_000_000)) as (
            broker,
            slow,
            writer,
        ):
            await publish(writer, COUNT)
            counts = broker.statistics()
            assert counts.stored_messages_now > COUNT // 2
            assert counts.waiting_bytes_now < 1_000_000
            slow.read_on()
            assert await numbers(slow, COUNT) == list(range(COUNT))
            # All of it is given back: no message waits, and no segment is kept for it.
            await until(lambda: broker.statistics().stored_messages_now == 0)
            writer.publish("a", b"-1 and directly again")
            assert await numbers(slow, 1) == [-1]
            assert broker.statistics().shed_queue_full == 0
            assert broker.statistics().shed_stored == 0
            await until(lambda: len(list((tmp_path / "store").glob("*.segment"))) == 1)

    run(talk, patience=120)


def test_batch_that_several_slow_subscribers_spool_is_written_once(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, limits=Limits(spool_memory_bytes=1, unacknowledged=10)) as broker:
            slow = [await Client.connect(broker.port) for _ in range(4)]
            writer = await Client.connect(broker.port)
            for client in slow:
                await client.subscribe("s", "a", ack="client")
                client.stall()
            await publish(writer, 1_000)
            store = broker.storage.log
            assert store is not None
            assert broker.statistics().stored_messages_now > 2_000
            await until(lambda: not store.has_work)
            assert store.size < 2 * 1_000 * len(BODY)
            for client in (*slow, writer):
                await client.close()

    run(talk, patience=120)


def test_subscriber_in_a_client_mode_gets_spooled_messages_as_it_acknowledges(tmp_path: Path) -> None:
    async def talk() -> None:
        limits = Limits(spool_memory_bytes=20_000, unacknowledged=10)
        async with service(tmp_path, limits=limits) as broker:
            slow, writer = await Client.connect(broker.port), await Client.connect(broker.port)
            await slow.subscribe("s", "a", ack="client")
            await publish(writer, 200)
            found: list[Any] = []
            while len(found) < 200:
                frame = await slow.frame()
                found.append(int(frame.body.split()[0]))
                slow.send("ACK", id=frame.headers["ack"])
            assert found == list(range(200))
            for client in (slow, writer):
                await client.close()

    run(talk)


def test_publishers_are_paused_when_the_spool_is_full_and_nothing_is_shed(tmp_path: Path) -> None:
    async def talk() -> None:
        settings = StoreSettings(subscription_bytes=1_000_000, segment_bytes=1_000_000)
        async with stalled(tmp_path, limits=SMALL, store=settings) as (broker, slow, writer):
            for number in range(COUNT):
                writer.publish("a", b"%d " % number + BODY)
            await until(lambda: broker.statistics().paused_publishers_now == 1)
            slow.read_on()
            assert await numbers(slow, COUNT) == list(range(COUNT))
            assert broker.statistics().shed_stored == 0

    run(talk, patience=120)


def test_publisher_that_is_faster_than_the_disk_goes_on_when_the_disk_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than a tenth of what is sent may not wait for the disk.
    monkeypatch.setattr("postroad.store.room.MAX_WAITING_BYTES", 1_500_000)
    monkeypatch.setattr("postroad.broker.stored_queues.RESERVE_BYTES", 1_000_000)

    async def talk() -> None:
        async with stalled(tmp_path, limits=SMALL) as (broker, slow, writer):
            await publish(writer, COUNT)
            assert broker.statistics().stored_messages_now > COUNT // 2
            slow.read_on()
            assert await numbers(slow, COUNT) == list(range(COUNT))

    run(talk, patience=120)


def test_spool_over_its_limit_sheds_its_oldest_where_that_is_chosen_and_says_so(tmp_path: Path) -> None:
    async def talk() -> None:
        settings = StoreSettings(subscription_bytes=1_000_000, at_limit="drop-oldest")
        async with stalled(tmp_path, limits=SMALL, store=settings) as (broker, slow, writer):
            await publish(writer, COUNT)
            await until(lambda: broker.statistics().shed_stored > 0)
            log, store = broker.storage.log, broker.dispatcher.core.store
            assert log is not None
            assert store is not None
            await until(lambda: not log.has_work and not store.discards)
            slow.read_on()
            shed = broker.statistics().shed_stored
            found = await numbers(slow, COUNT - shed)
            assert found == sorted(found)
            assert found[-1] == COUNT - 1

    run(talk, patience=120)


def test_spooled_messages_of_a_session_that_ends_are_shed_counted_and_recorded(tmp_path: Path) -> None:
    async def talk() -> None:
        async with stalled(tmp_path, limits=SMALL) as (broker, slow, writer):
            await publish(writer, COUNT)
            waiting = broker.statistics().stored_messages_now
            assert waiting > COUNT // 2
            slow.writer.transport.abort()
            await until(lambda: broker.statistics().subscriptions_now == 0)
            await until(lambda: broker.statistics().shed_stored == waiting)
            assert broker.statistics().stored_messages_now == 0

    run(talk, patience=120)


def test_disk_that_fails_for_a_while_loses_nothing_that_is_spooled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.server.store_driver.RETRY_SECONDS", 0.01)

    async def talk() -> None:
        async with stalled(tmp_path, limits=SMALL) as (broker, slow, writer):
            await publish(writer, COUNT // 2)
            disk = fail(broker)
            await publish(writer, COUNT // 2, first=COUNT // 2)
            await until(lambda: bool(broker.storage.trouble))
            assert any("No space left" in trouble for trouble in broker.troubles())
            disk.failing = False
            await until(lambda: not broker.storage.trouble)
            slow.read_on()
            assert await numbers(slow, COUNT) == list(range(COUNT))

    run(talk, patience=120)


def test_disk_that_cannot_be_read_for_a_while_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.server.store_driver.RETRY_SECONDS", 0.01)

    async def talk() -> None:
        async with stalled(tmp_path, limits=SMALL, store=StoreSettings(cache_bytes=1)) as (broker, slow, writer):
            await publish(writer, COUNT)
            disk = fail(broker)
            slow.read_on()
            reading = asyncio.create_task(numbers(slow, COUNT))
            await until(lambda: disk.failed_reads > 2)
            disk.failing = False
            assert await reading == list(range(COUNT))
            assert broker.storage.log is not None
            assert broker.storage.log.statistics().damaged_records == 0

    run(talk, patience=120)


def test_damaged_spool_is_named_and_the_subscriber_gets_the_rest(tmp_path: Path) -> None:
    async def talk() -> None:
        async with stalled(tmp_path, limits=SMALL, store=StoreSettings(cache_bytes=1)) as (broker, slow, writer):
            await publish(writer, COUNT)
            store = broker.storage.log
            assert store is not None
            await until(lambda: not store.has_work)
            (segment,) = (tmp_path / "store").glob("*.segment")
            with segment.open("r+b") as file:
                file.seek(segment.stat().st_size // 2)
                file.write(b"damage")
            slow.read_on()
            writer.publish("a", b"-1 after all others")
            found = []
            while (number := (await numbers(slow, 1))[0]) >= 0:
                found.append(number)
            assert found == sorted(set(found))
            assert 0 < COUNT - len(found) == store.statistics().lost_rows
            assert "is damaged" in store.notices[0]
            # It is served directly again.
            assert broker.statistics().stored_messages_now == 0
            writer.publish("a", b"-2 at once")
            assert await numbers(slow, 1) == [-2]
            assert broker.statistics().stored_messages_now == 0

    run(talk, patience=120)


def test_spooled_messages_are_shed_counted_and_recorded_when_the_broker_stops(tmp_path: Path) -> None:
    async def talk() -> None:
        async with stalled(tmp_path, limits=SMALL) as (broker, slow, writer):
            await publish(writer, COUNT)
            waiting = broker.statistics().stored_messages_now
            assert waiting > COUNT // 2
            slow.writer.transport.abort()
        assert broker.statistics().shed_stored == waiting

    run(talk, patience=120)
