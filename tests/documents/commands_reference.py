"""The reference of commands, made from the program itself: usage, what it does, arguments and options."""

from __future__ import annotations

import re
from typing import Any

import typer

from postroad.cli import application

HEAD = """# Commands

For whoever runs `postroad`, on one page: every command with its arguments and options. This page is
made from the program (`python -m tests.documents.references`), and a test keeps it so. [The command
line](../cli.md) shows how the commands are used together.

Every command takes `-h` and `--help`. Exit codes: 0 done; 1 the answer is no, or the reader of a
pipe has gone; 2 refused, with the reason on stderr; 130 Ctrl-C.
"""

HELP = "--help"
COLUMNS = 100


def program() -> Any:
    """The commands as the parser has them; its classes are not public."""
    return typer.main.get_command(application.program())


def commands(command: Any = None, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every command and group with the words that name it, in the order of the help."""
    command = command or program()
    found = [(words, command)]
    for name, inner in getattr(command, "commands", {}).items():
        found += commands(inner, (*words, name))
    return found


def commands_reference() -> str:
    """The page."""
    context: dict[tuple[str, ...], Any] = {}
    parts = [HEAD]
    for words, command in commands():
        # A group without options of its own needs no more than its name: its commands follow.
        context[words] = command.context_class(
            command, info_name=words[-1] if words else "postroad", parent=context.get(words[:-1]) if words else None
        )
        parts.append(_command_text(words, command, context[words]))
    return "\n".join(parts)


def _command_text(words: tuple[str, ...], command: Any, context: Any) -> str:
    name = " ".join(("postroad", *words))
    pieces = re.sub(r"\{(\S+)\}", r"\1", " ".join(command.collect_usage_pieces(context)))
    lines = [f"{'#' * min(2 + max(0, len(words) - 1), 3)} `{name}`", "", *_wrapped(command.help or ""), ""]
    lines += ["```text", f"{name} {pieces}", "```", ""]
    rows = [_row(parameter, context) for parameter in command.get_params(context)]
    if rows := [row for row in rows if row]:
        lines += ["| argument or option | |", "| --- | --- |", *rows, ""]
    return "\n".join(lines)


def _row(parameter: Any, context: Any) -> str:
    record = parameter.get_help_record(context)
    if record is None or HELP in record[0].split(", "):
        return ""
    names, said = (" ".join(text.split()).replace("|", "\\|") for text in record)
    return f"| `{names}` | {_without_markup(said)} |"


def _without_markup(text: str) -> str:
    """Angle brackets of a placeholder would be read as HTML."""
    return text.replace("<", "&lt;").replace("*", "\\*")


def _wrapped(text: str) -> list[str]:
    import textwrap

    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        lines += [*textwrap.wrap(_without_markup(" ".join(paragraph.split())), COLUMNS), ""]
    return lines[:-1]
