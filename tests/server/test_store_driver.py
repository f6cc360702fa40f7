"""The end of a store: what is written last is on record, too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from postroad.broker import AckMode, Broker, Outbox
from postroad.messages import Batch, Draft
from postroad.recording import AgeClock
from postroad.server.store_driver import StoreDriver
from postroad.store import StoreSettings
from postroad.tracking import ExactRecorder, Verdict
from tests.broker.queue_records import traced
from tests.broker.stored_core import NumberBlocks
from tests.server.scene import run

if TYPE_CHECKING:
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
