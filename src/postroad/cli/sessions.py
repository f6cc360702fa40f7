"""`postroad sessions`: who is connected to a running broker."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from postroad.cli.admin_requests import (
    AdminAddress,
    AdminAuthority,
    NotThereError,
    TokenFile,
    admin_endpoint,
    admin_request,
    operator_name,
)
from postroad.cli.output import AsJson, echo_json, printable
from postroad.cli.stored_items import DEFAULT_ADDRESS, naming_the_list

__all__ = ["close", "list_sessions"]


def list_sessions(
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions of a broker with their addresses, protocols and subscriptions."""
    base, token, authority = admin_endpoint(admin, admin_token_file, admin_ca)
    status = admin_request(base, "/status", token, authority=authority)
    for session in status["sessions"]:
        if as_json:
            echo_json(session)
            continue
        typer.echo(_line(session))
        for one in session["subscriptions"]:
            typer.echo(_subscription(one))
    hidden = status["left_out"]["sessions"]
    if not (status["sessions"] or hidden or as_json):
        typer.echo("postroad: no client is connected", err=True)
    if hidden:
        typer.echo(f"postroad: {hidden:,} more are not listed; --admin-token-file shows who they are", err=True)


def close(
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="The number of the session, as `list` shows it.")],
    admin: AdminAddress = DEFAULT_ADDRESS,
    admin_token_file: TokenFile = None,
    admin_ca: AdminAuthority = None,
    as_json: AsJson = False,
) -> None:
    """Close a session; its client gets an ERROR that an operator did it, and the log says who."""
    path = f"/sessions/{number}?by={quote(operator_name(), safe='')}"
    base, token, authority = admin_endpoint(admin, admin_token_file, admin_ca)
    try:
        answer = admin_request(base, path, token, "DELETE", authority)
    except NotThereError as error:
        raise naming_the_list(error, "sessions") from None
    if as_json:
        echo_json({"closed": answer["closed"]})
    else:
        typer.echo(f"session {answer['closed']} is closed")


def _line(session: dict[str, Any]) -> str:
    state = "  paused" if session["paused"] else "  congested" if session["congested"] else ""
    return (
        f"{session['number']}  {printable(session['principal']) or 'no login'}  {printable(session['address'])}  "
        f"{printable(session['protocol'])}  {session['accepted']:,} accepted{state}"
    )


def _subscription(one: dict[str, Any]) -> str:
    where = f" where {printable(one['selector'])}" if one["selector"] else ""
    return (
        f"    {printable(one['key'])}  {printable(one['topic'])}{where}  {one['delivered']:,} delivered  "
        f"{one['waiting_messages_now']:,} waiting"
    )
