"""`postroad publish`: send messages from the terminal."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.connection import Attributes, Ca, Directory, Login, Passcode, Reach, Server, read_attributes
from postroad.cli.output import AsJson, counted, echo_json
from postroad.cli.topics import check_written
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from postroad.client import Client
    from postroad.messages import Draft

__all__ = ["publish"]

# Messages passed to the client at a time.
PART = 1_000
# With --rate: how often due messages are sent; a finer beat only costs processor time.
BEAT_SECONDS = 0.01


def publish(
    context: typer.Context,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Where to publish, such as quotes.tokyo or /queue/NAME.")
    ],
    bodies: Annotated[list[str] | None, typer.Argument(metavar="BODY", help="One message each.")] = None,
    attribute: Attributes = None,
    stdin_lines: Annotated[bool, typer.Option("--stdin-lines", help="One message for each line of the input.")] = False,
    count: Annotated[int, typer.Option(min=1, help="How often to send the messages.")] = 1,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Messages per second, at most.")] = None,
    receipt: Annotated[bool, typer.Option("--receipt", help="Wait for the broker, and print the ids.")] = False,
    server: Server = "stomp://127.0.0.1:61613",
    directory: Directory = None,
    login: Login = None,
    passcode: Passcode = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Publish messages: one for each BODY, or one with an empty body, or one for each line of the input."""
    if stdin_lines and (bodies or count > 1):
        raise PostroadError("--stdin-lines sends the lines of the input, once each: leave out BODY and --count")
    check_written(topic, pattern=False)
    attributes = read_attributes(attribute)
    reach = Reach(server, login, passcode, ca, directory).chosen(context)
    parts = _of_lines(topic, attributes) if stdin_lines else _of_bodies(topic, attributes, bodies or [""], count)
    sent, seconds = asyncio.run(_send(reach, _paced(parts, rate) if rate else parts, receipt, as_json))
    if as_json:
        echo_json({"published": sent, "seconds": round(seconds, 3)})
    else:
        typer.echo(f"published {counted(sent, 'message')} in {seconds:.3f} s", err=True)


async def _send(reach: Reach, parts: AsyncIterator[list[Draft]], receipt: bool, as_json: bool) -> tuple[int, float]:
    """Return how many were sent, and in how many seconds, from the connection until the broker had them all."""
    sent = 0
    async with reach.client() as client:
        started = time.perf_counter()
        async for part in parts:
            await _send_part(client, part, receipt, as_json)
            sent += len(part)
    return sent, time.perf_counter() - started


async def _send_part(client: Client, part: list[Draft], receipt: bool, as_json: bool) -> None:
    ids = await client.publish_many(part, receipt=receipt)
    # An id means that the broker has the message, so it is printed when that is known.
    for given in ids if receipt else ():
        if as_json:
            echo_json({"id": str(given)})
        else:
            typer.echo(str(given))


async def _of_bodies(
    topic: str, attributes: dict[str, str], bodies: list[str], count: int
) -> AsyncIterator[list[Draft]]:
    from postroad.messages import Draft

    drafts = [Draft(topic, attributes, body=body.encode("utf-8", "surrogateescape")) for body in bodies]
    everything = itertools.chain.from_iterable(itertools.repeat(drafts, count))
    while part := list(itertools.islice(everything, PART)):
        yield part


async def _of_lines(topic: str, attributes: dict[str, str]) -> AsyncIterator[list[Draft]]:
    from postroad.cli.standard_input import input_lines
    from postroad.messages import Draft
    from postroad.messages.limits import MAX_BODY_BYTES

    async for lines in input_lines(MAX_BODY_BYTES):
        yield [Draft(topic, attributes, body=line) for line in lines]


async def _paced(parts: AsyncIterator[list[Draft]], rate: float) -> AsyncIterator[list[Draft]]:
    """Yield the same messages, none before its time: the n-th is due n / rate seconds after the first."""
    loop = asyncio.get_running_loop()
    start, sent = loop.time(), 0
    async for part in parts:
        while part:
            due = int((loop.time() - start) * rate) + 1 - sent
            if due > 0:
                now, part = part[:due], part[due:]
                sent += len(now)
                yield now
            else:
                await asyncio.sleep(max(BEAT_SECONDS, start + sent / rate - loop.time()))
