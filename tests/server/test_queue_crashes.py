"""A broker that is killed under load: each confirmed message is processed, and none again that was settled for sure."""

from __future__ import annotations

import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.server.crash_clients import Publisher
from tests.server.processes import forked_brokers, wait_until
from tests.server.queue_workers import QueueLedger, QueueWorker
from tests.server.scene import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.processes import Brokers

LIVES = 3
CONFIRMED_PER_LIFE = 100
QUEUE = "/queue/work"


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with forked_brokers() as made:
        yield made


def have_confirmed(publishers: list[Publisher], count: int) -> bool:
    return sum(len(each.confirmed) for each in publishers) >= count


def test_confirmed_messages_are_processed_through_kills_and_not_again_after_that(
    tmp_path: Path, brokers: Brokers
) -> None:
    settings = tmp_path / "broker.toml"
    settings.write_text(
        f"port = 0\ndata = '{tmp_path}'\n[tracking]\nrecorder = 'none'\n"
        "[store]\nsegment_bytes = 65536\n[queues]\nmax_deliveries = 100\nredelivery_ms = 10\n"
    )
    ledger = QueueLedger()
    publishers = [Publisher(f"p{number}", QUEUE) for number in range(2)]
    workers = [QueueWorker(f"w{number}", ledger, number) for number in range(3)]
    broker = brokers.start(settings).wait_until_ready()
    for _ in range(LIVES):
        before = sum(len(each.confirmed) for each in publishers)
        threads = [threading.Thread(target=each.live, args=(broker.port(), threading.Event())) for each in publishers]
        threads += [threading.Thread(target=each.live, args=(broker.port(),)) for each in workers]
        for thread in threads:
            thread.start()
        wait_until(partial(have_confirmed, publishers, before + CONFIRMED_PER_LIFE))
        broker.end(signal.SIGKILL)
        for thread in threads:
            thread.join(3 * PATIENCE)
            assert not thread.is_alive()
        broker = brokers.start(settings).wait_until_ready()
    confirmed = {(each.name, number) for each in publishers for number in each.confirmed}
    for worker in workers:
        worker.careful = True
    threads = [threading.Thread(target=each.live, args=(broker.port(),)) for each in workers]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: confirmed <= ledger.acknowledged or ledger.faults)
    finally:
        broker.end(signal.SIGKILL)
        for thread in threads:
            thread.join(3 * PATIENCE)
    assert ledger.faults == ledger.told == []
    assert len(confirmed) >= LIVES * CONFIRMED_PER_LIFE
