"""Modules and functions stay small enough to read in one sitting."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.structure.repository import ROOT, files, line_count, name, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LINES_PER_MODULE = 500
LINES_PER_FUNCTION = 70

# Functions that are clearer in one piece, each with the reason. `module:function`, as the failing test prints it.
LONG_FUNCTIONS: dict[str, str] = {}

MODULES = [
    path
    for folder in ("src", "bench", "examples", "truth", "tests")
    if (ROOT / folder).is_dir()
    for path in files(".py", ROOT / folder)
]
SOURCES = files(".py", ROOT / "src")


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function of a module with the lines of its body.

    The docstring does not count, nor do the parameters: a kernel names each of its arrays on a line of its own.
    """
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node, clean=False) is not None
            body = node.body[1:] if documented else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            yield f"{name(path)}:{node.name}", lines


def test_modules_keep_to_the_cap() -> None:
    long = {name(path): lines for path in MODULES if (lines := line_count(path)) > LINES_PER_MODULE}
    assert long == {}, f"over {LINES_PER_MODULE} lines: split them by what their parts are about"


def test_functions_keep_to_the_cap() -> None:
    lengths = dict(pair for path in SOURCES for pair in functions(path))
    assert len(lengths) > 1_000
    long = {function: lines for function, lines in lengths.items() if lines > LINES_PER_FUNCTION}
    unexplained = {function: lines for function, lines in long.items() if function not in LONG_FUNCTIONS}
    assert unexplained == {}, f"over {LINES_PER_FUNCTION} lines: split, or give the reason in LONG_FUNCTIONS"
    assert set(LONG_FUNCTIONS) <= set(long), "the others need their excuse no longer"
