"""`postroad queues`: the queues of a running broker."""

from __future__ import annotations

import getpass
from typing import Annotated, Any
from urllib.parse import quote

import typer

from postroad.cli.admin_requests import admin_request, read_token
from postroad.cli.output import AsJson, echo_json, echo_table, printable
from postroad.cli.subscriptions import DEFAULT_ADDRESS, AdminAddress, TokenFile

__all__ = ["delete", "list_queues", "purge", "show"]

QueueName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the queue, without /queue/.")]


def list_queues(
    admin: AdminAddress = DEFAULT_ADDRESS, admin_token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """List the queues of a broker."""
    found: list[dict[str, Any]] = _ask(admin, admin_token_file, "")["queues"]
    for each in found:
        if as_json:
            echo_json(each)
        else:
            typer.echo(_line(each))


def show(
    name: QueueName,
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Tell what waits in a queue, and who consumes it."""
    found = _ask(admin, admin_token_file, _path(name))
    if as_json:
        echo_json(found)
        return
    consumers = found.pop("consumers")
    shown = {key: printable(value) if isinstance(value, str) else value for key, value in found.items()}
    echo_table(printable(name), shown)
    for each in consumers:
        typer.echo(_consumer(each))


def purge(name: QueueName, admin: AdminAddress = DEFAULT_ADDRESS, admin_token_file: TokenFile = None) -> None:
    """Give up all messages that wait in a queue; the record says who did it."""
    path = f"{_path(name)}/messages?by={quote(getpass.getuser(), safe='')}"
    found = _ask(admin, admin_token_file, path, "DELETE")
    typer.echo(f"{found['messages']:,} messages given up: {printable(found['reason'])}")


def delete(name: QueueName, admin: AdminAddress = DEFAULT_ADDRESS, admin_token_file: TokenFile = None) -> None:
    """End a queue, with all that is in it, and close its consumers; the record says who did it."""
    path = f"{_path(name)}?by={quote(getpass.getuser(), safe='')}"
    found = _ask(admin, admin_token_file, path, "DELETE")
    typer.echo(f"{printable(found['reason'])}, with {found['messages']:,} messages")


def _path(name: str) -> str:
    return f"/{quote(name.removeprefix('/queue/'), safe='')}"


def _ask(address: str, token_file: TokenFile, path: str, method: str = "GET") -> dict[str, Any]:
    base = (address if "://" in address else f"http://{address}").rstrip("/")
    return admin_request(base, f"/queues{path}", read_token(token_file), method)


def _line(found: dict[str, Any]) -> str:
    delayed = f"  {found['delayed_messages_now']:,} delayed" if found["delayed_messages_now"] else ""
    return (
        f"{printable(found['name'])}  {found['waiting_messages_now']:,} waiting  "
        f"{found['in_flight_messages_now']:,} in flight{delayed}  {found['consumers_now']} consumers"
    )


def _consumer(found: dict[str, Any]) -> str:
    where = f"  where {printable(found['selector'])}" if found["selector"] else ""
    exclusive = "  exclusive" if found["exclusive"] else ""
    return (
        f"  session {found['session']}  {printable(found['principal']) or 'no login'}  ack {found['ack']}  "
        f"{found['unacknowledged_now']:,} of {found['prefetch']:,} unacknowledged{exclusive}{where}"
    )
