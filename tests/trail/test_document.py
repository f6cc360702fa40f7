"""The limits that docs/trail.md names are those of the code."""

from __future__ import annotations

from pathlib import Path

from postroad.trail.columns import MAX_DATES
from postroad.trail.ledger import CHECKPOINT_EVERY

DOCUMENT = Path(__file__).parents[2] / "docs" / "trail.md"


def test_the_document_says_how_many_dates_a_commit_tells_apart() -> None:
    assert f"of more than {MAX_DATES} dates goes into {MAX_DATES} files" in " ".join(DOCUMENT.read_text().split())


def test_the_document_says_how_often_checkpoints_are_made() -> None:
    assert f"After {CHECKPOINT_EVERY} changes the writer makes a checkpoint" in " ".join(DOCUMENT.read_text().split())
