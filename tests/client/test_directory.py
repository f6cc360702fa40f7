"""Clients that find their broker through a directory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from typing import TYPE_CHECKING

import pytest

from postroad.client import ClientError, ConnectionLost, Reconnect, connect
from postroad.network import Directory
from tests.client.serving import address, broker, run, until
from tests.server.papers import Papers
from tests.server.people import users_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@contextlib.asynccontextmanager
async def directory(live: list[str]) -> AsyncIterator[str]:
    server = await Directory("test", lambda: live, list, lambda: {}).listen(0)
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
            broker(tmp_path / "1", users_file=users_file(tmp_path / "bobs", bob="b")) as strict,
            broker(tmp_path / "2", users_file=users_file(tmp_path / "anns", ann="a")) as open_to_ann,
            directory([address(strict), address(open_to_ann)]) as url,
        ):
            async with connect(directory=url, login="ann", passcode="a") as client:
                assert client.server == address(open_to_ann)
            with pytest.raises(ClientError, match="login"):
                async with connect(directory=url, login="eve", passcode="e"):
                    pass

    run(talk())


@contextlib.asynccontextmanager
async def https_directory(live: list[str], context: ssl.SSLContext) -> AsyncIterator[str]:
    """A directory behind TLS, as a proxy would put it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            body = json.dumps({"brokers": live}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def test_client_with_a_tls_context_uses_no_broker_without_tls(tmp_path: Path) -> None:
    papers = Papers(tmp_path)

    async def talk() -> None:
        async with (
            broker(tmp_path / "plain") as plain,
            broker(tmp_path / "secure", tls=papers.config()) as secure,
            directory([address(plain)]) as without,
            directory([address(plain), f"stomps://127.0.0.1:{secure.port}"]) as mixed,
        ):
            with pytest.raises(ClientError, match="names only brokers without TLS"):
                async with connect(directory=without, tls=papers.client_context()):
                    pass
            async with connect(directory=mixed, tls=papers.client_context()) as client:
                assert client.server == f"stomps://127.0.0.1:{secure.port}"
            assert plain.server_statistics().connections == 0

    run(talk())


def test_client_of_an_https_directory_uses_no_broker_without_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    papers = Papers(tmp_path)
    # The system's authorities, as a client without a context takes them.
    monkeypatch.setenv("SSL_CERT_FILE", str(papers.ca))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(papers.certificate, papers.key)

    async def talk() -> None:
        async with broker(tmp_path / "plain") as plain, https_directory([address(plain)], context) as url:
            with pytest.raises(ClientError, match="names only brokers without TLS"):
                async with connect(directory=url):
                    pass
            assert plain.server_statistics().connections == 0

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


@pytest.mark.parametrize("body", [b"[]", b'{"brokers": ["\xff"]}', b'{"brokers": ' + b"[" * 50_000])
def test_what_is_no_directory_is_refused(body: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async def talk() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        with pytest.raises(ClientError, match="not a list of brokers"):
            async with connect(directory=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"):
                pass
        server.close()

    run(talk())


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8160", "stomp://127.0.0.1:1", "http://h:1/path", "http://h:x", "http://", "http://a..b:8160"]
)
def test_addresses_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(ClientError, match="write it like http://127"):
        connect(directory=url)


def test_a_client_takes_a_server_or_a_directory() -> None:
    for server, directory in ((None, None), ("stomp://h:1", "http://h:1")):
        with pytest.raises(ClientError, match="give one of them"):
            connect(server, directory=directory)
