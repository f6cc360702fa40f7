"""Clocks that are wrong: what brokers store stays, and what enters far from its own time is on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.config import TrackingConfig
from postroad.messages import MessageId
from postroad.sessions import wall_clock
from postroad.store import RetainedTopic, StoreSettings
from postroad.tracking import Verdict
from postroad.trail import Trail
from tests.server.durable_scene import connect, publish, said, subscribe
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from postroad.server import Service

DAY = 86_400_000
HOUR = 3_600_000


def test_jump_of_the_clock_gives_up_nothing_that_waits_or_is_retained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    off = 0
    monkeypatch.setattr("postroad.server.service.wall_clock", lambda: wall_clock() + off)
    monkeypatch.setattr("postroad.server.store_driver.LOOK_SECONDS", 0.01)
    settings = StoreSettings(max_age_seconds=2 * 86_400, retain=[RetainedTopic(topic=">", age="2d")])

    async def nothing_goes(broker: Service, told: str) -> None:
        await until(lambda: told in [record.message for record in caplog.records])
        # Ages are looked at ten times meanwhile.
        seen = broker.dispatcher.clock()
        await until(lambda: broker.dispatcher.clock() > seen + 100)
        counts = broker.statistics()
        assert (counts.shed_stored, counts.stored_messages_now, counts.retained_messages_now) == (0, 2, 2)

    async def talk() -> None:
        nonlocal off
        async with service(tmp_path, store=settings) as broker:
            client = await connect(broker.port)
            await subscribe(client, ack="client")
            await said(client, "DISCONNECT")
            await client.close()
            await publish(broker.port, 1, 2)
            await until(lambda: broker.statistics().retained_messages_now == 2)
            await until((tmp_path / "ages.json").exists)
            off = 30 * DAY
            await nothing_goes(broker, "clock went forward")
        async with service(tmp_path, store=settings) as broker:
            await nothing_goes(broker, "broker was away for long, or the clock is wrong")

    run(talk)


def test_message_that_enters_long_after_the_time_in_its_id_is_on_record_before_its_receipt(tmp_path: Path) -> None:
    async def talk() -> None:
        # Its record is written when the broker stops, or when somebody waits for it.
        async with service(tmp_path, tracking=TrackingConfig(trail=str(tmp_path / "trail"))) as broker:
            client = await Client.connect(broker.port, **{"postroad-ids": "client"})
            told = client.connected.headers
            late = MessageId(int(told["postroad-publisher"]), int(told["postroad-broker"]), wall_clock() - HOUR, 0)
            client.send("SEND", destination="/topic/news", receipt="1", **{"message-id": str(late)})
            while (frame := await client.frame()).headers["receipt-id"] != "1":
                assert frame.headers["receipt-id"] == "postroad-clock"
            assert "tracked" not in frame.headers
            journey = Trail(tmp_path / "trail").trace(late).journey
            assert [stop.recorded for stop in journey.stops] == [True]
            assert journey.verdict is not Verdict.NEVER_ACCEPTED
            await client.close()

    run(talk)
