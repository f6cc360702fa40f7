"""docs/matching.md says what is so."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from postroad.lab.workloads import WORKLOADS
from postroad.matching import SubscriptionIndex
from tests.structure.markdown import blocks
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    import pytest

DOCUMENT = ROOT / "docs" / "matching.md"
TEXT = DOCUMENT.read_text("utf-8")


def test_example_prints_what_the_document_says(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [(code.text, shown.text) for code, shown in pairwise(blocks(DOCUMENT)) if code.language == "python"]
    assert len(pairs) == 1
    for code, shown in pairs:
        exec(code, {})
        assert capsys.readouterr().out == shown


def test_every_public_call_is_in_the_document() -> None:
    public = {name: value for name, value in vars(SubscriptionIndex).items() if not name.startswith("_")}
    named = {name: f"`{name}`" if isinstance(value, property) else f"`{name}(" for name, value in public.items()}
    assert {name for name, text in named.items() if text not in TEXT} == set()


def test_every_workload_is_in_the_document() -> None:
    assert {letter for letter in WORKLOADS if f"| ({letter}) |" not in TEXT} == set()
