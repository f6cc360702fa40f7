"""The admin endpoint: a few GET requests over HTTP/1.1, on the loopback address only, one request per connection."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from postroad.errors import PostroadError
from postroad.messages import MessageId
from postroad.server.extras import has

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from postroad.server.status import Status
    from postroad.tracking import Exploration

__all__ = ["LOOPBACK", "Admin", "Answer"]

log = logging.getLogger("postroad.server")

LOOPBACK = "127.0.0.1"
# The request line and headers of a browser or a scraper have 1 to 2 KiB.
MOST_REQUEST_BYTES = 8 * 1024
# From the first byte to the last; whoever asks is on this machine.
REQUEST_SECONDS = 5.0
# A question about a message goes from broker to broker, and each may take its time.
TRACE_SECONDS = 60.0
# An operator, a scraper and a health check at once, and some to spare.
MOST_REQUESTS = 16

TRACE = "/trace/"
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
# A page from elsewhere whose name leads to this machine must not read what is here: it would send its own name.
_HOSTS = ("localhost", "127.0.0.1", "[::1]")


class Answer(NamedTuple):
    """What goes back."""

    status: HTTPStatus
    kind: str
    body: bytes


class _Asked(NamedTuple):
    path: str
    query: str


class Admin:
    """Answers /health, /ready, /status, /metrics and /trace/ID.

    Args:
        status: tells the state of the broker.
        is_ready: whether clients can connect.
        troubles: what does not work as it should, though the broker runs.
        trace: finds where a message went, as JSON; None where no record is kept.
    """

    def __init__(
        self,
        status: Callable[[], Status],
        is_ready: Callable[[], bool],
        troubles: Callable[[], list[str]] = list,
        trace: Callable[[MessageId, Exploration], Awaitable[bytes]] | None = None,
    ) -> None:
        self._status = status
        self._is_ready = is_ready
        self._troubles = troubles
        self._trace = trace
        self._requests = 0

    async def listen(self, port: int) -> asyncio.Server:
        """Open the port."""
        return await asyncio.start_server(self._serve, LOOPBACK, port, limit=MOST_REQUEST_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._requests += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS) as waiting:
                answer: Answer | bytes
                if self._requests > MOST_REQUESTS:
                    answer = _text(HTTPStatus.SERVICE_UNAVAILABLE, f"more than {MOST_REQUESTS} requests at once")
                else:
                    answer = await self._read(reader)
                if isinstance(answer, bytes):
                    waiting.reschedule(asyncio.get_running_loop().time() + TRACE_SECONDS)
                    answer = await self.respond(answer)
                writer.write(_encoded(answer))
                await writer.drain()
        except (TimeoutError, ConnectionError):
            pass
        except Exception:
            log.exception("internal error", extra={"where": "admin"})
        finally:
            self._requests -= 1
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Answer | bytes:
        """The head of a request, or the answer to what is none."""
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            text = f"the request has more than {MOST_REQUEST_BYTES:,} bytes"
            return _text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        except asyncio.IncompleteReadError:
            return _text(HTTPStatus.BAD_REQUEST, "the request ends too early")
        return request

    def answer(self, request: bytes) -> Answer:
        """The answer to the head of a request that needs no waiting: any but one about a message."""
        asked = _asked(request)
        return asked if isinstance(asked, Answer) else self._page(asked.path)

    async def respond(self, request: bytes) -> Answer:
        """The answer to the head of any request."""
        asked = _asked(request)
        if isinstance(asked, _Asked) and asked.path.startswith(TRACE):
            return await self._traced(asked)
        return self.answer(request)

    def _page(self, path: str) -> Answer:
        if path == "/health":
            troubles = self._troubles()
            return _text(HTTPStatus.OK, "\n".join(["degraded", *troubles]) if troubles else "ok")
        if path == "/ready":
            ready = self._is_ready()
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            return _text(status, "ready" if ready else "not ready")
        if path == "/status":
            body = msgspec.json.format(msgspec.json.encode(self._status()), indent=2) + b"\n"
            return Answer(HTTPStatus.OK, _JSON, body)
        if path == "/metrics":
            return self._metrics()
        return _text(HTTPStatus.NOT_FOUND, "there are /health, /ready, /status, /metrics and /trace/ID")

    async def _traced(self, asked: _Asked) -> Answer:
        if self._trace is None:
            return _text(HTTPStatus.NOT_IMPLEMENTED, "this broker keeps no record (tracking.recorder is none)")
        exploration: Exploration = "neighbours" if asked.query == "explore=neighbours" else "next-hops"
        try:
            message = MessageId.parse(asked.path.removeprefix(TRACE))
        except PostroadError as error:
            return _text(HTTPStatus.BAD_REQUEST, str(error))
        return Answer(HTTPStatus.OK, _JSON, await self._trace(message, exploration) + b"\n")

    def _metrics(self) -> Answer:
        if not has("prometheus_client"):
            text = "metrics need the library prometheus-client: pip install 'postroad[metrics]'"
            return _text(HTTPStatus.NOT_IMPLEMENTED, text)
        from postroad.server.metrics import metrics_text

        return Answer(HTTPStatus.OK, _METRICS, metrics_text(self._status()))


def _asked(request: bytes) -> _Asked | Answer:
    """What a request asks for; an answer where it is refused."""
    first, *lines = request.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return _text(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request")
    if words[0] != "GET":
        return _text(HTTPStatus.METHOD_NOT_ALLOWED, f"{words[0][:20]} is not served here; GET is")
    host = next((line[5:].strip() for line in lines if line.lower().startswith("host:")), "localhost")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name.lower() not in _HOSTS:
        return _text(HTTPStatus.FORBIDDEN, "this endpoint is for this machine; ask for 127.0.0.1 or localhost")
    path, _, query = words[1].partition("?")
    return _Asked(path, query)


def _text(status: HTTPStatus, text: str) -> Answer:
    return Answer(status, _TEXT, f"{text}\n".encode())


def _encoded(answer: Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + answer.body
