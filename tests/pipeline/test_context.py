"""What the driver knows of the trail before it judges: coverage, and where filters cannot be asked about everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.pipeline import sources as sources_module
from postroad.pipeline.alerts import record_through
from postroad.pipeline.context import read_context
from postroad.pipeline.sources import open_sources
from postroad.trail import STANDING_TABLES, TrailWriter
from postroad.trail.manifest import change_name, manifest_folder
from tests.trail.samples import HOUR, NOON, passages
from tests.trail.subscribed import MIDNIGHT, MINUTE, attached, filters, sent

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("recorder", ["exact", "bloom"])
def test_filters_prove_nothing_where_the_change_that_says_who_came_is_lost(tmp_path: Path, recorder: str) -> None:
    writer = TrailWriter(tmp_path, 1, NOON)
    writer.write([attached(NOON + 1)], NOON + MINUTE)
    writer.write([], NOON + 2 * MINUTE)
    asked = [sent(NOON + HOUR), sent(MIDNIGHT + HOUR)]
    for message in asked:
        passed = passages([(1, message.time, message.publisher, message.counter)], delivered=[[5]])
        writer.write(filters(message) if recorder == "bloom" else [passed], message.time + HOUR)
    (manifest_folder(tmp_path, 1) / change_name(2)).unlink()
    context = read_context(open_sources(tmp_path, skip_damaged=True))
    times = np.array([message.time for message in asked])
    complete = context.is_complete(np.ones(2, np.int64), times)
    # The exact record says who got a message; and with the day what stands is repeated.
    assert complete.tolist() == [recorder == "exact", True]


def test_a_folder_that_was_put_aside_is_no_broker(tmp_path: Path) -> None:
    for broker in (1, 2):
        TrailWriter(tmp_path, broker, NOON).close(NOON + HOUR)
    manifest_folder(tmp_path, 2).rename(tmp_path / "manifests" / "broker=2.old")
    assert list(open_sources(tmp_path).pins) == [1]
    assert record_through(tmp_path) == NOON + HOUR


def test_workers_read_who_was_there_and_the_driver_opens_none_of_it(
    spark: SparkSession, troubled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = open_sources(troubled), open_sources(troubled)
    expected = read_context(here)
    opened = here.reads.files
    absent = here.absent()
    assert any(len(stays.number) for stays in expected.subscriptions.values())
    monkeypatch.setattr(sources_module, "STANDING_BYTES", 1)
    there.workers = spark
    context = read_context(there)
    # Both read the same of the manifests.
    standing = sum(len(here.named(table, always=True)) for table in STANDING_TABLES)
    assert 0 < standing == opened - there.reads.files
    assert there.absent() == absent
    assert (context.runs, context.holes) == (expected.runs, expected.holes)
    for mine, theirs in ((context.links, expected.links), (context.subscriptions, expected.subscriptions)):
        assert list(mine) == list(theirs)
        for broker, stays in theirs.items():
            for column, other in zip(mine[broker], stays, strict=True):
                np.testing.assert_array_equal(column, other)
