"""A few GET requests over HTTP/1.1, one per connection: enough for health checks, scrapers and directories."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import parse_qsl

import msgspec

from postroad.protocols.admin_proof import PROOF_SCHEME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

__all__ = [
    "JSON",
    "LOOPBACK",
    "LOOPBACK_NAMES",
    "MOST_REQUEST_BYTES",
    "REQUEST_SECONDS",
    "Endpoint",
    "Guard",
    "HttpResponse",
    "Request",
    "json_response",
    "text_response",
]

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


class Request(NamedTuple):
    """A request.

    Attributes:
        path: without the query.
        query: names and values after the question mark.
        token: what the header `Authorization: Bearer …` holds; empty without.
        method: GET, or another one that the endpoint serves.
        target: path and query as they came.
        proof: what the header `Authorization: Postroad-Proof …` holds; empty without.
        address: where the connection ends here: host and port.
        is_proved: whether the proof was checked and found good.
    """

    path: str
    query: Mapping[str, str]
    token: str = ""
    method: str = "GET"
    target: str = ""
    proof: str = ""
    address: str = ""
    is_proved: bool = False


class HttpResponse(NamedTuple):
    """What goes back."""

    status: HTTPStatus
    kind: str
    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})


def text_response(status: HTTPStatus, text: str) -> HttpResponse:
    """A line of text."""
    return HttpResponse(status, _TEXT, f"{text}\n".encode())


def json_response(value: object) -> HttpResponse:
    """JSON that people can read too."""
    return HttpResponse(HTTPStatus.OK, JSON, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


class Guard(Protocol):
    """Knows the token of an endpoint (`protocols/admin_proof.py`)."""

    def admit(self, request: Request) -> Request:
        """The request with what was found of its proof."""

    def seal(self, request: Request, answer: HttpResponse) -> HttpResponse:
        """The answer, with a proof of its own if the request had one."""


class Endpoint:
    """Answers GET requests.

    A connection whose request has not come, or whose answer is not read, holds one of `most` places. When all are
    taken, the one that has held its place longest is cut off for the newcomer: slow clients never keep a health check
    out. Answers that have to be waited for hold one of `most_slow` other places in the meantime.

    Args:
        page: the answer to a request.
        most: connections at once.
        names: the names that a request may call this machine by; empty lets all.
        slow_seconds: how long an answer may take that has to be waited for.
        most_slow: how many such answers are worked on at once; a further request is refused.
        methods: those that it serves; requests have no body. A web page can make a browser send GET and POST to this
            machine, but DELETE only after a question that is answered with 405.
        guard: checks proofs of requests, and proves answers; None for neither.
    """

    def __init__(
        self,
        page: Callable[[Request], HttpResponse | Awaitable[HttpResponse]],
        most: int,
        names: Collection[str] = LOOPBACK_NAMES,
        slow_seconds: float = REQUEST_SECONDS,
        most_slow: int = 1,
        methods: Collection[str] = ("GET",),
        guard: Guard | None = None,
    ) -> None:
        self._page = page
        self._most = most
        self._names = names
        self._slow_seconds = slow_seconds
        self._most_slow = most_slow
        self._methods = methods
        self._guard = guard
        # In the order in which they came.
        self._places: dict[asyncio.StreamWriter, None] = {}
        self._slow = 0

    async def listen(self, port: int, host: str = LOOPBACK) -> asyncio.Server:
        """Open the port."""
        return await asyncio.start_server(self.serve, host, port, limit=MOST_REQUEST_BYTES)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the request that comes over a connection, and close it."""
        self._take_place(writer)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await self._read(reader, _address(writer))
            answer = request if isinstance(request, HttpResponse) else self._page(request)
            if not isinstance(answer, HttpResponse):
                answer = await self._waited_for(answer, writer)
            if self._guard is not None and isinstance(request, Request):
                answer = self._guard.seal(request, answer)
            async with asyncio.timeout(REQUEST_SECONDS):
                _write(writer, answer)
                await writer.drain()
        except (TimeoutError, ConnectionError):
            pass
        except Exception:
            log.exception("internal error", extra={"where": "http"})
            text = "internal error; the log of the broker says where"
            with contextlib.suppress(ConnectionError):
                _write(writer, text_response(HTTPStatus.INTERNAL_SERVER_ERROR, text))
        finally:
            self._places.pop(writer, None)
            writer.close()

    def _take_place(self, writer: asyncio.StreamWriter) -> None:
        while len(self._places) >= self._most:
            oldest = next(iter(self._places))
            del self._places[oldest]
            # Its task sees the end of the connection, and ends.
            oldest.transport.abort()
        self._places[writer] = None

    async def _waited_for(self, answer: Awaitable[HttpResponse], writer: asyncio.StreamWriter) -> HttpResponse:
        """The answer, once it is there; meanwhile its connection has another place.

        Raises:
            ConnectionError: the connection was cut off between the arrival of its request and this call.
        """
        if writer not in self._places or self._slow >= self._most_slow:
            if inspect.iscoroutine(answer):
                answer.close()
            if writer not in self._places:
                raise ConnectionAbortedError("a newer connection took the place of this one")
            text = f"{self._most_slow} requests that take long are worked on already; ask again later"
            return text_response(HTTPStatus.SERVICE_UNAVAILABLE, text)
        self._slow += 1
        del self._places[writer]
        try:
            async with asyncio.timeout(self._slow_seconds):
                return await answer
        finally:
            self._slow -= 1
            self._take_place(writer)

    async def _read(self, reader: asyncio.StreamReader, address: str) -> Request | HttpResponse:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            text = f"the request has more than {MOST_REQUEST_BYTES:,} bytes"
            return text_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        except asyncio.IncompleteReadError:
            return text_response(HTTPStatus.BAD_REQUEST, "the request ends too early")
        request = self.parsed(head, address)
        return self._guard.admit(request) if self._guard is not None and isinstance(request, Request) else request

    def parsed(self, head: bytes, address: str = "") -> Request | HttpResponse:
        """The request of a head, or why it is not a valid one.

        Args:
            head: request line and headers.
            address: where the connection ends here.
        """
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return text_response(HTTPStatus.BAD_REQUEST, "this is not an HTTP/1.1 request")
        if words[0] not in self._methods:
            served = " and ".join(self._methods)
            return text_response(HTTPStatus.METHOD_NOT_ALLOWED, f"{words[0][:20]} is not served here; {served} is")
        host = next((line[5:].strip() for line in lines if line.lower().startswith("host:")), "localhost")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self._names and name.lower() not in self._names:
            return text_response(
                HTTPStatus.FORBIDDEN, "this endpoint is for this machine; ask for 127.0.0.1 or localhost"
            )
        path, _, query = words[1].partition("?")
        token, proof = (_credentials(lines, scheme) for scheme in ("bearer", PROOF_SCHEME.lower()))
        return Request(path, dict(parse_qsl(query)), token, words[0], words[1], proof, address)


def _credentials(lines: Sequence[str], wanted: str) -> str:
    """What the first `Authorization` header of a scheme holds."""
    for line in lines:
        name, _, value = line.partition(":")
        scheme, _, shown = value.strip().partition(" ")
        if name.lower() == "authorization" and scheme.lower() == wanted:
            return shown.strip()
    return ""


def _address(writer: asyncio.StreamWriter) -> str:
    """Where a connection ends here; empty if it is gone already."""
    name = writer.get_extra_info("sockname")
    return f"{name[0]} {name[1]}" if name else ""


def _write(writer: asyncio.StreamWriter, answer: HttpResponse) -> None:
    """Send an answer.

    Raises:
        ConnectionError: nobody is there to read it. Writing anyway is an error of another kind in some loops.
    """
    if writer.is_closing():
        raise ConnectionResetError("the connection is closed")
    writer.write(_encoded(answer))


def _encoded(answer: HttpResponse) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n"
    )
    more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
    return f"{head}{more}\r\n".encode("ascii") + answer.body
