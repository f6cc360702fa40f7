"""The documents tell the truth: their examples run, their links lead somewhere."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.structure.markdown import anchors, blocks, links
from tests.structure.repository import ROOT, files, name

if TYPE_CHECKING:
    from pathlib import Path

README = ROOT / "README.md"
DOCUMENTS = files(".md")


def broken_links(document: Path) -> list[str]:
    broken = []
    for target in links(document):
        if "://" in target:
            continue
        relative, _, fragment = target.partition("#")
        path = (document.parent / relative) if relative else document
        if not path.exists() or (fragment and fragment not in anchors(path)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_relative_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []


def test_broken_links_are_noticed(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("# A title\n[a](#a-title) [b](page.md) [c](gone.md) [d](page.md#gone) `[e](code.md)`\n")
    assert broken_links(document) == ["gone.md", "page.md#gone"]


def test_readme_examples_print_what_the_readme_says() -> None:
    """Each Python block of the README, run in a process of its own, prints the text block right after it."""
    found = blocks(README)
    pairs = [
        (example.text, shown.text)
        for example, shown in itertools.pairwise(found)
        if example.language == "python" and shown.language == "text"
    ]
    assert len(pairs) == sum(block.language == "python" for block in found) >= 1
    for example, shown in pairs:
        run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False, cwd=ROOT)
        # After a change of a kernel, the first process says that it compiles, and others that they wait for it.
        told = ("compiling kernels", "another process compiles the kernels")
        complaints = [line for line in run.stderr.splitlines() if not any(one in line for one in told)]
        assert (run.returncode, run.stdout, complaints) == (0, shown, [])


def test_every_decision_record_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    records = {path.name for path in folder.glob("[0-9]*.md")}
    assert records == {target for target in links(folder / "README.md") if target[0].isdigit()}


COLUMNS = 100


def long_lines(text: str) -> list[str]:
    """Lines of prose that are too long to read side by side: not code, tables, headings, or quotations."""
    found, is_code = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        if not is_code and len(line) > COLUMNS and not line.startswith(("|", ">", "<!--", "    ", "#")):
            found.append(line)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_prose_is_wrapped(document: Path) -> None:
    assert long_lines(document.read_text("utf-8")) == []


def test_long_prose_is_noticed_and_long_code_is_not() -> None:
    long = "word " * 30
    assert long_lines(f"{long}\n```\n{long}\n```\n| {long} |") == [long]


# Pages that are lists of pages, or made from the code or from runs.
LISTS_OR_MADE = {"docs/index.md"}
PAGES = [
    path
    for path in DOCUMENTS
    if name(path).startswith("docs/")
    and path.parent.name not in ("decisions", "reference", "lab")
    and name(path) not in LISTS_OR_MADE
]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page_says_first_for_whom_it_is_and_what_they_can_do_after_it(page: Path) -> None:
    first = " ".join(page.read_text("utf-8").split("\n\n")[1].split())
    assert re.match(r"(This page is for|For) ", first), first
    assert re.search(r"\bAfter (it|this page)\b", first), first
