"""`postroad subscriptions`: the durable subscriptions of a running broker."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from postroad.cli.admin_requests import AdminAddress, AdminAuthority, NotThereError, TokenFile
from postroad.cli.output import AsJson, echo_json, printable
from postroad.cli.queues import outgoing_line
from postroad.cli.stored_items import DEFAULT_ADDRESS, StoredItems, echo_fields

__all__ = ["delete", "list_subscriptions", "purge", "purge_outgoing", "show"]

Client = Annotated[str, typer.Argument(metavar="CLIENT", help="The client-id; - if the client gives none.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription.")]
_KIND = "subscriptions"
_OUTGOING = "outgoing"


def list_subscriptions(
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """List the durable subscriptions of a broker, and what waits there for those of other brokers."""
    StoredItems(_KIND, admin, admin_token_file, admin_ca).echo_all(
        as_json, _line, "there are no durable subscriptions; `postroad sessions list` shows all others"
    )
    # A broker of an earlier version does not list these.
    with contextlib.suppress(NotThereError):
        StoredItems(_OUTGOING, admin, admin_token_file, admin_ca).echo_all(
            as_json, outgoing_line, which=lambda each: bool(each.get("durable"))
        )


def show(
    client: Client,
    name: Name,
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """Tell what a durable subscription wants, who has it, and what waits for it."""
    found = StoredItems(_KIND, admin, admin_token_file, admin_ca).ask(client, name)
    if as_json:
        echo_json(found)
    else:
        echo_fields(f"{printable(client)}/{printable(name)}", found)


def purge(
    client: Client,
    name: Name,
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """Give up all messages that wait for a durable subscription; the record says who did it."""
    StoredItems(_KIND, admin, admin_token_file, admin_ca).purge(client, name, as_json=as_json)


def purge_outgoing(
    broker: Annotated[int, typer.Argument(metavar="BROKER", help="The number of the other broker.", min=1)],
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """Give up all messages that wait at a broker for the durable subscriptions of another one."""
    StoredItems(_OUTGOING, admin, admin_token_file, admin_ca).purge(f"*{broker}", as_json=as_json)


def delete(
    client: Client,
    name: Name,
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """End a durable subscription, with all that waits for it; the record says who did it."""
    StoredItems(_KIND, admin, admin_token_file, admin_ca).delete(client, name, as_json=as_json)


def _line(found: dict[str, Any]) -> str:
    who = f"{printable(found['client'])}/{printable(found['name'])}"
    where = f" where {printable(found['selector'])}" if found["selector"] else ""
    stopped = "  STOPPED at its limit" if found["stopped"] else ""
    state = "away" if found["session_now"] is None else f"session {found['session_now']}"
    return f"{who}  {printable(found['topic'])}{where}  {found['waiting_messages_now']:,} waiting  {state}{stopped}"
