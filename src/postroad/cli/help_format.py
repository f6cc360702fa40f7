"""The looks of help: words in place of types, and none of the libraries that it has no use for.

typer loads what can show help as Markdown and tracebacks in colour, a parser and a highlighter: a quarter of the time
of `postroad --help`. Help here is neither (`rich_markup_mode`, `pretty_exceptions_enable`).
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["load_help_format", "name_values"]

FORMAT = "typer.rich_utils"
# Module -> the one name that typer takes from it.
_UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}


# What stands for the value of an option that has no word of its own. typer shows the types of Python, at a width that
# leaves half of a terminal of 80 columns for the text.
_WORDS: dict[Any, str] = {int: "N", float: "N", str: "TEXT", Path: "PATH"}


def name_values(parameters: Any) -> None:
    """Give options a word for their value; flags and arguments, which say it by themselves, none."""
    for parameter in parameters:
        # Releases of typer that have no such attribute have words of their own.
        descriptor = getattr(parameter, "type_descriptor", None)
        if descriptor is None:
            continue
        if parameter.param_type_name == "argument":
            # With blanks, where lines may end.
            choices = ", ".join(map(str, descriptor.choices or ())) if descriptor.is_choice else None
            parameter.display_type_rich = partial(_word, choices)
        elif parameter.is_flag:
            parameter.display_type_rich = partial(_word, None)
        elif parameter.metavar is None and not descriptor.is_choice:
            parameter.metavar = _WORDS.get(descriptor.annotation)


def _word(word: str | None, ctx: Any) -> str | None:
    """Return the word for a parameter; typer asks for it with a context, by the name of this argument."""
    return word


def load_help_format() -> None:
    """Load what formats help, with stand-ins for what is not used; others who import that get the real thing."""
    if FORMAT in sys.modules or find_spec("rich") is None:
        return
    stand_ins = {}
    for module, name in _UNUSED.items():
        if module not in sys.modules:
            stand_ins[module] = ModuleType(module)
            setattr(stand_ins[module], name, type(name, (), {}))
    sys.modules.update(stand_ins)
    try:
        import_module(FORMAT)
    except ImportError:
        # A release of typer that takes more from them: then they are loaded after all.
        sys.modules.pop(FORMAT, None)
    finally:
        for module in stand_ins:
            del sys.modules[module]
