"""`postroad completion`: commands, options and choices by the Tab key."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["COMPLETION_VARIABLE", "completion", "enable_completion"]

PROGRAM = "postroad"
# The script of a shell sets it and runs the program, which then prints possible continuations instead of running.
COMPLETION_VARIABLE = "_POSTROAD_COMPLETE"


class CompletionShell(StrEnum):
    """Supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[CompletionShell, typer.Argument(metavar="SHELL", help="The shell.")]) -> None:
    """Print a script that teaches a shell to complete commands, options and choices.

    bash: put `eval "$(postroad completion bash)"` into ~/.bashrc. zsh: the same with zsh, into ~/.zshrc after compinit.
    fish: postroad completion fish > ~/.config/fish/completions/postroad.fish
    """
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE, shell=shell.value))


def enable_completion() -> None:
    """Let the program answer the shell, if the shell started it for that."""
    if COMPLETION_VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
