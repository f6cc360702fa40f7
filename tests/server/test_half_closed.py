"""Clients that end their sending side, as `nc -N` does at the end of its input, and read on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from postroad.config import TrackingConfig
from postroad.server import tcp
from postroad.store import RetainedTopic, StoreSettings
from tests.server.durable_scene import subscribe
from tests.server.papers import Papers
from tests.server.scene import Client, run, service, until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from pathlib import Path

    from postroad.server import Service


class HeldDisk:
    """Writes nothing until it is let go; the rest is the real disk's."""

    def __init__(self, disk: Any) -> None:
        self.disk = disk
        self.is_free = threading.Event()

    def append(self, segment: int, pieces: Sequence[Any]) -> None:
        self.is_free.wait()
        self.disk.append(segment, pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk, name)


@contextlib.contextmanager
def held_disk(broker: Service) -> Iterator[HeldDisk]:
    """From now on the broker's store is not written, until the disk is let go."""
    real = broker.storage.disk
    broker.storage.disk = held = HeldDisk(real)
    try:
        yield held
    finally:
        held.is_free.set()
        broker.storage.disk = real


def on(event_loop: str, talk: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a test on an event loop of this kind: the two have transports of their own."""
    if event_loop == "asyncio":
        run(talk)
        return
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(talk(), 40))


RETAIN = StoreSettings(retain=[RetainedTopic(topic="kept")])


@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("destination", ["/queue/work", "/topic/kept", "/topic/durable"])
@pytest.mark.parametrize("last", [[], ["DISCONNECT"]], ids=["end", "disconnect"])
def test_receipts_that_wait_for_the_store_reach_a_client_that_sends_no_more(
    tmp_path: Path, event_loop: str, destination: str, last: list[str]
) -> None:
    async def talk() -> None:
        async with service(tmp_path, store=RETAIN) as broker:
            reader = await Client.connect(broker.port, **{"client-id": "cellar"})
            await subscribe(reader, topic="durable")
            await reader.close()
            await until(lambda: broker.statistics().sessions_now == 0)
            with held_disk(broker) as disk:
                await check(broker, disk)

    async def check(broker: Service, disk: HeldDisk) -> None:
        client = await Client.connect(broker.port)
        await client.subscribe("s", "news")
        for number in range(3):
            client.send("SEND", b"1", destination=destination, receipt=str(number))
        for command in last:
            client.send(command, receipt=command)
        client.writer.write_eof()
        # The session ends at once: what comes now is not for it.
        await until(lambda: broker.statistics().sessions_now == 0)
        publisher = await Client.connect(broker.port)
        publisher.publish("news", b"too late", receipt="r")
        assert (await publisher.frame()).command == "RECEIPT"
        await publisher.close()
        await until(lambda: broker.server_statistics().connections_now == 1)
        disk.is_free.set()
        frames = [await client.frame() for _ in range(3 + len(last))]
        assert [frame.headers.get("receipt-id") for frame in frames] == ["0", "1", "2", *last]
        assert await client.at_end()
        await client.close()
        await until(lambda: broker.server_statistics().connections_now == 0)
        assert broker.server_statistics().internal_errors == 0
        assert broker.server_statistics().held_bytes_now == 0

    on(event_loop, talk)


@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
def test_receipts_that_wait_for_the_record_reach_a_client_that_sends_no_more(tmp_path: Path, event_loop: str) -> None:
    async def talk() -> None:
        async with service(tmp_path, tracking=TrackingConfig(journal=True)) as broker:
            client = await Client.connect(broker.port)
            for number in range(3):
                client.publish("a", b"1", receipt=str(number))
            client.writer.write_eof()
            frames = [await client.frame() for _ in range(3)]
            assert [frame.headers.get("receipt-id") for frame in frames] == ["0", "1", "2"]
            assert ["tracked" in frame.headers for frame in frames] == [False] * 3
            assert await client.at_end()
            await client.close()

    on(event_loop, talk)


@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
def test_client_that_sends_no_more_is_cut_off_when_its_receipts_take_too_long(
    tmp_path: Path, event_loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "CLOSE_SECONDS", 0.1)

    async def talk() -> None:
        async with service(tmp_path) as broker:
            with held_disk(broker) as disk:
                await check(broker, disk)

    async def check(broker: Service, disk: HeldDisk) -> None:
        client = await Client.connect(broker.port)
        client.send("SEND", b"1", destination="/queue/work", receipt="r")
        client.writer.write_eof()
        with pytest.raises((ConnectionError, EOFError)):
            await client.frame()
        await until(lambda: broker.server_statistics().connections_now == 0)
        disk.is_free.set()
        await until(lambda: broker.statistics().queued_messages_now == 1)
        assert broker.server_statistics().internal_errors == 0
        assert broker.statistics().sessions_now == 0
        await client.close()

    on(event_loop, talk)


@pytest.mark.parametrize("event_loop", ["asyncio", "uvloop"])
def test_client_that_ends_its_tls_gets_nothing_more_and_hurts_nobody(tmp_path: Path, event_loop: str) -> None:
    papers = Papers(tmp_path)

    async def talk() -> None:
        async with service(tmp_path, tls=papers.config()) as broker:
            with held_disk(broker) as disk:
                await check(broker, disk)

    async def check(broker: Service, disk: HeldDisk) -> None:
        client = await Client.connect(broker.port, papers.client_context())
        client.send("SEND", b"1", destination="/queue/work", receipt="r")
        await client.writer.drain()
        client.writer.close()
        await until(lambda: broker.server_statistics().connections_now == 0)
        assert broker.statistics().sessions_now == 0
        disk.is_free.set()
        await client.close()
        assert broker.server_statistics().internal_errors == 0

    on(event_loop, talk)
