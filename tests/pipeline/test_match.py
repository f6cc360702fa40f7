"""The job `match`: which archived messages a subscription would have got, in Spark, as the index says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from postroad.archive import export_archive
from postroad.errors import PostroadError
from postroad.messages import Batch
from postroad.pipeline import PipelineError
from postroad.pipeline.jobs.match import MatchOptions, run
from tests.archive.retained import retain
from tests.matching.oracle import OneByOne

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SELECTORS = (
    "",
    "price > 20",
    "stock LIKE 'S1%' AND n BETWEEN 3 AND 60",
    "missing IS NULL AND NOT (n = 4)",
    "JMSPriority = 4",
)


@pytest.fixture(scope="module")
def made() -> list[Batch]:
    return [
        Batch.build(
            (f"trades.{n % 3}", {"n": n, "stock": f"S{n}"}, {"price": str(row)}, bytes(200))
            for row, n in enumerate(range(k, k + 40))
        )
        for k in range(5)
    ]


def test_job_finds_what_the_index_finds(spark: SparkSession, tmp_path: Path, made: list[Batch]) -> None:
    retain(tmp_path / "store", *made)
    export_archive(tmp_path / "store", tmp_path / "archive")
    for selector in SELECTORS:
        truth = OneByOne()
        truth.add(1, selector or None, "trades.*")
        expected = {str(each.message(row).id) for each in made for row, keys in enumerate(truth.match(each)) if keys}
        options = MatchOptions(tmp_path / "archive", tmp_path / "out", selector, "trades.*")
        report = run(options, spark=spark)
        assert report.summary == {"messages": 200, "matched": len(expected)}
        found = pq.read_table(tmp_path / "out" / "match").to_pylist()
        assert {row["id"] for row in found} == expected
        assert {row["topic"] for row in found} <= {"trades.0", "trades.1", "trades.2"}


def test_job_refuses_a_selector_or_an_archive_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(PostroadError, match="expected"):
        run(MatchOptions(tmp_path, tmp_path / "out", "price >"))
    with pytest.raises(PipelineError, match="no archive here"):
        run(MatchOptions(tmp_path, tmp_path / "out", "price > 1"))
