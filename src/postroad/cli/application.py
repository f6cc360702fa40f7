"""The program `postroad`, and how it ends.

Commands import the rooms they need when they run: `postroad --help` must not wait for numba.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from postroad import __version__
from postroad.cli.command_tree import add_commands
from postroad.cli.completion import COMPLETION_VARIABLE, enable_completion
from postroad.cli.plain_values import PlainGroup
from postroad.errors import PostroadError

__all__ = ["EXIT_REFUSED", "main", "program"]

# Also the code for mistakes in the arguments. 1 means that the answer is no, or that the reader of the output is gone.
EXIT_REFUSED = 2


def program(first: str | None = None) -> typer.Typer:
    """The program with all its commands, or with the one that its first argument names."""
    app = typer.Typer(
        name="postroad",
        help="A content-based messaging network that can tell you where every message went.",
        cls=PlainGroup,
        no_args_is_help=True,
        # `postroad completion` instead of two options that every help would list.
        add_completion=False,
        # Groups and commands below inherit it.
        context_settings={"help_option_names": ["-h", "--help"]},
        # A PostroadError becomes a line of text; anything else is a defect, and its plain traceback is what helps.
        pretty_exceptions_enable=False,
    )
    app.callback()(_postroad)
    add_commands(app, first)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"postroad {__version__}")
        raise typer.Exit


def _postroad(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A content-based messaging network that can tell you where every message went."""


def main() -> None:
    """Run the command that the arguments name. Ctrl-C ends it with 130, a closed output with 1: both quietly."""
    enable_completion()
    # A shell that completes a word may have written only part of it.
    first = None if COMPLETION_VARIABLE in os.environ else next(iter(sys.argv[1:]), None)
    try:
        program(first)(prog_name="postroad", complete_var=COMPLETION_VARIABLE)
    except PostroadError as error:
        typer.echo(f"postroad: {error}", err=True)
        if details := getattr(error, "details", ""):
            typer.echo(details, err=True)
        sys.exit(getattr(error, "exit_code", EXIT_REFUSED))
    except ModuleNotFoundError as error:
        from postroad.cli.extras import what_to_install

        advice = what_to_install(error)
        if advice is None:
            raise
        typer.echo(f"postroad: {advice}", err=True)
        sys.exit(EXIT_REFUSED)
