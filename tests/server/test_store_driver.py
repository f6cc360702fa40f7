"""The end of a store: what is written last is on record, too."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any

from postroad.broker import AckMode, Broker, Outbox
from postroad.config.tracking import TrackingConfig
from postroad.messages import Batch, Draft, MessageId
from postroad.recording import AgeClock
from postroad.server.store_driver import StoreDriver
from postroad.store import StoreSettings
from postroad.tracking import ExactRecorder, Verdict
from postroad.trail import Trail
from tests.broker.queue_records import traced
from tests.broker.stored_core import NumberBlocks
from tests.server.durable_scene import connect, subscribe
from tests.server.failing_disk import FailingDisk
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NOON = 1_800_000_000_000


def test_purge_that_is_written_as_the_last_thing_before_a_broker_stops_is_on_record(tmp_path: Path) -> None:
    async def talk() -> None:
        numbers, recorder = NumberBlocks(), ExactRecorder(1, NOON)
        core = Broker(1, numbers.publishers, recorder=recorder, subscription_numbers=numbers.subscriptions)
        driver = StoreDriver(
            tmp_path / "store", StoreSettings(), core, lambda _: None, lambda: NOON, AgeClock(lambda: NOON)
        )
        await driver.start()
        assert driver.log is not None
        assert core.durables is not None
        reader = core.attached("ann")
        subscription = core.durables.subscribe(reader, "k", ("c", "n"), "t", "", AckMode.INDIVIDUAL, NOON, Outbox())
        core.detached(reader, NOON)
        batch = Batch.build([Draft("t", {}, (), b"")])
        core.receive(batch, core.attached("writer"), NOON)
        safe = asyncio.Event()
        driver.when_safe(lambda _: safe.set())
        await safe.wait()
        # From here on nothing is written before the end.
        driver.log.on_work = None
        core.durables.purge(subscription, "purged by carla")
        await driver.stop()
        journey = traced({1: recorder}, batch.message(0).id, NOON)
        assert (journey.verdict, [drop.reason for _, drop in journey.dropped]) == (Verdict.SHED, ["purged by carla"])

    run(talk)


class LateDisk(FailingDisk):
    """Says that it has failed, and has all that it was given."""

    def append(self, segment: int, pieces: Sequence[Any]) -> None:
        self.disk.append(segment, pieces)
        if self.failing:
            raise OSError(errno.EIO, "Input/output error")


def test_message_is_not_said_to_wait_if_it_was_purged_and_the_broker_stopped_before_its_disk_confirmed_that(
    tmp_path: Path,
) -> None:
    trail = tmp_path / "trail"
    tracking = TrackingConfig(trail=str(trail))

    async def talk() -> None:
        async with service(tmp_path, tracking=tracking) as broker:
            durable = await connect(broker.port)
            await subscribe(durable)
            await durable.close()
            await until(lambda: broker.statistics().durable_away_now == 1)
            writer = await Client.connect(broker.port)
            writer.publish("a", b"1", receipt="r")
            message = MessageId.parse((await writer.frame()).headers["message-id"])
            await writer.close()
            broker.storage.disk = disk = LateDisk(broker.storage.disk)
            disk.failing = True
            core = broker.dispatcher.core
            assert core.durables is not None
            subscription = core.durables.find("cellar", "orders")
            assert subscription is not None
            core.durables.purge(subscription, "purged by carla")
            await until(lambda: broker.storage.trouble != "")
        async with service(tmp_path, tracking=tracking) as broker:
            assert broker.statistics().stored_messages_now == 0
        journey = Trail(trail).trace(message).journey
        assert (journey.verdict, journey.certainty) == (Verdict.RECORDED_IN_PART, 0.0)

    run(talk)
