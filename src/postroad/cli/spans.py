"""`postroad trace --otlp`: journeys as OpenTelemetry spans, to a file or to a collector."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Any

import typer

from postroad import __version__
from postroad.errors import PostroadError

__all__ = ["export_spans"]

SEND_SECONDS = 30.0
# A collector responds with an empty object, or with a sentence.
MOST_BYTES = 1 << 20
STDOUT = "-"


def export_spans(target: str, documents: list[dict[str, Any]], asked: str) -> None:
    """Write or send the spans of journeys.

    Args:
        target: a file, `-` for standard output, or the address of a collector, such as
            `http://127.0.0.1:4318/v1/traces`.
        documents: the journeys.
        asked: the requested id or alias: if it is a `traceparent`, by which the record knows the message, the spans
            belong to that trace.

    Raises:
        PostroadError: the file cannot be written, or the collector does not take them.
    """
    import msgspec

    from postroad.tracking import TraceContext, journey_spans

    context = TraceContext.parse(asked)
    request = journey_spans([(document, context) for document in documents], __version__)
    data = msgspec.json.encode(request)
    count = sum(len(scope["spans"]) for one in request["resourceSpans"] for scope in one["scopeSpans"])
    if target == STDOUT:
        typer.echo(data.decode())
        return
    if "://" in target:
        _send(target, data)
    else:
        try:
            Path(target).write_bytes(data + b"\n")
        except OSError as error:
            raise PostroadError(f"--otlp {target}: cannot be written ({error.strerror})") from None
    typer.echo(f"{count} spans {'sent' if '://' in target else 'written'} to {target}", err=True)


def _send(url: str, data: bytes) -> None:
    from postroad.client import HttpError, http_request

    headers = {"Content-Type": "application/json"}

    async def send() -> tuple[int, bytes]:
        async with asyncio.timeout(SEND_SECONDS):
            reply = await http_request(url, MOST_BYTES, "POST", headers, body=data)
            return reply.status, reply.body

    try:
        status, body = asyncio.run(send())
    except (OSError, HttpError) as error:
        raise PostroadError(
            f"--otlp {url}: not sent ({error}); give the traces address of an OTLP collector that takes JSON over "
            "HTTP, such as http://127.0.0.1:4318/v1/traces"
        ) from None
    if status != HTTPStatus.OK:
        raise PostroadError(f"--otlp {url}: the collector answers {status}: {body[:500].decode(errors='replace')}")
