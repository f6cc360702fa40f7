"""Connections that are cut while messages are under way: each message enters once, under the id it was given."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

import pytest

from postroad.client import ClientError, ConnectionLost, Reconnect, connect
from postroad.messages import Draft
from tests.client.serving import Script, address, broker, run, scripted, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from postroad.messages import MessageId

QUICK = Reconnect(first=0.01, longest=0.05)
MESSAGES = 1_000


class Cutter:
    """A way to a server that breaks: the n-th connection lets through so many bytes there and back, then is cut."""

    def __init__(self, port: int, cuts: list[tuple[int, int]]) -> None:
        self.port = port
        self.cuts: Iterator[tuple[int, int]] = iter(cuts)
        self.connections = 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there, back = next(self.cuts, (2**60, 2**60))
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        ways = {
            asyncio.create_task(pipe(reader, far_writer, there)),
            asyncio.create_task(pipe(far_reader, writer, back)),
        }
        self.tasks |= ways
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in (writer, far_writer):
            end.transport.abort()


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int) -> None:
    with contextlib.suppress(ConnectionError):
        while most and (data := await reader.read(min(most, 4_096))):
            writer.write(data)
            await writer.drain()
            most -= len(data)


@contextlib.asynccontextmanager
async def cutting(port: int, cuts: list[tuple[int, int]]) -> AsyncIterator[tuple[Cutter, str]]:
    cutter = Cutter(port, cuts)
    server = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    try:
        yield cutter, f"stomp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in cutter.tasks:
            task.cancel()
        await asyncio.gather(*cutter.tasks, return_exceptions=True)
        await server.wait_closed()


CUTS = [(9_000, 2**60), (30_000, 2**60), (2**60, 260), (20_000, 2**60)]


@pytest.mark.parametrize("receipt", [False, True])
def test_messages_enter_once_and_in_order_over_connections_that_are_cut(tmp_path: Path, receipt: bool) -> None:
    async def talk() -> None:
        async with (
            broker(tmp_path) as service,
            cutting(service.port, CUTS) as (cutter, server),
            connect(address(service)) as watcher,
            watcher.subscribe("a", queue=2 * MESSAGES) as watching,
            connect(server, reconnect=QUICK) as client,
        ):
            ids: list[MessageId | None] = []
            for first in range(0, MESSAGES, 50):
                ids += await client.publish_many([Draft("a", {"n": first + n}) for n in range(49)], receipt=receipt)
                ids.append(await client.publish("a", {"n": first + 49}, receipt=receipt))
            got = [await watching.get() for _ in range(MESSAGES)]
            assert [message.number("n") for message in got] == list(range(MESSAGES))
            assert [message.id for message in got] == ids
            assert {given.publisher for given in ids if given is not None} == {2}
            # The broker has no more than these.
            await client.publish("end", receipt=True)
            assert service.statistics().accepted == MESSAGES + 1
            assert watching.waiting == 0
            assert cutter.connections >= len(CUTS)

    run(talk())


def test_ids_of_a_transaction_come_behind_those_of_messages_published_meanwhile(tmp_path: Path) -> None:
    async def talk() -> None:
        async with (
            broker(tmp_path) as service,
            connect(address(service)) as client,
            client.subscribe("a") as subscription,
        ):
            async with client.transaction() as transaction:
                await transaction.publish("a", {"n": 1})
                meanwhile = await client.publish("a", {"n": 0})
                await transaction.publish("a", {"n": 2})
            after = await client.publish("a", {"n": 3}, receipt=True)
            got = [await subscription.get() for _ in range(4)]
            assert [message.number("n") for message in got] == [0, 1, 2, 3]
            assert meanwhile is not None
            assert after is not None
            assert [got[0].id, got[1].id, got[3].id] == [meanwhile, transaction.first_id, after]
            assert [message.id for message in got] == sorted(message.id for message in got)

    run(talk())


def test_broker_gives_the_ids_where_the_client_is_told_to_leave_them(tmp_path: Path) -> None:
    async def talk() -> None:
        async with broker(tmp_path) as service, connect(address(service), ids="broker") as client:
            assert await client.publish("a") is None
            given = await client.publish("a", receipt=True)
            assert given is not None
            assert (given.publisher, given.counter <= 1) == (1, True)
            assert (await client.clock()).skew_ms is None

    run(talk())
    with pytest.raises(ClientError, match="'client' or 'broker'"):
        connect("stomp://127.0.0.1", ids="nobody")  # type: ignore[arg-type]


def granting(number: int) -> str:
    granted = f"postroad-publisher:{number}\npostroad-broker:2\npostroad-token:t{number}\nserver-time:1\n"
    return f"CONNECTED\nversion:1.2\n{granted}\n\0"


def test_who_waits_hears_that_nobody_knows_when_the_server_has_forgotten_the_publisher(
    caplog: pytest.LogCaptureFixture,
) -> None:
    greetings: list[str] = []

    async def play(script: Script) -> None:
        greetings.append(await script.frame())
        script.say(granting(6 + len(greetings)))
        if len(greetings) == 1:
            await script.frame()
            await script.frame()
        else:
            await script.dismiss()

    async def talk() -> None:
        async with scripted(play) as server, connect(server, reconnect=QUICK) as client:
            first = await client.publish("a", {"n": 1})
            with pytest.raises(ConnectionLost, match="not known: the server does not know this publisher any more"):
                await client.publish("a", {"n": 2}, receipt=True)
            later = await client.publish("a", {"n": 3})
            assert first is not None
            assert later is not None
            assert (first.publisher, later.publisher, later.broker) == (7, 8, 2)

    with caplog.at_level(logging.WARNING, "postroad.client"):
        run(talk())
    assert "postroad-ids:client\n" in greetings[0]
    assert "postroad-publisher" not in greetings[0]
    assert "postroad-publisher:7\npostroad-token:t7\n" in greetings[1]
    assert any("2 messages were not confirmed and may be lost" in record.message for record in caplog.records)


def test_what_a_server_refused_is_not_sent_again() -> None:
    heard: list[list[str]] = []

    async def play(script: Script) -> None:
        await script.frame()
        script.say(granting(7))
        heard.append([])
        while True:
            frame = await script.frame()
            heard[-1].append(frame.split("\n")[0])
            if len(heard) == 1 and "n:2" in frame:
                script.say("ERROR\nmessage:no\n\n\0")
                return
            if frame.startswith("DISCONNECT"):
                return

    async def talk() -> None:
        async with scripted(play) as server, connect(server, reconnect=QUICK) as client:
            await client.publish("a", {"n": 1})
            with pytest.raises(ClientError, match="no"):
                await client.publish("a", {"n": 2}, receipt=True)
            await until(lambda: len(heard) == 2)
            await client.publish("a", {"n": 3})

    run(talk())
    assert heard == [["SEND", "SEND"], ["SEND", "DISCONNECT"]]
