"""Jobs over a trail in a store, with results in a store: the same answers, by Spark and by the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.lab.trails import write_trail
from postroad.pipeline import DamagedFileError, run_job
from postroad.pipeline.arrow_tables import CURRENT
from postroad.pipeline.jobs import audit, compact, trace
from postroad.pipeline.jobs.audit import AuditOptions
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.pipeline.sources import open_sources
from postroad.trail import DEFAULT_GRACE_MS
from postroad.trail.locations import StoredPath, location
from postroad.trail.shipper import Shipper
from tests.pipeline.compactions import NOW
from tests.pipeline.small_trails import SMALL, asked
from tests.pipeline.trails import as_of_the_trail, copied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from postroad.trail.locations import Location
    from tests.trail.stores import Store


def current(place: Location) -> list[dict[str, Any]]:
    """The rows of a table of results, as a reader without our code finds them."""
    rows = []
    for name in msgspec.json.decode((place / CURRENT).read_bytes(), type=list[str]):
        rows += pq.read_table(pa.BufferReader((place / name).read_bytes())).to_pylist()
    return sorted(rows, key=str)


def _objects(place: Location) -> Iterator[StoredPath]:
    assert isinstance(place, StoredPath)
    for one in place.iterdir():
        if one.is_dir():
            yield from _objects(one)
        else:
            yield one


def test_trail_in_a_store_is_answered_like_the_directory_it_was_copied_from(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    trail = tmp_path / "trail"
    write_trail(trail, SMALL)
    ids, place = asked(trail, tmp_path), store.place("jobs")
    assert isinstance(place, StoredPath)
    copied(trail, place / "trail")
    run_job("trace", trace.run, TraceOptions(trail, tmp_path / "out", ids=ids))
    expected = sorted(pq.read_table(tmp_path / "out" / "trace").to_pylist(), key=str)
    assert {row["verdict"] for row in expected} >= {"delivered", "never accepted"}
    for session, name in ((spark, "by-spark"), (None, "in-driver")):
        options = TraceOptions(place / "trail", place / name, ids=ids)
        # Twice: a table takes the place of an earlier one, whose files go.
        for _ in range(2 if session is None else 1):
            account = run_job("trace", trace.run, options, spark=session)
        rows = current(place / name / "trace")
        assert "never accepted" not in {row["verdict"] for row in rows}
        assert as_of_the_trail(rows) == expected
        assert account.summary["ids"] == len(expected)
        files = {one.name for one in (place / name / "trace").iterdir()}
        assert len(files) == len(msgspec.json.decode((place / name / "trace" / CURRENT).read_bytes())) + 1
    told = run_job("audit", audit.run, AuditOptions(place / "trail", tmp_path / "audit")).summary
    assert told == run_job("audit", audit.run, AuditOptions(trail, tmp_path / "audit")).summary
    lost = next(iter((place / "trail" / "passages").glob("broker=1/date=*/*.parquet")))
    lost.unlink()
    for session in (spark, None):
        with pytest.raises(DamagedFileError, match=f"s3://.*{lost.name}"):
            run_job("trace", trace.run, TraceOptions(place / "trail", tmp_path / "o", ids=ids), spark=session)
    options = TraceOptions(place / "trail", tmp_path / "skipped", ids=ids, skip_damaged=True)
    account = run_job("trace", trace.run, options)
    assert [lost.name in one.path for one in account.damaged] == [True]
    skipped = {row["id"]: row for row in pq.read_table(tmp_path / "skipped" / "trace").to_pylist()}
    for row in expected:
        if row["verdict"] == "delivered":
            assert skipped[row["id"]]["verdict"] != "never accepted"


def test_compaction_of_what_brokers_write_fetches_dropped_copies_and_reaches_the_store(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    trail, to = tmp_path / "trail", store.place("compacted")
    write_trail(trail, SMALL)
    ids = asked(trail, tmp_path)
    run_job("trace", trace.run, TraceOptions(trail, tmp_path / "before", ids=ids))
    brokers = list(open_sources(trail).pins)
    shippers = [Shipper(trail, broker, to, keep_local_ms=0) for broker in brokers]
    for shipper in shippers:
        shipper.ship(NOW)
    assert sum(shipper.statistics().dropped for shipper in shippers) > 0
    passages = {one.entry.path for one in open_sources(trail).named("passages")}
    assert not any((trail / path).exists() for path in passages)
    where = location(f"file://{trail}")
    account = run_job("compact", compact.run, CompactOptions(where, tmp_path / "out", now=NOW, sample=20), spark=spark)
    assert account.summary["journeys"] > 0
    # Twice: passages of one broker go when the journeys are there that others ship.
    for shipper in [*shippers, *shippers]:
        shipper.ship(NOW)
    after = {one.entry.path for one in open_sources(to).named("journeys")}
    assert after
    assert after == {one.entry.path for one in open_sources(trail).named("journeys")}
    run_job("trace", trace.run, TraceOptions(to, tmp_path / "after", ids=ids))
    before, copied_after = (pq.read_table(tmp_path / name / "trace").to_pylist() for name in ("before", "after"))
    assert sorted(as_of_the_trail(copied_after), key=str) == sorted(before, key=str)
    # Those who pinned a manifest before have their time; then the old files go in the store.
    gone = passages - {one.entry.path for one in open_sources(to).named("passages")}
    assert gone
    assert all((to / path).exists() for path in gone)
    for shipper in shippers:
        shipper.ship(NOW + DEFAULT_GRACE_MS + 1)
    assert not any((to / path).exists() for path in gone)


def test_directory_may_be_named_by_a_uri(tmp_path: Path) -> None:
    write_trail(tmp_path / "trail", SMALL)
    ids = asked(tmp_path / "trail", tmp_path)
    options = TraceOptions(location(f"file://{tmp_path}/trail"), location(f"file://{tmp_path}/out"), ids=ids)
    run_job("trace", trace.run, options)
    assert pq.read_table(tmp_path / "out" / "trace").num_rows == 40
