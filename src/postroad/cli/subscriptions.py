"""`postroad subscriptions`: the durable subscriptions of a running broker."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from postroad.cli.admin_requests import admin_request, read_token
from postroad.cli.output import AsJson, echo_json, echo_table, printable

__all__ = ["delete", "list_subscriptions", "purge", "show"]

Client = Annotated[str, typer.Argument(metavar="CLIENT", help="The client-id; - where the client gives none.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription.")]
AdminAddress = Annotated[str, typer.Option("--admin", metavar="ADDRESS", help="The broker's admin address.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(envvar="POSTROAD_ADMIN_TOKEN_FILE", help="The token of the broker's admin endpoint, if it asks."),
]
DEFAULT_ADDRESS = "127.0.0.1:8161"


def list_subscriptions(
    admin: AdminAddress = DEFAULT_ADDRESS, admin_token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """List the durable subscriptions of a broker."""
    found: list[dict[str, Any]] = _ask(admin, admin_token_file, "")["subscriptions"]
    for each in found:
        if as_json:
            echo_json(each)
        else:
            typer.echo(_line(each))


def show(
    client: Client,
    name: Name,
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Tell what a durable subscription wants, who has it, and what waits for it."""
    found = _ask(admin, admin_token_file, _path(client, name))
    if as_json:
        echo_json(found)
    else:
        shown = {key: printable(value) if isinstance(value, str) else value for key, value in found.items()}
        echo_table(f"{printable(client)}/{printable(name)}", shown)


def purge(
    client: Client, name: Name, admin: AdminAddress = DEFAULT_ADDRESS, admin_token_file: TokenFile = None
) -> None:
    """Give up all messages that wait for a durable subscription; the record says who did it."""
    path = f"{_path(client, name)}/messages?by={quote(getpass.getuser(), safe='')}"
    found = _ask(admin, admin_token_file, path, "DELETE")
    typer.echo(f"{found['messages']:,} messages given up: {printable(found['reason'])}")


def delete(
    client: Client, name: Name, admin: AdminAddress = DEFAULT_ADDRESS, admin_token_file: TokenFile = None
) -> None:
    """End a durable subscription, with all that waits for it; the record says who did it."""
    path = f"{_path(client, name)}?by={quote(getpass.getuser(), safe='')}"
    found = _ask(admin, admin_token_file, path, "DELETE")
    typer.echo(f"{printable(found['reason'])}, with {found['messages']:,} messages")


def _path(client: str, name: str) -> str:
    return f"/{quote(client, safe='')}/{quote(name, safe='')}"


def _ask(address: str, token_file: Path | None, path: str, method: str = "GET") -> dict[str, Any]:
    base = (address if "://" in address else f"http://{address}").rstrip("/")
    return admin_request(base, f"/subscriptions{path}", read_token(token_file), method)


def _line(found: dict[str, Any]) -> str:
    who = f"{printable(found['client'])}/{printable(found['name'])}"
    where = f" where {printable(found['selector'])}" if found["selector"] else ""
    stopped = "  STOPPED at its limit" if found["stopped"] else ""
    state = "away" if found["session_now"] is None else f"session {found['session_now']}"
    return f"{who}  {printable(found['topic'])}{where}  {found['waiting_messages_now']:,} waiting  {state}{stopped}"
