"""An S3 server on loopback, and a proxy before it that does to requests what networks and stores do at times."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from postroad.trail import locations
from postroad.trail.locations import location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from postroad.trail.locations import Location

BUCKET = "trails"
REGION = "us-east-1"
# The server believes everybody.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": "something",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "date", "server"}


class Request(NamedTuple):
    """A request on its way to the server."""

    method: str
    path: str
    query: str

    @property
    def lists(self) -> bool:
        return self.method == "GET" and "list-type" in self.query


# What becomes of a request: "" goes through, "403" and "500" are refused by the server, "hang" gets no answer while the
# fault lasts, "half" loses its connection in the middle of its body, "lag" gets the list that the same request got
# before.
Fault = "Callable[[Request], str]"


class Store:
    """The server with its proxy.

    Attributes:
        fault: says of each request what becomes of it.
        asked: all requests so far.
    """

    def __init__(self, server: str) -> None:
        self._server = urlsplit(server)
        self.fault: Callable[[Request], str] = lambda _: ""
        self.asked: list[Request] = []
        self._lists: dict[str, tuple[int, list[tuple[str, str]], bytes]] = {}
        self._ended = threading.Event()
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body of an answer are two packets; the second would wait 40 ms for the receipt of the first.
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None:
                pass

            def handle_one_request(self) -> None:
                with suppress(OSError):
                    super().handle_one_request()

            def _pass(self) -> None:
                store.passes(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._proxy.daemon_threads = True
        self._thread = threading.Thread(target=self._proxy.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def place(self, folder: str) -> Location:
        """A folder in it, as a URI names it."""
        port = self._proxy.server_address[1]
        return location(f"s3://{BUCKET}/{folder}?endpoint_override=http://127.0.0.1:{port}&region={REGION}")

    def close(self) -> None:
        self._ended.set()
        self._proxy.shutdown()
        self._proxy.server_close()
        self._thread.join()

    def passes(self, handler: BaseHTTPRequestHandler) -> None:
        """Hand a request on to the server, or do to it what the fault says."""
        body = _body(handler)
        parts = urlsplit(handler.path)
        request = Request(handler.command, parts.path, parts.query)
        self.asked.append(request)
        fault = self.fault(request)
        if fault == "hang":
            while not self._ended.wait(0.02) and self.fault(request) == "hang":
                pass
            handler.close_connection = True
            return
        if fault in ("403", "500"):
            handler.send_response(int(fault))
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        if fault == "half":
            self._sends_half(handler, body)
            handler.close_connection = True
            return
        known = self._lists.get(handler.path) if fault == "lag" else None
        status, headers, data = known or self._answer(handler, body)
        if request.lists and fault != "lag":
            self._lists[handler.path] = status, headers, data
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        if request.method != "HEAD":
            handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _connected(self) -> http.client.HTTPConnection:
        assert self._server.hostname is not None
        return http.client.HTTPConnection(self._server.hostname, self._server.port, timeout=60)

    def _sends_half(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        connection = self._connected()
        connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
        for name, value in _headers(handler).items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[: len(body) // 2])
        connection.close()

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = self._connected()
        try:
            connection.request(handler.command, handler.path, body, _headers(handler))
            answer = connection.getresponse()
            data = answer.read()
            keep = _HOP_BY_HOP - ({"content-length"} if handler.command == "HEAD" else set())
            return answer.status, [one for one in answer.getheaders() if one[0].lower() not in keep], data
        finally:
            connection.close()


def _headers(handler: BaseHTTPRequestHandler) -> dict[str, str]:
    return {
        name: value
        for name, value in handler.headers.items()
        if name.lower() not in ("transfer-encoding", "content-length", "expect")
    }


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in handler.headers.get("Transfer-Encoding", ""):
        return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    found = b""
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        found += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return found


@contextmanager
def s3_server() -> Iterator[str]:
    """A server with an empty bucket; returns its address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        connection = http.client.HTTPConnection(host, port, timeout=60)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        connection.close()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def opened_store(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The server behind a proxy, with credentials in the environment, and little patience of those who ask."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(locations, "ATTEMPTS", 1)
    store = Store(server)
    try:
        yield store
    finally:
        locations.forget_stores()
        store.close()
