"""A few GET requests over HTTP/1.1, one per connection: enough for health checks, scrapers and directories."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

__all__ = ["JSON", "LOOPBACK", "LOOPBACK_NAMES", "Answer", "Endpoint", "json_answer", "text_answer"]

log = logging.getLogger("postroad.server")

LOOPBACK = "127.0.0.1"
# A page from elsewhere whose name leads to this machine must not read what is here: it would send its own name.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
# The request line and headers of a browser or a scraper have 1 to 2 KiB.
MOST_REQUEST_BYTES = 8 * 1024
# From the first byte to the last; a request is one packet.
REQUEST_SECONDS = 5.0

JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """What goes back."""

    status: HTTPStatus
    kind: str
    body: bytes


def text_answer(status: HTTPStatus, text: str) -> Answer:
    """A line of text."""
    return Answer(status, _TEXT, f"{text}\n".encode())


def json_answer(value: object) -> Answer:
    """JSON that people can read too."""
    return Answer(HTTPStatus.OK, JSON, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


class Endpoint:
    """Answers GET requests.

    Args:
        page: the answer to a path and its query.
        most: requests at once; more are turned away.
        names: the names that a request may call this machine by; empty lets all.
        slow_seconds: how long an answer may take that has to be waited for.
    """

    def __init__(
        self,
        page: Callable[[str, Mapping[str, str]], Answer | Awaitable[Answer]],
        most: int,
        names: Collection[str] = LOOPBACK_NAMES,
        slow_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._page = page
        self._most = most
        self._names = names
        self._slow_seconds = slow_seconds
        self._requests = 0

    async def listen(self, port: int, host: str = LOOPBACK) -> asyncio.Server:
        """Open the port."""
        return await asyncio.start_server(self._serve, host, port, limit=MOST_REQUEST_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._requests += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS) as waiting:
                answer: Answer | Awaitable[Answer]
                if self._requests > self._most:
                    answer = text_answer(HTTPStatus.SERVICE_UNAVAILABLE, f"more than {self._most} requests at once")
                else:
                    answer = await self._read(reader)
                if not isinstance(answer, Answer):
                    waiting.reschedule(asyncio.get_running_loop().time() + self._slow_seconds)
                    answer = await answer
                writer.write(_encoded(answer))
                await writer.drain()
        except (TimeoutError, ConnectionError):
            pass
        except Exception:
            log.exception("internal error", extra={"where": "http"})
            text = "internal error; the log of the broker says where"
            writer.write(_encoded(text_answer(HTTPStatus.INTERNAL_SERVER_ERROR, text)))
        finally:
            self._requests -= 1
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Answer | Awaitable[Answer]:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            text = f"the request has more than {MOST_REQUEST_BYTES:,} bytes"
            return text_answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        except asyncio.IncompleteReadError:
            return text_answer(HTTPStatus.BAD_REQUEST, "the request ends too early")
        return self.answer(request)

    def answer(self, request: bytes) -> Answer | Awaitable[Answer]:
        """The answer to the head of a request, or what gives it in a while."""
        first, *lines = request.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return text_answer(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request")
        if words[0] != "GET":
            return text_answer(HTTPStatus.METHOD_NOT_ALLOWED, f"{words[0][:20]} is not served here; GET is")
        host = next((line[5:].strip() for line in lines if line.lower().startswith("host:")), "localhost")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self._names and name.lower() not in self._names:
            return text_answer(
                HTTPStatus.FORBIDDEN, "this endpoint is for this machine; ask for 127.0.0.1 or localhost"
            )
        path, _, query = words[1].partition("?")
        return self._page(path, dict(parse_qsl(query)))


def _encoded(answer: Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + answer.body
