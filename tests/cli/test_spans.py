"""OpenTelemetry in and out: `traceparent` goes through a network untouched, and a journey comes out as spans."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from postroad.cli.spans import export_spans
from postroad.config import TrackingConfig
from postroad.errors import PostroadError
from postroad.topology import line
from tests.cli.programs import here
from tests.server.live import live
from tests.server.scene import Client, run

if TYPE_CHECKING:
    from pathlib import Path

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"}


class Collector:
    """Takes what exporters send over HTTP."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.status = "200 OK"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert head.startswith("POST /v1/traces HTTP/1.1\r\n")
        assert "Content-Type: application/json" in head
        size = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
        self.bodies.append(json.loads(await reader.readexactly(size)))
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        await writer.drain()
        writer.close()


def test_a_context_goes_through_two_brokers_and_the_journey_joins_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def traced(*arguments: str) -> Any:
        return await asyncio.to_thread(here, monkeypatch, "trace", *arguments)

    async def talk() -> None:
        tracking = TrackingConfig(alias_attribute="traceparent")
        async with live(line(2), tmp_path, admin_port=0, tracking=tracking) as network:
            await network.converged()
            reader = await Client.connect(network.services[2].port, login="ann")
            await reader.subscribe("mine", "a")
            writer = await Client.connect(network.services[1].port)
            first = None
            while not network.services[2].statistics().delivered:
                writer.publish("a", b"", receipt="r", **CONTEXT)
                first = first or await writer.frame()
                await asyncio.sleep(0.02)
            came = await reader.frame()
            assert {name: came.headers[name] for name in CONTEXT} == CONTEXT
            admin = f"127.0.0.1:{network.services[1].admin_port}"
            shown = await traced(came.headers["message-id"], "--network", admin, "--otlp", "-")
            assert (shown.code, shown.err) == (0, "")
            (one,) = {span["traceId"] for span in spans(json.loads(shown.out))}
            assert one == came.headers["message-id"].replace("-", "")
            # By its context: all messages of that span, in that trace.
            file = tmp_path / "spans.json"
            shown = await traced(CONTEXT["traceparent"], "--network", admin, "--otlp", str(file))
            assert f"spans written to {file}" in shown.err
            written = spans(json.loads(file.read_text()))
            assert {span["traceId"] for span in written} == {TRACE}
            assert SPAN in {span.get("parentSpanId") for span in written}
            assert any(span["name"].startswith("deliver 2/") for span in written)
            await sent(traced, came.headers["message-id"], admin)
            for client in (reader, writer):
                await client.close()

    async def sent(traced: Any, message: str, admin: str) -> None:
        collector = Collector()
        async with await asyncio.start_server(collector.serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/traces"
            shown = await traced(message, "--network", admin, "--otlp", url)
            assert f"spans sent to {url}" in shown.err
            assert len(spans(collector.bodies[0])) >= 3
            collector.status = "400 Bad Request"
            shown = await traced(message, "--network", admin, "--otlp", url)
            assert (shown.code, "the collector answers 400" in shown.err) == (2, True)

    run(talk, 120)


def spans(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [span for one in request["resourceSpans"] for scope in one["scopeSpans"] for span in scope["spans"]]


def test_a_collector_that_is_not_there_and_a_file_that_cannot_be_are_named(tmp_path: Path) -> None:
    with pytest.raises(PostroadError, match="OTLP collector"):
        export_spans("http://127.0.0.1:1/v1/traces", [], "an id")
    with pytest.raises(PostroadError, match="cannot be written"):
        export_spans(str(tmp_path / "none" / "x.json"), [], "an id")
