"""Modules and functions stay small enough to read in one sitting."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.structure.conftest import LINES_PER_MODULE
from tests.structure.repository import ROOT, files, line_count, name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node, clean=False) is not None
            body = node.body[1:] if documented else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            yield f"{name(path)}:{node.name}", lines


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_module_keeps_to_the_hard_cap(path: Path) -> None:
    assert line_count(path) <= LINES_PER_MODULE, "split it by what its parts are about"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_functions_keep_to_the_cap(path: Path) -> None:
    long = {function: lines for function, lines in functions(path) if lines > LINES_PER_FUNCTION}
    unexplained = {function: lines for function, lines in long.items() if function not in LONG_FUNCTIONS}
    assert not unexplained, f"over {LINES_PER_FUNCTION} lines: split, or give the reason in LONG_FUNCTIONS"


def test_excused_functions_still_need_their_excuse() -> None:
    lengths = dict(pair for path in SOURCES for pair in functions(path))
    assert [function for function in LONG_FUNCTIONS if lengths.get(function, 0) <= LINES_PER_FUNCTION] == []
