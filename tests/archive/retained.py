"""A store with retained messages, as a broker leaves it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from postroad.broker import Broker, PublisherNumbers
from postroad.store import FileDisk, Log, RetainedTopic, StoreSettings, carry_out, recover

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.messages import Batch


def retain(folder: Path, *batches: Batch, topics: tuple[str, ...] = (">",)) -> None:
    """Publish batches to a broker that retains topics, one commit each."""
    disk = FileDisk(folder)
    found = recover(disk.segments(), disk.read, disk.sync)
    log = Log(StoreSettings(retain=[RetainedTopic(topic=each) for each in topics], segment_bytes=65_536), found)
    blocks = itertools.count(1, 1_000)
    core = Broker(1, PublisherNumbers(lambda: next(blocks)))
    assert core.open_store(log, found.recent, 0) == []
    writer = core.attached("writer")
    for second, batch in enumerate(batches):
        core.receive(batch, writer, 1_700_000_000_000 + 1_000 * second)
        _commit(log, disk)
    _commit(log, disk)
    disk.close()


def _commit(log: Log, disk: FileDisk) -> None:
    while (commit := log.take_commit(0)) is not None:
        carry_out(commit, disk)
        log.committed(commit)
