"""What every file of the repository keeps to."""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING

import pytest

from tests.structure.repository import ROOT, files, name

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTS = [path for path in files() if path.parent in (ROOT / "scripts", ROOT / ".ci")]

# Screenshots; drawings are SVG, which is text.
PICTURES = {".png"}

# The brackets keep this file from holding what it forbids.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.])/(?:[h]ome|[r]oot|[U]sers|[w]ork)/\w"),
    "a local package index": re.compile(r"[f]ile:///|[i]ndex-url"),
    "a merge conflict": re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE),
    "a note to self": re.compile(r"\b(?:[F]IXME|[T]ODO)\b"),
}


def offences(text: str) -> list[str]:
    return [f"{what}: {found[0]}" for what, pattern in FORBIDDEN.items() if (found := pattern.search(text))]


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_script_can_be_executed(path: Path) -> None:
    assert os.access(path, os.X_OK), f"chmod +x {name(path)}"
    assert path.read_text("utf-8").startswith("#!/usr/bin/env bash\n")


@pytest.mark.parametrize("path", [path for path in files() if path.suffix not in PICTURES], ids=name)
def test_file_is_clean_utf8_text(path: Path) -> None:
    text = path.read_bytes().decode("utf-8")
    assert "\r" not in text
    assert not text or text.endswith("\n")
    assert offences(text) == []


@pytest.mark.parametrize(
    ("head", "tail"),
    [("see /ho", "me/someone"), ("pip --in", "dex-url x"), ("<<<<", "<<< HEAD"), ("# TO", "DO: later")],
)
def test_offences_are_noticed(head: str, tail: str) -> None:
    assert len(offences(head + tail)) == 1
    assert offences(f"{head} {tail}") == []


@pytest.mark.parametrize("path", files(".py", ROOT / "tests"), ids=name)
def test_nothing_is_imported_from_a_module_of_tests(path: Path) -> None:
    # What two modules of tests share stands in a module of its own.
    tree = ast.parse(path.read_text("utf-8"))
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert [module for module in imported if module.rpartition(".")[2].startswith("test_")] == []
