"""A running broker compares its waits with the model, and warns in time."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from postroad.capacity import ROUND_MS
from postroad.server.capacity_watch import WARNING_MS, CapacityWatch
from tests.server.http_client import get
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_794_787_200_000


def test_status_and_metrics_have_predicted_and_measured_waits(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, admin_port=0) as broker:
            assert json.loads((await get(broker.admin_port, "/status"))[1])["capacity"]["utilisation"] is None
            client = await Client.connect(broker.port)
            watch = broker.capacity
            timed = 0
            # A read with few and one with many messages, in turns; only one in 64 is timed.
            while timed < 40:
                for size in (1, 30):
                    for _ in range(size):
                        client.publish("a")
                    client.publish("a", receipt="r")
                    await client.frame()
                    watch.monitor.timed(size + 1, 50e-6 + 2e-6 * size, 7)
                    timed += 1
            await until(lambda: bool(watch.monitor._late.sum()))
            await watch.look()
            told = json.loads((await get(broker.admin_port, "/status"))[1])["capacity"]
            assert told["rate"] > 0
            assert told["read_seconds"] >= 0
            assert told["message_seconds"] > 0
            assert 0 < told["utilisation"] == pytest.approx(told["rate"] * told["message_seconds"])
            assert told["predicted_p99_wait_seconds"] >= 0
            assert told["measured_p99_wait_seconds"] >= told["resolution_seconds"] == 0.001
            assert (told["limit_seconds"], told["warning"]) == (None, "")
            families = {
                one.name: one for one in text_string_to_metric_families((await get(broker.admin_port, "/metrics"))[1])
            }
            for name in ("utilisation_ratio", "load_ratio", "predicted_p99_wait_seconds", "measured_p99_wait_seconds"):
                assert families[f"postroad_capacity_{name}"].type == "gauge"
            assert families["postroad_capacity_limit_seconds"].samples == []
            await client.close()

    run(talk)


def test_reads_of_clients_are_timed_and_their_messages_counted(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            client = await Client.connect(broker.port)
            client.publish("a", receipt="r")
            await client.frame()
            assert broker.timing.messages == 1
            assert broker.capacity.monitor.reads_timed == 1
            assert broker.capacity.monitor._seconds[0] > 0
            await client.close()

    run(talk)


def test_a_limit_ahead_is_logged_once_a_day_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    clock = [NOW]
    total, timer = [0], [0.0]
    watch = CapacityWatch(lambda: total[0], lambda: clock[0], lambda: timer[0])
    for number in range(64):
        watch.monitor.timed(1 + number % 9, 1e-3 * (1 + number % 9), 1)  # 1 ms a message: the limit is 800 a second

    async def day(rate: float) -> None:
        for _ in range(144):
            clock[0] += ROUND_MS
            timer[0] += 600
            total[0] += round(600 * rate)
            await watch.look()

    async def fortnight() -> None:
        await watch.look()
        for number in range(10):
            await day(300 + 40 * number)

    with caplog.at_level(logging.WARNING, "postroad.server"):
        asyncio.run(fortnight())
    warned = [record for record in caplog.records if record.message == "capacity limit"]
    assert 1 <= len(warned) <= 10 * 24 * 3_600_000 // WARNING_MS
    assert "at this growth the limit is reached on" in vars(warned[0])["reason"]
    assert "at this growth" in watch.status.warning
    # 660 of 800 a second, 40 more each day.
    assert watch.status.load == pytest.approx(660 / 800, rel=0.01)
    assert watch.status.limit_seconds == pytest.approx(86_400 * 140 / 40, rel=0.2)
    assert watch.status.growth_per_day == pytest.approx(0.05, rel=0.1)
