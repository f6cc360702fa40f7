"""What commands print: plain lines, tables for people, JSON for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AsJson", "counted", "echo_json", "echo_table", "json_text", "printable"]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line, instead of text.")]


def json_text(fields: Mapping[str, Any]) -> str:
    """One object on one line."""
    return json.dumps(fields, ensure_ascii=False)


def echo_json(fields: Mapping[str, Any]) -> None:
    """Print an object on its own line."""
    typer.echo(json_text(fields))


def echo_table(title: str, fields: Mapping[str, Any], *, err: bool = False) -> None:
    """Print names and values as a table; underscores in names become blanks."""
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False)
    table.add_column()
    # A place that is cut off cannot be copied.
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(name.replace("_", " "), _shown(value))
    console = Console(stderr=err, emoji=False)
    # Not as the table's title, which would be cut to the width of the table.
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    console.print(table)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def counted(number: int, what: str) -> str:
    """Return a number with its noun: 1 message, 2 messages."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Return text that cannot move the cursor or change the terminal, whatever a message contains; on one line."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
