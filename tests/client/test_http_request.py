"""The one request over HTTP: what replies it takes, and that whatever listens cannot make it read for ever."""

from __future__ import annotations

import asyncio

import pytest

from postroad.client import HttpError, HttpReply, http_request
from tests.server.scene import run

MOST = 100


async def asked(reply: bytes, method: str = "GET", **headers: str) -> tuple[HttpReply, bytes]:
    """The reply that the bytes make, and the request that was sent."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/page?q=1"
        return await http_request(url, MOST, method, headers), requests[0]
    finally:
        server.close()


def test_request_names_method_page_host_and_headers() -> None:
    async def talk() -> None:
        reply, request = await asked(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nyes", "DELETE", Authorization="Bearer x"
        )
        assert reply == HttpReply(200, "OK", b"ye")
        first, *lines = request.decode().split("\r\n")
        assert first == "DELETE /page?q=1 HTTP/1.1"
        assert {"Connection: close", "Authorization: Bearer x"} <= set(lines)

    run(talk)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"HTTP/1.1 404 Not Found\r\ncontent-length:3\r\n\r\nno!", HttpReply(404, "Not Found", b"no!")),
        (b"HTTP/1.0 200 OK\r\n\r\nup to the end", HttpReply(200, "OK", b"up to the end")),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\nB;x=y\r\n and second\r\n0\r\n\r\n",
            HttpReply(200, "OK", b"first and second"),
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 100, HttpReply(200, "OK", b"x" * 100)),
    ],
)
def test_replies_of_every_form_are_read(reply: bytes, expected: HttpReply) -> None:
    async def talk() -> None:
        assert (await asked(reply))[0] == expected

    run(talk)


@pytest.mark.parametrize(
    ("reply", "error", "problem"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", HttpError, "not HTTP"),
        (b"HTTP/1.1 OK\r\n\r\n", HttpError, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", HttpError, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", HttpError, "at most"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + b"x" * 101,
            HttpError,
            "101 bytes, and 100 are read at most",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101, HttpError, "at most"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101, HttpError, "at most"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n", HttpError, "at most"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, HttpError, "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nearly", ConnectionError, "too early"),
        (b"", ConnectionError, "too early"),
    ],
)
def test_replies_that_are_none_or_too_long_are_refused(reply: bytes, error: type[Exception], problem: str) -> None:
    async def talk() -> None:
        with pytest.raises(error, match=problem):
            await asked(reply)

    run(talk)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "http://127.0.0.1:99999/", "nothing"])
def test_addresses_that_are_none_are_refused(url: str) -> None:
    async def talk() -> None:
        with pytest.raises(HttpError, match="not an address of HTTP"):
            await http_request(url, MOST)

    run(talk)
