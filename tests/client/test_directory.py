"""Clients that find their broker through a directory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from postroad.client import ClientError, ConnectionLost, Reconnect, connect
from postroad.network import Directory
from tests.client.serving import address, broker, run, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@contextlib.asynccontextmanager
async def directory(live: list[str]) -> AsyncIterator[str]:
    server = await Directory("test", lambda: live, lambda: {}).listen(0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def nobody() -> str:
    """The address of a server that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return f"stomp://127.0.0.1:{opened.getsockname()[1]}"


def test_addresses_are_tried_in_order_until_one_answers(tmp_path: Path) -> None:
    async def talk() -> None:
        async with (
            broker(tmp_path) as service,
            directory([nobody(), nobody(), address(service)]) as url,
            connect(directory=f"{url}/") as client,
        ):
            assert client.server == address(service)
            assert await client.publish("quotes", receipt=True) is not None

    run(talk())


def test_a_broker_that_refuses_is_passed_over(tmp_path: Path) -> None:
    async def talk() -> None:
        async with (
            broker(tmp_path / "1", users={"bob": "b"}) as strict,
            broker(tmp_path / "2", users={"ann": "a"}) as open_to_ann,
            directory([address(strict), address(open_to_ann)]) as url,
        ):
            async with connect(directory=url, login="ann", passcode="a") as client:
                assert client.server == address(open_to_ann)
            with pytest.raises(ClientError, match="login"):
                async with connect(directory=url, login="eve", passcode="e"):
                    pass

    run(talk())


def test_a_client_that_lost_its_broker_asks_again(tmp_path: Path) -> None:
    async def talk() -> None:
        live: list[str] = []
        async with directory(live) as url, broker(tmp_path / "2") as second:
            async with broker(tmp_path / "1") as first:
                live.append(address(first))
                client = await connect(directory=url, reconnect=Reconnect(first=0.01)).__aenter__()
                subscription = client.subscribe("quotes")
                await subscription.start()
                live[:] = [address(second)]
            await until(lambda: client.server == address(second))
            await client.publish("quotes", body="again")
            assert (await subscription.get()).text == "again"
            await client.__aexit__(None, None, None)

    run(talk())


def test_a_directory_without_live_brokers_says_so(tmp_path: Path) -> None:
    async def talk() -> None:
        async with directory([]) as url:
            with pytest.raises(ConnectionLost, match="no broker is up"):
                async with connect(directory=url):
                    pass

    run(talk())


def test_a_directory_that_is_not_there_says_so() -> None:
    async def talk() -> None:
        url = nobody().replace("stomp", "http")
        with pytest.raises(ConnectionLost, match=f"directory {url}: cannot be asked"):
            async with connect(directory=url):
                pass

    run(talk())


def test_what_is_no_directory_is_refused() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
        writer.close()

    async def talk() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        with pytest.raises(ClientError, match="no list of brokers"):
            async with connect(directory=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"):
                pass
        server.close()

    run(talk())


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8160", "stomp://127.0.0.1:1", "http://h:1/path", "http://h:x", "http://"]
)
def test_addresses_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(ClientError, match="write it like http://127"):
        connect(directory=url)


def test_a_client_takes_a_server_or_a_directory() -> None:
    for given in ({}, {"server": "stomp://h:1", "directory": "http://h:1"}):
        with pytest.raises(ClientError, match="give one of them"):
            connect(**given)  # type: ignore[arg-type]
