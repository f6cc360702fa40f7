"""What tests of compaction share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postroad.pipeline.context import read_context
from postroad.pipeline.judgement import judged
from postroad.pipeline.sources import open_sources
from postroad.pipeline.tables import ID
from tests.pipeline.trails import evidence_of

if TYPE_CHECKING:
    from pathlib import Path


NOW = 1_767_300_000_000


def answers(trail: Path, ids: list[tuple[int, ...]]) -> dict[tuple[int, ...], dict[str, Any]]:
    rows = judged(read_context(open_sources(trail)), evidence_of(trail, ids)).to_pylist()
    return {tuple(row[name] for name in ID): row for row in rows}


def rows_of(trail: Path, table: str) -> int:
    return sum(
        entry.rows for here in open_sources(trail).all_entries().values() for entry in here if entry.table == table
    )
