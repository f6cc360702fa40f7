"""`postroad queues`: the queues of a running broker."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from postroad.cli.admin_requests import AdminAddress, AdminAuthority, NotThereError, TokenFile
from postroad.cli.output import AsJson, counted, echo_json, printable
from postroad.cli.stored_items import DEFAULT_ADDRESS, StoredItems, echo_fields

__all__ = ["delete", "list_queues", "outgoing_line", "purge", "show"]

QueueName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the queue, without /queue/.")]
Outgoing = Annotated[
    bool,
    typer.Option("--outgoing", help="What waits at this broker for a queue of that name that another broker has."),
]
_KIND = "queues"
_OUTGOING = "outgoing"


def list_queues(
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """List the queues of a broker, and what waits there for queues of other brokers."""
    StoredItems(_KIND, admin, admin_token_file, admin_ca).echo_all(as_json, _line, "there are no queues")
    # A broker of an earlier version does not list these.
    with contextlib.suppress(NotThereError):
        StoredItems(_OUTGOING, admin, admin_token_file, admin_ca).echo_all(
            as_json, outgoing_line, which=lambda each: not each.get("durable")
        )


def show(
    name: QueueName,
    outgoing: Outgoing = False,
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """Tell what waits in a queue, and who consumes it."""
    found = StoredItems(_kind(outgoing), admin, admin_token_file, admin_ca).ask(_plain(name))
    if as_json:
        echo_json(found)
        return
    consumers = found.pop("consumers", ())
    echo_fields(printable(name), found)
    for each in consumers:
        typer.echo(_consumer(each))


def purge(
    name: QueueName,
    outgoing: Outgoing = False,
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """Give up all messages that wait in a queue; the record says who did it."""
    StoredItems(_kind(outgoing), admin, admin_token_file, admin_ca).purge(_plain(name), as_json=as_json)


def delete(
    name: QueueName,
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """End a queue, with all that is in it, and close its consumers; the record says who did it."""
    StoredItems(_KIND, admin, admin_token_file, admin_ca).delete(_plain(name), as_json=as_json)


def _kind(outgoing: bool) -> str:
    return _OUTGOING if outgoing else _KIND


def _plain(name: str) -> str:
    return name.removeprefix("/queue/")


def _line(found: dict[str, Any]) -> str:
    delayed = f"  {found['delayed_messages_now']:,} delayed" if found["delayed_messages_now"] else ""
    return (
        f"{printable(found['name'])}  {found['waiting_messages_now']:,} waiting  "
        f"{found['in_flight_messages_now']:,} in flight{delayed}  {counted(found['consumers_now'], 'consumer')}"
    )


def outgoing_line(found: dict[str, Any]) -> str:
    """Return what waits at a broker for a queue, or for the durable subscriptions, of another one."""
    trouble = f"  {printable(found['trouble'])}" if found["trouble"] else ""
    reached = "" if found["home_reached_now"] else ", which cannot be reached"
    name = "durable subscriptions" if found.get("durable") else printable(found["name"])
    return (
        f"{name}  for broker {found['home']}{reached}: {found['waiting_messages_now']:,} waiting  "
        f"{found['unconfirmed_messages_now']:,} under way  {found['stored_bytes_now']:,} bytes  "
        f"oldest {found['oldest_ms_now'] / 1_000:,.0f} s{trouble}"
    )


def _consumer(found: dict[str, Any]) -> str:
    where = f"  where {printable(found['selector'])}" if found["selector"] else ""
    exclusive = "  exclusive" if found["exclusive"] else ""
    return (
        f"  session {found['session']}  {printable(found['principal']) or 'no login'}  ack {found['ack']}  "
        f"{found['unacknowledged_now']:,} of {found['prefetch']:,} unacknowledged{exclusive}{where}"
    )
