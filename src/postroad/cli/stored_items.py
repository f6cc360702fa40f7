"""Commands that `postroad queues` and `postroad subscriptions` share: list, purge and delete stored items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer

from postroad.cli.admin_requests import NotThereError, admin_endpoint, admin_request, operator_name
from postroad.cli.output import counted, echo_json, echo_table, printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["DEFAULT_ADDRESS", "StoredItems", "echo_fields", "naming_the_list"]

DEFAULT_ADDRESS = "127.0.0.1:8161"
# Fields that are milliseconds since 1970; 0 for never.
_TIMES = frozenset({"created", "stopped"})


class StoredItems:
    """The items under one path of an admin endpoint.

    Args:
        kind: the path, which is also the field of the response that lists them.
        address: of the admin endpoint, with or without `http://`; or a broker of a network that runs here.
        token_file: with the token that the endpoint asks for.
        authority: a PEM file with the authority of its certificate; None for those that the system trusts.
    """

    def __init__(self, kind: str, address: str, token_file: Path | None, authority: Path | None) -> None:
        self._kind = kind
        # Outgoing queues are listed with the others.
        self._listing = kind if kind == "subscriptions" else "queues"
        self._endpoint = admin_endpoint(address, token_file, authority)

    def ask(self, *name: str, method: str = "GET", query: str = "") -> dict[str, Any]:
        """Return what the endpoint says about the item with this name; without a name, of all items."""
        path = "".join(f"/{quote(part, safe='')}" for part in (self._kind, *name))
        base, token, authority = self._endpoint
        try:
            return admin_request(base, path + query, token, method, authority)
        except NotThereError as error:
            if not name:
                raise
            raise naming_the_list(error, "subscriptions" if name[0].startswith("*") else self._listing) from None

    def echo_all(
        self,
        as_json: bool,
        line: Callable[[dict[str, Any]], str],
        if_none: str = "",
        which: Callable[[dict[str, Any]], bool] = lambda _: True,
    ) -> None:
        """Print all items, or some of them, one per line; if there are none, a note on stderr."""
        items = [each for each in self.ask()[self._kind] if which(each)]
        if if_none and not items and not as_json:
            typer.echo(f"postroad: {if_none}", err=True)
        for each in items:
            if as_json:
                echo_json(each)
            else:
                typer.echo(line(each))

    def purge(self, *name: str, as_json: bool) -> None:
        """Give up the messages of an item, and print how many."""
        found = self._delete(*name, "messages")
        if as_json:
            echo_json({"messages": found["messages"], "reason": found["reason"]})
        else:
            typer.echo(f"{counted(found['messages'], 'message')} given up: {printable(found['reason'])}")

    def delete(self, *name: str, as_json: bool) -> None:
        """End an item, and print how many messages went with it."""
        found = self._delete(*name)
        if as_json:
            echo_json({"messages": found["messages"], "reason": found["reason"]})
        else:
            typer.echo(f"{printable(found['reason'])}, with {counted(found['messages'], 'message')}")

    def _delete(self, *name: str) -> dict[str, Any]:
        return self.ask(*name, method="DELETE", query=f"?by={quote(operator_name(), safe='')}")


def naming_the_list(error: NotThereError, listing: str) -> NotThereError:
    """The error of a name that a broker does not know, with the command that lists those it knows."""
    # The broker speaks of its pages, to programs.
    return NotThereError(f"{str(error).partition(';')[0]}; `postroad {listing} list` shows what there is")


def echo_fields(title: str, fields: dict[str, Any]) -> None:
    """Print the fields of an item, one per line, with times for people."""
    echo_table(title, {key: _readable(key, value) for key, value in fields.items()})


def _readable(key: str, value: Any) -> Any:
    # Drawing trees takes long to import, and only this command needs it.
    from postroad.cli.journey_tree import instant

    if value is None or value == "":
        return "none"
    if key in _TIMES:
        return instant(value) if value else "no"
    return printable(value) if isinstance(value, str) else value
