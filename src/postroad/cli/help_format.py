"""The looks of help, without the libraries that it has no use for.

typer loads what can show help as Markdown and tracebacks in colour, a parser and a highlighter: a quarter of the time
of `postroad --help`. Help here is neither (`rich_markup_mode`, `pretty_exceptions_enable`).
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

__all__ = ["load_help_format"]

FORMAT = "typer.rich_utils"
# Module -> the one name that typer takes from it.
_UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}


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
