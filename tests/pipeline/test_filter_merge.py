"""Merged filters say what their parts said; an erased subscription is nowhere, and nothing else changes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.filters import TABLE_2, BloomFilter, RibbonFilter
from postroad.lab.trails import read_truth, write_trail
from postroad.pipeline import run_job
from postroad.pipeline.accuracy import accuracy_of
from postroad.pipeline.context import read_context
from postroad.pipeline.erasure import ERASED, Erasure, erased
from postroad.pipeline.jobs import compact
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.judgement import judged
from postroad.pipeline.merged_filters import merged_rows
from postroad.pipeline.probes import segments_by_broker
from postroad.pipeline.sources import open_sources
from postroad.pipeline.tables import ID
from postroad.tracking import FilterSegment, merge_filters
from postroad.tracking.filter_probe import covers, probe
from postroad.trail import SCHEMAS, TrailDamageError, tabulate, unpack
from tests.pipeline.filter_rows import rows_of
from tests.pipeline.filter_trails import SCALE, bulk, filters_in
from tests.pipeline.trails import evidence_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SHAPE = TABLE_2["10K 99.999%"]
NOW = 1_767_300_000_000


def segment(method: str, keys: np.ndarray, since: int, singles: list[int], keep: bool = False) -> FilterSegment:
    late = np.array(singles, np.int64)
    common = (2, 1, 0, since, since + 99, late, since, since + 100, len(keys))
    if method == "bloom":
        bloom = BloomFilter(SHAPE.m, SHAPE.k)
        bloom.add(keys)
        return FilterSegment(*common, SHAPE.n, "bloom", SHAPE.m, SHAPE.k, 0, bloom.ones, bytes(bloom))
    made = RibbonFilter.build(keys, 1e-4)
    own = keys if keep else None
    return FilterSegment(*common, len(keys), "ribbon", made.bits, made.columns, 0, 0, bytes(made), own)


def crafted(damage: dict[str, Any], *damaged: int) -> Any:
    """Rows of two filters of broker 1, some of them with other values in some columns; checksums fit."""
    parts = [segment("bloom", np.arange(9, dtype=np.uint64), 100 * place, [10_000]) for place in range(2)]
    rows = tabulate(parts)["filters"].to_pylist()
    for row in damaged:
        rows[row] |= damage
    table = pa.Table.from_pylist(rows, SCHEMAS["filters"])
    return table if "broker" in table.column_names else table.append_column("broker", pa.array([1, 1], pa.int32()))


@pytest.mark.parametrize(
    "damage", [{"bits": 2**33}, {"bits": 63}, {"hashes": 0}, {"singles": b"1234567"}, {"method": "other"}], ids=str
)
def test_crafted_filter_counts_as_damaged_and_ends_no_job(damage: dict[str, Any]) -> None:
    rows = crafted(damage, 1)
    account = accuracy_of(rows).to_pylist()[0]
    assert (account["filters"], account["damaged"]) == (1, 1)
    ((broker, found, damaged),) = segments_by_broker(rows)
    assert (broker, len(found), damaged) == (1, 1, [(100, 199)])


@pytest.mark.parametrize("damage", [{"bits": 2**33}, {"bits": 63}, {"hashes": 0}, {"singles": b"1234567"}], ids=str)
def test_merger_of_crafted_filters_is_damage(damage: dict[str, Any]) -> None:
    rows = crafted(damage, 0, 1).select(SCHEMAS["filters"].names)
    with pytest.raises(TrailDamageError, match=r"damaged|words"):
        merged_rows(rows, "some file")


@given(
    sizes=st.lists(st.integers(1, 1_500), min_size=1, max_size=8),
    method=st.sampled_from(["bloom", "ribbon", "kept"]),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=25)
def test_merged_filters_lose_no_key_and_keep_their_promise(sizes: list[int], method: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    parts = []
    for place, size in enumerate(sizes):
        keys = random.integers(0, 1 << 64, size, dtype=np.uint64)
        parts.append((keys, segment(method.replace("kept", "ribbon"), keys, 100 * place, [10_000], method == "kept")))
    found = merge_filters([one for _, one in parts])
    assert sum(one.entries for one in found) == sum(sizes)
    assert all(one.entries <= one.capacity for one in found)
    assert len(found) <= len(parts)
    if method == "kept":
        assert len(found) == 1
    for place, (keys, _) in enumerate(parts):
        for time in (100 * place, 100 * place + 99, 10_000):
            times = np.full(len(keys), time)
            here = [one for one in found if covers(one, times)[0]]
            assert np.logical_or.reduce([probe(one, keys, times) for one in here]).all()


def test_damaged_filter_is_not_merged_away() -> None:
    keys = np.arange(50, dtype=np.uint64)
    rows = tabulate([segment("bloom", keys, 0, []), segment("bloom", keys, 100, [])])["filters"]
    assert merged_rows(rows).num_rows == 1
    broken = rows.set_column(rows.column_names.index("crc"), rows.schema.field("crc"), pa.array([1, 2]))
    with pytest.raises(TrailDamageError, match="a filter in it is damaged"):
        merged_rows(broken, "some.parquet")


def test_compaction_merges_partly_full_filters(spark: SparkSession, tmp_path: Path) -> None:
    trail = tmp_path / "trail"
    write_trail(trail, replace(SCALE, recorder="bloom"))
    truth = [tuple(row[name] for name in ID) for row in read_truth(trail).to_pylist()]
    strange = [(origin, time, publisher, counter + 30_000) for origin, time, publisher, counter in truth[:200]]
    before = bulk(trail, truth + strange, filters_in(trail))
    account = run_job("compact", compact.run, CompactOptions(trail, tmp_path / "out", now=NOW), spark=spark)
    assert account.summary["filters_after"] < account.summary["filters_before"] / 2
    after = bulk(trail, truth + strange, filters_in(trail))
    names = ("verdict", "brokers")
    assert [[row[name] for name in names] for row in before.values()] == [
        [after[id][name] for name in names] for id in before
    ]


def test_erased_subscriber_is_nowhere_and_the_rest_is_as_before(
    spark: SparkSession, troubled: Path, tmp_path: Path
) -> None:
    trail, who = tmp_path / "trail", Erasure(3, 2)
    shutil.copytree(troubled, trail)
    ids = [tuple(row[name] for name in ID) for row in read_truth(troubled).to_pylist()]
    before = {tuple(row[name] for name in ID): row for row in answers(trail, ids)}
    options = CompactOptions(trail, tmp_path / "out", now=NOW, sample=200, erase=who)
    said: list[str] = []
    account = run_job("compact", compact.run, options, spark=spark, alert=said.append)
    assert account.summary["ids_proven"] > 0
    assert said == []
    touched = 0
    for row in answers(trail, ids):
        old = before[tuple(row[name] for name in ID)]
        told = [(one["broker"], one["subscription"]) for one in row["delivered"]]
        assert who not in told
        expected = [(one["broker"], one["subscription"]) for one in old["delivered"]]
        touched += who in expected
        assert told == sorted((3, ERASED) if one == who else one for one in expected)
        assert (row["verdict"], row["brokers"]) == (old["verdict"], old["brokers"])
    assert touched > 10
    assert 2 not in rows_of(trail, "subscriptions", 3).column("subscription").to_pylist()
    assert 2 in rows_of(trail, "subscriptions", 4).column("subscription").to_pylist()


def answers(trail: Path, ids: list[tuple[int, ...]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = judged(read_context(open_sources(trail)), evidence_of(trail, ids)).to_pylist()
    return found


@given(st.lists(st.lists(st.integers(1, 6), unique=True).map(sorted), min_size=1, max_size=20), st.integers(1, 6))
def test_erasing_from_lists_is_replacing_by_nobody(lists: list[list[int]], subscription: int) -> None:
    packed = [b"".join(number.to_bytes(4) for number in one) or None for one in lists]
    empty = pa.nulls(len(lists), pa.binary())
    numbers = pa.array(np.zeros(len(lists), np.int64))
    columns = [numbers, numbers, numbers, numbers.cast(pa.int32()), numbers, empty, pa.array(packed, pa.binary())]
    rows = pa.Table.from_arrays([*columns, empty, empty, empty], schema=SCHEMAS["passages"])
    found = erased("passages", 1, rows, Erasure(1, subscription))
    expected = [sorted(ERASED if number == subscription else number for number in one) for one in lists]
    assert [list(unpack(one)) for one in found.column("delivered").to_pylist()] == expected
    assert erased("passages", 2, rows, Erasure(1, subscription)) is rows


def test_retention_takes_out_old_files(spark: SparkSession, troubled: Path, tmp_path: Path) -> None:
    trail = tmp_path / "trail"
    shutil.copytree(troubled, trail)
    options = CompactOptions(trail, tmp_path / "out", now=NOW, keep_ms=1_000)
    account = run_job("compact", compact.run, options, spark=spark)
    assert account.summary["files_taken_out"] > 50
    row = read_truth(troubled).slice(0, 1).to_pylist()[0]
    (found,) = answers(trail, [tuple(row[name] for name in ID)])
    assert found["verdict"] == "outside retention"
