"""The bulk trace on Spark: the same answers as id by id, whatever the plan and the form of the question."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as f

from postroad.lab.trails import Scale, write_trail
from postroad.messages import Batch, MessageId
from postroad.pipeline import PipelineError, portions, run_job
from postroad.pipeline.context import read_context
from postroad.pipeline.evidence import of_asked
from postroad.pipeline.ids import asked_ids, read_asked
from postroad.pipeline.jobs import trace as trace_job
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.pipeline.judgement import judged
from postroad.pipeline.search import in_bins, rows_of_ids
from postroad.pipeline.sources import open_sources
from postroad.pipeline.tables import ID, spark_schema, table
from postroad.tracking import Aliases, ExactRecorder, PassageRuns
from postroad.trail import SCHEMAS, Trail, TrailWriter
from tests.pipeline.filter_trails import SCALE as FILTERS
from tests.pipeline.trails import TROUBLED, evidence_of, some_ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def text(one: tuple[int, ...]) -> str:
    origin, time, publisher, counter = one
    return str(MessageId(publisher, origin, time, counter))


def by_id(rows: list[dict[str, Any]]) -> dict[tuple[int, ...], dict[str, Any]]:
    found = {tuple(row[name] for name in ID): {**row, "asked": None} for row in rows}
    for row in found.values():
        row.pop("id", None)
    return found


def _by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_job, "BROUGHT", (0, 0))


def _of_many_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "MAX_SPOTS", 0)


def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every file is on the border of several portions, and the ids of a minute are spread.
    for name, value in (("PORTION_IDS", 5), ("MAX_IDS_TOGETHER", 7), ("PORTION_BYTES", 3_000)):
        monkeypatch.setattr(portions, name, value)


PLANS = {
    "divided by the driver": ((), 1_000_000),
    "divided by Spark": ((_by_spark,), 1_000_000),
    "in small portions": ((_small_portions,), 1_000_000),
    "in small portions by Spark": ((_by_spark, _small_portions), 1_000_000),
    "broadcast": ((_by_spark, _of_many_minutes), 1_000_000),
    "by bins": ((_of_many_minutes,), 0),
}


@pytest.mark.parametrize(("changes", "broadcast_ids"), PLANS.values(), ids=PLANS)
def test_bulk_trace_gives_the_verdicts_of_one_by_one(
    spark: SparkSession,
    troubled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: tuple[Callable[[pytest.MonkeyPatch], None], ...],
    broadcast_ids: int,
) -> None:
    for change in changes:
        change(monkeypatch)
    ids = some_ids(troubled, 150, seed=5)
    (tmp_path / "ids.txt").write_text("\n".join(map(text, ids)) + "\n")
    account = run_job(
        "trace",
        trace_job.run,
        TraceOptions(troubled, tmp_path / "out", ids=tmp_path / "ids.txt", broadcast_ids=broadcast_ids),
        spark=spark,
    )
    rows = pq.read_table(tmp_path / "out" / "trace").to_pylist()
    expected = judged(read_context(open_sources(troubled)), evidence_of(troubled, ids)).to_pylist()
    assert by_id(rows) == by_id(expected)
    assert all(row["asked"] == row["id"] == text(tuple(row[name] for name in ID)) for row in rows)
    assert account.summary["ids"] == len(ids) == sum(account.summary.values()) - len(ids)


def test_ids_are_broadcast_under_one_number(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    columns = "origin bigint, time bigint, publisher bigint, counter int"
    rows = spark.createDataFrame([(1, 2, 3, 4), (1, 2, 3, 5)], columns)
    found = of_asked(rows, spark.createDataFrame([(1, 2, 3, 5), (9, 9, 9, 9)], columns))
    assert [tuple(row) for row in found.collect()] == [(1, 2, 3, 5)]
    found.explain()
    plan = capsys.readouterr().out
    keys = re.search(r"BroadcastHashJoin \[([^\]]*)\], \[([^\]]*)\]", plan)
    assert keys is not None, plan
    assert all("," not in one for one in keys.groups())


def test_ids_outside_the_range_are_told_so(spark: SparkSession, troubled: Path, tmp_path: Path) -> None:
    ids = some_ids(troubled, 30, seed=6)
    (tmp_path / "ids.txt").write_text("\n".join(map(text, ids)) + "\n")
    since, until = TROUBLED.start + 40_000, TROUBLED.start + 80_000
    options = TraceOptions(troubled, tmp_path / "out", since=since, until=until, ids=tmp_path / "ids.txt")
    run_job("trace", trace_job.run, options, spark=spark)
    found = by_id(pq.read_table(tmp_path / "out" / "trace").to_pylist())
    expected = by_id(judged(read_context(open_sources(troubled)), evidence_of(troubled, ids)).to_pylist())
    inside = {id for id in ids if since <= id[1] < until}
    assert 0 < len(inside) < len(ids)
    assert {id: found[id] for id in inside} == {id: expected[id] for id in inside}
    assert {found[id]["verdict"] for id in ids if id not in inside} == {trace_job.OUTSIDE_RANGE}


FILTER_PLANS = {
    "each": ("each", (), 1_000_000),
    "sets": ("sets", (), 1_000_000),
    "sets, of many minutes": ("sets", (_of_many_minutes,), 1_000_000),
    "each, of many minutes by bins": ("each", (_of_many_minutes,), 0),
}


@pytest.mark.parametrize(("relay_keys", "changes", "broadcast_ids"), FILTER_PLANS.values(), ids=FILTER_PLANS)
def test_bulk_trace_of_filters_agrees_with_postroad_trace(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    relay_keys: str,
    changes: tuple[Callable[[pytest.MonkeyPatch], None], ...],
    broadcast_ids: int,
) -> None:
    for change in changes:
        change(monkeypatch)
    trail = tmp_path / "trail"
    write_trail(trail, replace(FILTERS, recorder="sealed", relay_keys=relay_keys))
    ids = some_ids(trail, 60, seed=7)
    (tmp_path / "ids.txt").write_text("\n".join(map(text, ids)) + "\n")
    options = TraceOptions(trail, tmp_path / "out", ids=tmp_path / "ids.txt", broadcast_ids=broadcast_ids)
    run_job("trace", trace_job.run, options, spark=spark)
    found = by_id(pq.read_table(tmp_path / "out" / "trace").to_pylist())
    reader = Trail(trail)
    for origin, time, publisher, counter in ids:
        journey = reader.trace(MessageId(publisher, origin, time, counter)).journey
        row = found[origin, time, publisher, counter]
        assert (row["verdict"], row["brokers"]) == (
            journey.verdict.value,
            sorted(stop.broker for stop in journey.stops),
        )
        assert row["certainty"] == pytest.approx(journey.certainty, rel=1e-12)


@settings(max_examples=60)
@given(st.data())
def test_rows_of_ids_are_those_whose_id_is_asked_for(data: st.DataObject) -> None:
    words = st.tuples(st.integers(0, 2**48 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**16 - 1))
    few = data.draw(st.lists(words, min_size=1, max_size=6))
    chosen = st.lists(st.sampled_from(few), max_size=8)
    asked, there = data.draw(chosen), data.draw(chosen)
    found = rows_of_ids(
        _ids_table(asked), _ids_table(there).append_column("at", pa.array(range(len(there)), pa.int64()))
    )
    assert found.column("at").to_pylist() == [at for at, one in enumerate(there) if one in asked]


def _ids_table(words: list[tuple[int, int, int]]) -> pa.Table:
    times, publishers, counters = ([one[place] for one in words] for place in range(3))
    return pa.table(
        {
            "time": pa.array(times, pa.int64()),
            "publisher": pa.array(publishers, pa.int64()),
            "counter": pa.array(counters, pa.int32()),
        }
    )


def test_single_times_put_a_filter_into_their_bins(spark: SparkSession) -> None:
    late = np.array([5, 130_000, 2**47 + 1], "<i8").tobytes()
    rows = [(60_000, 119_999, None), (60_000, 120_000, late), (1, 0, late)]
    filters = spark.createDataFrame(rows, "time_from bigint, time_to bigint, singles binary")
    found = sorted((row["time_from"], row["time_to"], row["bin"]) for row in in_bins(filters, 60_000).collect())
    far = (2**47 + 1) // 60_000
    assert found == sorted(
        [(60_000, 119_999, 1), *((60_000, 120_000, at) for at in (0, 1, 2, far)), *((1, 0, at) for at in (0, 2, far))]
    )


def test_ids_come_from_parquet_csv_and_text(spark: SparkSession, tmp_path: Path) -> None:
    ids = [(3, 1_767_225_600_123, 7, 0), (2**32 - 1, 2**48 - 1, 2**32 - 1, 65_535)]
    columns = [
        pa.array(column, SCHEMAS["shed"].field(name).type)
        for name, column in zip(ID, zip(*ids, strict=True), strict=True)
    ]
    pq.write_table(pa.Table.from_arrays(columns, names=list(ID)), tmp_path / "numbers.parquet")
    pq.write_table(pa.table({"id": [text(one) for one in ids], "more": [1, 2]}), tmp_path / "texts.parquet")
    with (tmp_path / "ids.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["more", "id"], *([1, text(one)] for one in ids)])
    (tmp_path / "ids.txt").write_text("".join(f" {text(one)}\n\n" for one in ids * 2))
    for name in ("numbers.parquet", "texts.parquet", "ids.csv", "ids.txt"):
        rows = read_asked(spark, tmp_path / name).collect()
        assert sorted(tuple(row[column] for column in ID) for row in rows) == sorted(ids), name
        if name != "numbers.parquet":
            assert sorted(row["asked"] for row in rows) == sorted(map(text, ids))


def test_files_without_ids_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no such file"):
        read_asked(spark, tmp_path / "none.txt")
    with pytest.raises(PipelineError, match="columns a, b"):
        asked_ids(spark.createDataFrame([(1, 2)], "a int, b int"))


def test_aliases_find_their_messages_and_strangers_are_told(spark: SparkSession, tmp_path: Path) -> None:
    trail = tmp_path / "trail"
    write_trail(trail, Scale(brokers=3, messages=40, subscriptions=2, interests=5, seconds=10, seal_seconds=10))
    one, other = some_ids(trail, 2)[:2]
    writer = TrailWriter(trail, 1, 1_767_300_000_000)
    rows = [("order-7", one), ("order-8", other), ("order-8", one)]
    columns = [
        pa.array([row[1][place] for row in rows]).to_numpy().astype("int32" if place == 3 else "int64")
        for place in range(4)
    ]
    writer.write([Aliases([row[0] for row in rows], *columns)], 1_767_300_000_001)
    # Of two lengths that no name may have, and the longest one that a name of bytes that are not UTF-8 may have.
    long, strange = "x" * 1_025, "\ufffd" * 1_024
    (tmp_path / "ids.txt").write_text(f"order-7\norder-8\norder-9\n{long}\n{strange}\n")
    options = TraceOptions(trail, tmp_path / "out", ids=tmp_path / "ids.txt")
    run_job("trace", trace_job.run, options, spark=spark)
    found = pq.read_table(tmp_path / "out" / "trace").to_pylist()
    told = sorted((row["asked"], row["id"] or "", row["verdict"] == trace_job.UNKNOWN_ALIAS) for row in found)
    expected = [("order-7", text(one), False), *(("order-8", text(id), False) for id in (one, other))]
    assert told == sorted([*expected, ("order-9", "", True), (long, "", False), (strange, "", True)])
    (row,) = [row for row in found if row["asked"] == long]
    assert (row["verdict"], row["certainty"]) == (trace_job.TOO_LONG_ALIAS, 0)


@pytest.mark.parametrize("name", SCHEMAS)
def test_declared_schemas_are_those_of_the_files(spark: SparkSession, name: str) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    declared = to_arrow_schema(spark_schema(name))
    assert [(field.name, field.type) for field in declared][:-2] == [
        (field.name, field.type) for field in SCHEMAS[name]
    ]
    assert declared.names[-2:] == ["broker", "date"]


def test_spark_reads_passages_that_were_written_as_runs(spark: SparkSession, tmp_path: Path) -> None:
    """A publisher at full speed: a thousand messages each ms; of every other thousand, 5 gets the latter half."""
    start = TROUBLED.start
    recorder, writer = ExactRecorder(4, start), TrailWriter(tmp_path / "trail", 4, start - 1)
    for turn in range(70):
        batch = Batch.build([("t",)] * 1_000)
        first = MessageId(9, 4, start + turn, 0)
        batch.ids[:, 0] = first.head
        batch.ids[:, 1] = np.uint64(first.tail) + np.arange(1_000, dtype=np.uint64)
        recorder.accepted(batch, start + turn)
        recorder.delivered(batch, np.arange(500 * (turn % 2), 1_000, dtype=np.int32), 5, start + turn)
    (job,) = recorder.due(start + 1_000, force=True)
    segments = job.make()
    assert any(isinstance(segment, PassageRuns) for segment in segments)
    writer.write(segments, job.through)
    writer.close(start + 1_000)
    rows = table(spark, open_sources(tmp_path / "trail"), "passages")
    told = rows.groupBy("delivered").agg(f.count("*").alias("rows"), f.sum("counter").alias("counters"))
    found = {row["delivered"] and bytes(row["delivered"]): (row["rows"], row["counters"]) for row in told.collect()}
    assert found == {
        b"\0\0\0\5": (52_500, 35 * (sum(range(1_000)) + sum(range(500, 1_000)))),
        None: (17_500, 35 * sum(range(500))),
    }
    assert rows.where(f.col("time") == start + 69).count() == 1_000
