"""`postroad subscribe`: show messages in the terminal."""

from __future__ import annotations

import asyncio
import base64
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.connection import Ca, Directory, Login, Passcode, Reach, Server
from postroad.cli.match import point_out_doubts
from postroad.cli.output import AsJson, json_text, printable
from postroad.cli.topics import check_written
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from postroad.client import ReceivedMessage, Subscription

__all__ = ["subscribe"]


class AckChoice(StrEnum):
    """How messages are acknowledged."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "client-individual"


class Overflow(StrEnum):
    """What the broker does when this program is too slow."""

    SPOOL = "spool"
    DROP_OLDEST = "drop-oldest"
    PUSH_BACK = "push-back"
    DISCONNECT = "disconnect"


def subscribe(
    context: typer.Context,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="A topic, a pattern such as quotes.> or *.close, or /queue/NAME.")
    ],
    where: Annotated[str, typer.Option(help="A selector, such as: price > 20 AND stock = 'S1'.")] = "",
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many messages.")] = None,
    ack: Annotated[
        AckChoice | None,
        typer.Option(
            help="Acknowledge each message when it is printed, or all when sent: auto, unless it is durable or a queue."
        ),
    ] = None,
    durable: Annotated[
        str | None, typer.Option(metavar="NAME", help="Miss nothing between two subscriptions under this name.")
    ] = None,
    prefetch: Annotated[int | None, typer.Option(min=1, help="The most unacknowledged messages it may have.")] = None,
    overflow: Annotated[Overflow | None, typer.Option(help="What the broker does if this client is too slow.")] = None,
    reconnect: Annotated[bool, typer.Option("--reconnect", help="Connect again when the connection is lost.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Do not print on stderr when the subscription is ready.")
    ] = False,
    server: Server = "stomp://127.0.0.1:61613",
    directory: Directory = None,
    login: Login = None,
    passcode: Passcode = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Print messages as they come, one a line: topic, attributes, body. Ctrl-C ends it."""
    check_written(topic, pattern=True)
    reach = Reach(server, login, passcode, ca, directory).chosen(context)
    is_queue = topic.startswith("/queue/")
    mode = ack or (AckChoice.INDIVIDUAL if is_queue or durable is not None else AckChoice.AUTO)
    _check_counts(is_queue, mode, durable, prefetch, overflow)
    point_out_doubts(where)

    async def listen() -> None:
        chosen = None if overflow is None else overflow.value
        async with (
            reach.client(reconnect=reconnect, publishes=False) as client,
            client.subscribe(
                topic,
                where,
                ack=mode.value,
                overflow=chosen,  # type: ignore[arg-type]
                durable=durable,
                prefetch=prefetch,
            ) as subscription,
        ):
            if not quiet:
                typer.echo(f"subscribed to {topic}{' where ' if where else ''}{where} at {client.server}", err=True)
            printed = 0
            async for message in subscription:
                _print(message, subscription, as_json)
                if mode is not AckChoice.AUTO:
                    await client.ack(message)
                printed += 1
                if printed == count:
                    break

    asyncio.run(listen())


def _check_counts(
    is_queue: bool, mode: AckChoice, durable: str | None, prefetch: int | None, overflow: Overflow | None
) -> None:
    """Refuse options that would change nothing beside others."""
    if is_queue and durable is not None:
        raise PostroadError("--durable is for topics: a queue keeps its messages anyway; leave --durable out")
    if overflow is not None and (is_queue or durable is not None):
        what = "a queue" if is_queue else "--durable"
        raise PostroadError(
            f"--overflow does not apply to {what}: its messages wait in the broker's store; leave it out"
        )
    if prefetch is not None and mode is AckChoice.AUTO:
        raise PostroadError(
            "--prefetch limits messages that are not acknowledged: add --ack client-individual, or leave --prefetch out"
        )


def _print(message: ReceivedMessage, subscription: Subscription, as_json: bool) -> None:
    sys.stdout.write((json_text(as_object(message)) if as_json else as_line(message)) + "\n")
    # Not `typer.echo`, which flushes each time: a busy stream is written in blocks, the last line at once.
    if not subscription.waiting:
        sys.stdout.flush()


def as_line(message: ReceivedMessage) -> str:
    """Return a message for people: topic, name=value for each attribute, body."""
    parts = [message.topic, *(f"{name}={value}" for name, value in message.attributes.items())]
    body = message.body.decode("utf-8", "backslashreplace")
    return " ".join(printable(part) for part in [*parts, body] if part)


def as_object(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message for programs; a body that is not UTF-8 is in base 64."""
    fields = {"id": message.message_id, "topic": message.topic, "attributes": message.attributes}
    try:
        return {**fields, "body": message.body.decode()}
    except UnicodeDecodeError:
        return {**fields, "body_base64": base64.b64encode(message.body).decode()}
