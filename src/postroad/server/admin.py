"""The admin endpoint: a few GET requests over HTTP/1.1, on the loopback address only, one request per connection."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from postroad.server.extras import has

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.server.status import Status

__all__ = ["LOOPBACK", "Admin", "Answer"]

log = logging.getLogger("postroad.server")

LOOPBACK = "127.0.0.1"
# The request line and headers of a browser or a scraper have 1 to 2 KiB.
MOST_REQUEST_BYTES = 8 * 1024
# From the first byte to the last; whoever asks is on this machine.
REQUEST_SECONDS = 5.0
# An operator, a scraper and a health check at once, and some to spare.
MOST_REQUESTS = 16

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


class Admin:
    """Answers /health, /ready, /status and /metrics.

    Args:
        status: tells the state of the broker.
        is_ready: whether clients can connect.
    """

    def __init__(self, status: Callable[[], Status], is_ready: Callable[[], bool]) -> None:
        self._status = status
        self._is_ready = is_ready
        self._requests = 0

    async def listen(self, port: int) -> asyncio.Server:
        """Open the port."""
        return await asyncio.start_server(self._serve, LOOPBACK, port, limit=MOST_REQUEST_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._requests += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                if self._requests > MOST_REQUESTS:
                    answer = _text(HTTPStatus.SERVICE_UNAVAILABLE, f"more than {MOST_REQUESTS} requests at once")
                else:
                    answer = await self._read(reader)
                writer.write(_encoded(answer))
                await writer.drain()
        except (TimeoutError, ConnectionError):
            pass
        except Exception:
            log.exception("internal error", extra={"where": "admin"})
        finally:
            self._requests -= 1
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Answer:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            text = f"the request has more than {MOST_REQUEST_BYTES:,} bytes"
            return _text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        except asyncio.IncompleteReadError:
            return _text(HTTPStatus.BAD_REQUEST, "the request ends too early")
        return self.answer(request)

    def answer(self, request: bytes) -> Answer:
        """The answer to the head of a request."""
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
        return self._page(words[1].partition("?")[0])

    def _page(self, path: str) -> Answer:
        if path == "/health":
            return _text(HTTPStatus.OK, "ok")
        if path == "/ready":
            ready = self._is_ready()
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            return _text(status, "ready" if ready else "not ready")
        if path == "/status":
            body = msgspec.json.format(msgspec.json.encode(self._status()), indent=2) + b"\n"
            return Answer(HTTPStatus.OK, _JSON, body)
        if path == "/metrics":
            return self._metrics()
        return _text(HTTPStatus.NOT_FOUND, "there are /health, /ready, /status and /metrics")

    def _metrics(self) -> Answer:
        if not has("prometheus_client"):
            text = "metrics need the library prometheus-client: pip install 'postroad[metrics]'"
            return _text(HTTPStatus.NOT_IMPLEMENTED, text)
        from postroad.server.metrics import metrics_text

        return Answer(HTTPStatus.OK, _METRICS, metrics_text(self._status()))


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
