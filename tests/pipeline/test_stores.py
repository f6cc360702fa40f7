"""Jobs over a trail in a store, with results in a store: the same answers, by Spark and by the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.lab.trails import Scale, write_trail
from postroad.messages import MessageId
from postroad.pipeline import DamagedFileError, PipelineError, run_job
from postroad.pipeline.arrow_tables import CURRENT
from postroad.pipeline.jobs import audit, compact, trace
from postroad.pipeline.jobs.audit import AuditOptions
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.trail.locations import StoredPath, location, put_file, relative
from tests.pipeline.trails import some_ids

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from postroad.trail.locations import Location
    from tests.trail.stores import Store

SMALL = Scale(brokers=3, messages=200, seed=5, publishers=5, subscriptions=3, interests=30, seconds=60, seal_seconds=30)


def copied(trail: Path, place: Location) -> None:
    for path in sorted(trail.rglob("*")):
        if path.is_file() and path.parent != trail:
            put_file(place / relative(path, trail), memoryview(path.read_bytes()))


def asked(trail: Path, folder: Path) -> Path:
    ids = some_ids(trail, 20, seed=2)
    texts = [str(MessageId(publisher, origin, time, counter)) for origin, time, publisher, counter in ids]
    (folder / "ids.txt").write_text("\n".join(texts) + "\n")
    return folder / "ids.txt"


def current(place: Location) -> list[dict[str, Any]]:
    """The rows of a table of results, as a reader without our code finds them."""
    rows = []
    for name in msgspec.json.decode((place / CURRENT).read_bytes(), type=list[str]):
        rows += pq.read_table(pa.BufferReader((place / name).read_bytes())).to_pylist()
    return sorted(rows, key=str)


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
        assert current(place / name / "trace") == expected
        assert account.summary["ids"] == len(expected)
        files = {one.name for one in (place / name / "trace").iterdir()}
        assert len(files) == len(msgspec.json.decode((place / name / "trace" / CURRENT).read_bytes())) + 1
    told = run_job("audit", audit.run, AuditOptions(place / "trail", tmp_path / "audit")).summary
    assert told == run_job("audit", audit.run, AuditOptions(trail, tmp_path / "audit")).summary
    with pytest.raises(PipelineError, match="is not changed there"):
        run_job("compact", compact.run, CompactOptions(place / "trail", tmp_path / "compact"), spark=spark)
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


def test_directory_may_be_named_by_a_uri(tmp_path: Path) -> None:
    write_trail(tmp_path / "trail", SMALL)
    ids = asked(tmp_path / "trail", tmp_path)
    options = TraceOptions(location(f"file://{tmp_path}/trail"), location(f"file://{tmp_path}/out"), ids=ids)
    run_job("trace", trace.run, options)
    assert pq.read_table(tmp_path / "out" / "trace").num_rows == 40
