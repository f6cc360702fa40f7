"""A disk that is full to the last byte: publishers are refused, consumers empty the store, and it goes on by itself."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import msgspec

from postroad.server.disk_reserve import DiskReserve
from postroad.store import StoreSettings
from tests.server.queue_scene import answer, consumer, messages
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from postroad.server import Service

SEGMENT = 65_536
SMALL = StoreSettings(segment_bytes=SEGMENT)


class SmallDisk:
    """Has room for some bytes, the reserve of the store among them."""

    def __init__(self, broker: Service, capacity: int) -> None:
        self.disk: Any = broker.storage.disk
        self._reserve = broker.storage.reserve
        self._capacity = capacity
        broker.storage.disk = self
        broker.storage.reserve.free_bytes = self.free_bytes  # type: ignore[method-assign]

    def free_bytes(self) -> int:
        kept = self._reserve.size if self._reserve.is_made else 0
        used: int = sum(self.disk.segments().values())
        return self._capacity - kept - used

    def append(self, segment: int, pieces: Sequence[Any]) -> None:
        if sum(map(len, pieces)) > self.free_bytes():
            raise OSError(errno.ENOSPC, "No space left on device")
        self.disk.append(segment, pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk, name)


def test_full_disk_refuses_publishers_and_new_consumers_empty_it_until_it_takes_more(tmp_path: Path) -> None:
    async def talk() -> None:
        async with service(tmp_path, store=SMALL) as broker:
            SmallDisk(broker, 8 * SEGMENT)
            sent = 0
            sender = await Client.connect(broker.port)
            while True:
                sender.send("SEND", b"x" * 5_000, destination="/queue/work", receipt=str(sent))
                if (frame := await sender.frame()).command != "RECEIPT":
                    break
                sent += 1
            assert "the disk is full" in frame.headers["message"] or "No space left" in frame.headers["message"]
            await sender.close()
            await until(lambda: "the disk is full" in broker.storage.trouble)
            # Nobody has consumed before: what is stored is readable, and acknowledgements count.
            reader = await consumer(broker.port)
            for frame in await messages(reader, sent):
                await answer(reader, "ACK", frame)
            assert broker.storage.log is not None
            await until(lambda: not broker.storage.trouble)
            sender = await Client.connect(broker.port)
            sender.send("SEND", b"y", destination="/queue/work", receipt="again")
            assert (await sender.frame()).command == "RECEIPT"
            rest = await messages(reader, 1)
            # One that was under way when the disk was full may have been stored after all.
            assert {frame.body for frame in rest} <= {b"y", b"x" * 5_000}
            await sender.close()
            await reader.close()

    run(talk, patience=60)


def test_reserve_is_made_once_and_again_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = DiskReserve(tmp_path / "store", 100_000)
    reserve.make()
    file = tmp_path / "store" / "reserve"
    assert (reserve.is_made, file.stat().st_size, file.stat().st_mode & 0o777) == (True, 100_000, 0o600)
    reserve.release()
    assert (reserve.is_made, file.exists()) == (False, False)
    monkeypatch.setattr(reserve, "free_bytes", lambda: 99_999)
    reserve.make()
    assert (reserve.is_made, file.exists()) == (False, False)
    monkeypatch.setattr(reserve, "free_bytes", lambda: 100_000)
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
