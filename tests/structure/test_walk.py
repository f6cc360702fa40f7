"""The walk of a message and the pages on how to add something name files that exist, and few of them."""

from __future__ import annotations

import ast
import re

import pytest

from tests.structure.repository import PACKAGE, ROOT, parsed

_FILE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`")


def sections() -> dict[str, set[str]]:
    """Heading of docs/extending.md -> the files of the package that it says to touch."""
    text = (ROOT / "docs" / "extending.md").read_text("utf-8")
    return {
        # Below the steps stand the tests.
        part.splitlines()[0]: set(re.findall(r"`([a-z_/]+\.py)`", part.split("\n\n`tests/")[0]))
        for part in text.split("\n## ")[1:]
    }


def test_walk_of_a_message_has_one_file_per_step() -> None:
    text = (ROOT / "docs" / "design.md").read_text("utf-8").split("## The way of a message")[1].split("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    files = [_FILE.findall(row) for row in rows]
    assert [len(found) for found in files] == [1] * len(rows)
    assert [found for (found,) in files if not (PACKAGE / found).is_file()] == []
    assert len({found for (found,) in files}) == len(rows) >= 15


def test_walk_of_a_message_names_functions_that_exist() -> None:
    text = (ROOT / "docs" / "design.md").read_text("utf-8").split("## The way of a message")[1].split("\n## ")[0]
    begins = re.findall(r"`([a-z_/]+\.py)` \| `(?:([A-Za-z]+)\.)?([a-z_]+)` \|", text)
    assert len(begins) >= 15
    missing = [(file, function) for file, of, function in begins if function not in defined(file, of)]
    assert missing == []


def defined(file: str, class_name: str) -> set[str]:
    """The functions of a module, or the methods of one of its classes."""
    body = parsed(PACKAGE / file).body
    if class_name:
        body = [
            part for node in body if isinstance(node, ast.ClassDef) and node.name == class_name for part in node.body
        ]
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("heading", sections())
def test_page_on_adding_something_names_at_most_three_files(heading: str) -> None:
    files = sections()[heading]
    assert 1 <= len(files) <= 3, files


def test_page_on_adding_something_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "extending.md").read_text("utf-8")
    named = re.findall(r"`([a-z_/]+\.(?:py|md))`", text)
    assert len(named) > 15
    missing = [one for one in named if not ((PACKAGE / one).is_file() or (ROOT / one).is_file())]
    assert missing == []
