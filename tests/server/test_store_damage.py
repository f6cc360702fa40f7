"""A broker that finds its store damaged, or cannot read it, says so and deletes nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from postroad.config import BrokerConfig
from postroad.server import Service
from postroad.store import StoreReadError
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT = "000000000001.segment"


async def send(port: int) -> None:
    """A client sends a message to a queue, and has its receipt."""
    writer = await Client.connect(port)
    writer.send("SEND", b"job", destination="/queue/work", receipt="r")
    assert (await writer.frame()).command == "RECEIPT"
    await writer.close()


def test_broker_that_cannot_read_its_store_does_not_start_and_changes_nothing(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            await send(broker.port)
        store = tmp_path / "store"
        before = {path.name: path.read_bytes() for path in store.iterdir()}
        (store / "000000000009.segment").mkdir()
        again = Service(BrokerConfig(port=0, data=str(tmp_path)))
        with pytest.raises(StoreReadError, match=r"store/000000000009\.segment"):
            await again.start()
        (store / "000000000009.segment").rmdir()
        assert {path.name: path.read_bytes() for path in store.iterdir()} == before
        # The data directory is free for another start.
        async with service(tmp_path) as broker:
            assert broker.storage.log is not None
            assert sum(map(broker.storage.log.unread, broker.storage.log.cursors.values())) == 1

    run(talk)


def test_broker_keeps_and_names_a_segment_whose_header_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk() -> None:
        async with service(tmp_path) as broker:
            await send(broker.port)
        path = tmp_path / "store" / SEGMENT
        data = bytearray(path.read_bytes())
        data[3] ^= 1
        path.write_bytes(data)
        async with service(tmp_path) as broker:
            kept = tmp_path / "store" / f"{SEGMENT}.damaged"
            await until(kept.exists)
            reader = await Client.connect(broker.port)
            reader.send("SUBSCRIBE", id="s", destination="/queue/work")
            assert (await reader.frame()).body == b"job"
            await reader.close()
            assert kept.read_bytes() == data

    with caplog.at_level(logging.ERROR, "postroad.store"):
        run(talk)
    told = [getattr(record, "what", "") for record in caplog.records if record.message == "store damaged"]
    assert any(f"{SEGMENT}.damaged" in text for text in told)
