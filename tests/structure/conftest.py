"""Names the modules that outgrow the soft cap at the end of a run: a remark, not a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.structure.repository import ROOT, files, line_count, name

if TYPE_CHECKING:
    import pytest

LINES_PER_MODULE = 800
LINES_PER_MODULE_SOFT = 500


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    large = [path for path in files(".py", ROOT) if line_count(path) > LINES_PER_MODULE_SOFT]
    if large:
        terminalreporter.section(f"modules over {LINES_PER_MODULE_SOFT} lines (cap {LINES_PER_MODULE})")
        for path in large:
            terminalreporter.line(f"{name(path)}: {line_count(path)}")
