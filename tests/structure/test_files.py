"""What every file of the repository keeps to."""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING

import pytest

from tests.structure.repository import ROOT, files, name, parsed

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


def faults(path: Path) -> list[str]:
    """What a file of text must not have."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return ["not UTF-8"]
    ends = [] if not text or text.endswith("\n") else ["no line end at its end"]
    return [*offences(text), *ends, *(["a carriage return"] if "\r" in text else [])]


def test_files_are_clean_utf8_text() -> None:
    texts = [path for path in files() if path.suffix not in PICTURES]
    assert {name(path): found for path in texts if (found := faults(path))} == {}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a\n", []),
        (b"a", ["no line end at its end"]),
        (b"a\r\n", ["a carriage return"]),
        (b"\xff\n", ["not UTF-8"]),
    ],
)
def test_faults_of_files_are_noticed(tmp_path: Path, data: bytes, expected: list[str]) -> None:
    (tmp_path / "file").write_bytes(data)
    assert faults(tmp_path / "file") == expected


@pytest.mark.parametrize(
    ("head", "tail"),
    [("see /ho", "me/someone"), ("pip --in", "dex-url x"), ("<<<<", "<<< HEAD"), ("# TO", "DO: later")],
)
def test_offences_are_noticed(head: str, tail: str) -> None:
    assert len(offences(head + tail)) == 1
    assert offences(f"{head} {tail}") == []


def test_nothing_is_imported_from_a_module_of_tests() -> None:
    # What two modules of tests share stands in a module of its own.
    imported = {
        (name(path), node.module or "")
        for path in files(".py", ROOT / "tests")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom)
    }
    assert len(imported) > 1_000
    assert {one for one in imported if one[1].rpartition(".")[2].startswith("test_")} == set()
