"""A disk that is full to the last byte: publishers are refused, consumers empty the store, and it goes on by itself."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import msgspec
import pytest

from postroad.server.disk_reserve import DiskReserve
from postroad.server.queue_watch import QueueWatch
from postroad.topology import Plan, line
from tests.server.planned import planned
from tests.server.queue_scene import answer, consumer, messages
from tests.server.scene import Client, run, service, until
from tests.server.small_disk import SEGMENT, SMALL, SmallDisk, scale_limits

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    scale_limits(monkeypatch)


async def fill(port: int, destination: str) -> int:
    """Send messages, each over a connection of its own, until one is refused; return how many were stored."""
    for sent in range(500):
        sender = await Client.connect(port)
        sender.send("SEND", b"%d" % sent + b" " * 5_000, destination=destination, receipt="stored")
        frame = await sender.frame()
        await sender.close()
        if frame.command != "RECEIPT":
            assert frame.command == "ERROR"
            assert "the disk is full" in frame.headers["message"], frame.headers
            return sent
    raise AssertionError("the disk takes too much")


async def is_stored(port: int, destination: str) -> bool:
    """Send one message; return whether it is confirmed."""
    sender = await Client.connect(port)
    sender.send("SEND", b"again", destination=destination, receipt="again")
    frame = await sender.frame()
    await sender.close()
    return frame.command == "RECEIPT"


def test_full_disk_refuses_publishers_and_new_consumers_empty_it_until_it_takes_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk() -> None:
        async with service(tmp_path, store=SMALL) as broker:
            SmallDisk(broker, 8 * SEGMENT)
            sent = await fill(broker.port, "/queue/work")
            assert "the disk is full" in broker.storage.trouble
            QueueWatch(broker.dispatcher.core, broker).look()
            (slow,) = (vars(record) for record in caplog.records if record.message == "slow subscriber")
            assert (slow["session"], slow["subscription"], slow["stored"]) == (0, "/queue/work", sent)
            # Nobody has consumed before: what is stored is readable, and acknowledgements count.
            reader = await consumer(broker.port)
            for frame in await messages(reader, sent):
                await answer(reader, "ACK", frame)
            await until(lambda: not broker.storage.trouble)
            assert await is_stored(broker.port, "/queue/work")
            (frame,) = await messages(reader, 1)
            assert frame.body == b"again"
            await reader.close()

    run(talk, patience=60)


def test_disk_that_another_program_fills_to_the_last_byte_takes_acknowledgements_and_goes_on_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("postroad.server.store_driver.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("postroad.server.store_driver.LOOK_SECONDS", 0.05)

    async def talk() -> None:
        async with service(tmp_path, store=SMALL) as broker:
            disk = SmallDisk(broker, 8 * SEGMENT)
            for _ in range(5):
                assert await is_stored(broker.port, "/queue/work")
            disk.taken = disk.free_bytes()
            # Without a write, too.
            await until(lambda: "the disk is full (0 bytes are left" in broker.storage.trouble)
            assert not await is_stored(broker.port, "/queue/work")
            assert broker.storage.reserve.is_made
            reader = await consumer(broker.port)
            for frame in await messages(reader, 5):
                await answer(reader, "ACK", frame)
            assert not broker.storage.reserve.is_made
            # Enough for publishers to go on, but it may be full again soon.
            disk.taken -= 3 * SEGMENT - disk.free_bytes()
            await until(lambda: not broker.storage.trouble and broker.storage.reserve.is_made)
            assert await is_stored(broker.port, "/queue/work")
            disk.taken += disk.free_bytes()
            await until(lambda: bool(broker.storage.trouble))
            assert [said for said in caplog.messages if said.startswith("disk ")] == ["disk full"]
            disk.taken = 0
            await until(lambda: not broker.storage.trouble and broker.storage.reserve.is_made)
            await until(lambda: "disk has room again" in caplog.messages)
            assert await is_stored(broker.port, "/queue/work")
            await reader.close()

    run(talk, patience=60)


def test_brokers_whose_disks_are_full_of_messages_for_each_other_exchange_them(tmp_path: Path) -> None:
    async def talk() -> None:
        async with planned(Plan.of(line(2), "full"), tmp_path, store=SMALL) as network:
            await network.all_ways_are_shortest()
            durable = {"activemq.subscriptionName": "some", "ack": "client-individual", "prefetch-count": "1"}
            readers = {}
            for number in (1, 2):
                readers[number] = await Client.connect(network.services[number].port, **{"client-id": "reader"})
                await readers[number].subscribe("1", f"for.{number}", **durable)
            for broker in network.services.values():
                SmallDisk(broker, 8 * SEGMENT)
                core = broker.dispatcher.core
                assert core.peers is not None
                outgoing = core.peers.outgoing
                await until(lambda outgoing=outgoing: bool(outgoing.for_durables()))  # type: ignore[misc]
            network.wires[1, 2].cut()
            sent = {number: await fill(network.services[3 - number].port, f"/topic/for.{number}") for number in (1, 2)}
            network.wires[1, 2].mend()
            for number, reader in readers.items():
                got: list[int] = []
                while len(got) < sent[number]:
                    frame = await reader.frame()
                    assert frame.command == "MESSAGE"
                    got.append(int(frame.body))
                    reader.send("ACK", id=frame.headers["ack"])
                assert got == list(range(sent[number]))
            for number, broker in network.services.items():
                await until(lambda broker=broker: not broker.storage.trouble)  # type: ignore[misc]
                assert await is_stored(broker.port, f"/topic/for.{3 - number}")
            for reader in readers.values():
                await reader.close()

    run(talk, patience=90)


def test_reserve_is_made_once_and_again_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = DiskReserve(tmp_path / "store", 100_000)
    reserve.make()
    file = tmp_path / "store" / "reserve"
    assert (reserve.is_made, file.stat().st_size, file.stat().st_mode & 0o777) == (True, 100_000, 0o600)
    reserve.release()
    assert (reserve.is_made, file.exists()) == (False, False)
    # With less, the disk would be full again at once.
    monkeypatch.setattr(reserve, "free_bytes", lambda: 199_999)
    reserve.make()
    assert (reserve.is_made, file.exists()) == (False, False)
    monkeypatch.setattr(reserve, "free_bytes", lambda: 200_000)
    reserve.make()
    assert (reserve.is_made, file.exists()) == (True, True)
    # A new process finds it, however full the disk is.
    again = DiskReserve(tmp_path / "store", 100_000)
    monkeypatch.setattr(again, "free_bytes", lambda: 0)
    again.make()
    assert again.is_made


def test_file_system_that_keeps_no_room_free_does_without_a_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr("os.posix_fallocate", refuse)
    reserve = DiskReserve(tmp_path, 100_000)
    reserve.make()
    assert reserve.is_made


def test_settings_of_small_segments_keep_a_small_reserve(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, store=msgspec.structs.replace(SMALL, segment_bytes=4_096)) as broker:
            assert broker.storage.reserve.size == 4_096
            assert not broker.storage.trouble

    run(talk)
