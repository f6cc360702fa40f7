"""The load generator for durable messages, against a broker of this process."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from bench.durable_load import DurableJob, DurableOutcome
from bench.durable_load import run as generate
from bench.durable_scores import DURABLE_TARGETS, DurableScores

from tests.server.scene import run, service, until

if TYPE_CHECKING:
    from pathlib import Path


def job(port: int, mode: str, **settings: Any) -> DurableJob:
    return DurableJob(mode, "postroad", port, os.getpid(), "bench.1", warm_up=0.05, **{"seconds": 0.2, **settings})


def test_generator_confirms_and_consumes_all_it_publishes(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            found = await asyncio.to_thread(generate, job(broker.port, "flow", subscribers=2))
            assert found.messages > 0
            assert found.lost == 0
            # All of it is acknowledged, and waits no longer.
            await until(lambda: broker.statistics().stored_messages_now == 0)

    run(talk)


def test_generator_drains_what_it_filled(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            filled = await asyncio.to_thread(generate, job(broker.port, "fill", count=250, seconds=20.0))
            assert filled.messages == 250
            assert broker.statistics().stored_messages_now == 250
            drained = await asyncio.to_thread(generate, job(broker.port, "drain", count=250))
            assert drained.lost == 0
            assert drained.first_seconds > 0
            await until(lambda: broker.statistics().stored_messages_now == 0)

    run(talk)


def test_generator_counts_a_burst_to_subscribers_that_stall(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            found = await asyncio.to_thread(generate, job(broker.port, "burst", count=500, stall=0.2, seconds=20.0))
            assert (found.messages, found.lost, found.late) == (500, 0, 0)

    run(talk)


def test_scores_compare_only_brokers_that_ran() -> None:
    scores = DurableScores({})
    target = DURABLE_TARGETS[0]
    scores.add(target.case, target.ours, DurableOutcome(300.0, 2.0, 0.1, 0.0, 300))
    assert scores.ratio(target) is None
    scores.add(target.case, target.rival, DurableOutcome(100.0, 8.0, 0.1, 0.0, 100))
    assert scores.ratio(target) == 3.0
    assert scores.thrift(target) == 4.0
    assert scores.summary()[target.name] == 3.0
    assert any("not run" in line for line in scores.verdicts())
