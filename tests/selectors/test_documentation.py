"""docs/selectors.md says what is so."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

from postroad.selectors import Selector, limits, topics
from tests.structure.markdown import blocks
from tests.structure.repository import ROOT

DOCUMENT = ROOT / "docs" / "selectors.md"
TEXT = DOCUMENT.read_text("utf-8")


def test_examples_print_what_the_document_says() -> None:
    found = blocks(DOCUMENT)
    pairs = [(code.text, shown.text) for code, shown in pairwise(found) if code.language == "python"]
    assert len(pairs) >= 3
    for code, shown in pairs:
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
        assert (run.returncode, run.stdout, run.stderr) == (0, shown, "")


def test_limits_are_those_of_the_document() -> None:
    listed = dict(re.findall(r"^\| `(MAX_\w+)` \| ([0-9,]+) \|", TEXT, re.MULTILINE))
    listed |= dict(re.findall(r"`(MAX_CONJUNCTIONS|MAX_EXPANDED_CONSTRAINTS)`\s\(([0-9,]+)\)", TEXT))
    actual = {
        name: value for module in (limits, topics) for name, value in vars(module).items() if name.startswith("MAX_")
    }
    assert {name: int(value.replace(",", "")) for name, value in listed.items()} == actual


def test_selectors_by_example_are_selectors() -> None:
    table = TEXT.partition("## By example")[2].partition("## Grammar")[0]
    examples = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(examples) >= 8
    for example in examples:
        assert str(Selector.parse(example)) == example
