"""Where the value of an option comes from: what is written in the command comes before variables of the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

__all__ = ["is_written"]


def is_written(context: typer.Context, name: str) -> bool:
    """Return whether an option stands in the command itself, instead of in a variable or as a default.

    Args:
        context: of the command.
        name: the parameter of the function.
    """
    source = context.get_parameter_source(name)
    # By its name: the class of sources is not public in every release of typer.
    return source is not None and source.name == "COMMANDLINE"
