"""Open tables: others read what is published and get the numbers of `audit`; again, or after a kill, it goes on."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from postroad.lab.trails import Faults, Scale, read_truth, write_trail
from postroad.pipeline import PipelineError, run_job
from postroad.pipeline.erasure import Erasure
from postroad.pipeline.jobs import audit, compact, publish
from postroad.pipeline.jobs.audit import AuditOptions
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.jobs.publish import PublishOptions
from postroad.pipeline.open_tables import TrailState, open_tables, put_data
from postroad.pipeline.plain_rows import PLAIN, plain_rows
from postroad.pipeline.sources import open_sources
from postroad.pipeline.tables import ID
from postroad.trail import DEFAULT_GRACE_MS
from tests.cli.programs import here
from tests.pipeline.compactions import NOW
from tests.pipeline.trails import copied
from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from postroad.trail.locations import Location
    from tests.trail.stores import Store

SMALL = Scale(
    brokers=3,
    messages=300,
    seed=5,
    publishers=5,
    subscriptions=3,
    interests=30,
    seconds=60,
    seal_seconds=30,
    faults=Faults(lost=0.05, shed=0.05, acknowledging=0.4),
)
# Who got what by the tables of messages alone: a message that is told twice counts once.
DELIVERIES = """
    select broker, subscription, count(distinct id) from (
        select id, broker, unnest(delivered) as subscription from passages
        union all
        select id, one.broker, one.subscription from (select id, unnest(delivered) as one from journeys)
    ) group by all
"""
ENTERED = (
    "select count(distinct id) from (select id from passages where arrived_from = 0 union select id from journeys)"
)


@contextmanager
def catalogue(uri: str, **settings: str) -> Iterator[Catalog]:
    found = load_catalog("postroad", uri=uri, **settings)
    try:
        yield found
    finally:
        found.close()


def local(out: Path) -> Any:
    return catalogue(f"sqlite:///{out}/tables/catalogue.db")


def in_duckdb(tables: Catalog) -> duckdb.DuckDBPyConnection:
    """All tables as views of DuckDB, by its own reader of Iceberg."""
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert spec is not None
        assert spec.submodule_search_locations is not None
        (extension,) = Path(spec.submodule_search_locations[0]).rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    for identifier in tables.list_tables("postroad"):
        table, name = tables.load_table(identifier), identifier[-1]
        if table.current_snapshot() is None:
            connection.register(name, table.scan().to_arrow())
        else:
            connection.execute(f"create view {name} as select * from iceberg_scan('{table.metadata_location}')")
    return connection


def snapshots(tables: Catalog) -> dict[str, int]:
    return {one[-1]: len(tables.load_table(one).snapshots()) for one in tables.list_tables("postroad")}


def audited(trail: Location, out: Location) -> dict[str, Any]:
    return run_job("audit", audit.run, AuditOptions(trail, out)).summary


def published(trail: Location, out: Location, **own: Any) -> dict[str, Any]:
    return run_job("publish", publish.run, PublishOptions(trail, out, **own)).summary


def check_numbers(tables: Catalog, told: dict[str, Any]) -> None:
    """What `audit` told, by PyIceberg and by DuckDB, from its report and from the messages themselves."""
    report = tables.load_table("postroad.reconciliation").scan().to_arrow().to_pylist()
    origins, got = Counter[str](), {}
    for row in report:
        if row["about"] == "origin":
            origins[row["outcome"]] += row["messages"]
        elif (row["about"], row["outcome"]) == ("subscription", "delivered"):
            got[row["number"], row["other"]] = row["messages"]
    assert {"messages": origins.total(), **origins} == told
    with in_duckdb(tables) as connection:
        sums = connection.execute(
            "select outcome, sum(messages)::bigint from reconciliation where about = 'origin' group by outcome"
        ).fetchall()
        assert dict(sums) == origins
        assert connection.execute(ENTERED).fetchone() == (told["messages"],)
        counted = {(broker, number): count for broker, number, count in connection.execute(DELIVERIES).fetchall()}
        assert counted == got


def test_others_read_the_numbers_of_audit_before_and_after_compaction(spark: SparkSession, tmp_path: Path) -> None:
    trail, out = tmp_path / "trail", tmp_path / "out"
    write_trail(trail, SMALL)
    told = audited(trail, out)
    assert told["lost after hop"] > 0
    first = published(trail, out, now=NOW)
    assert first["files_added"] > 2
    assert first["rows_added"] > told["messages"]
    with local(out) as tables:
        check_numbers(tables, told)
        assert snapshots(tables)["journeys"] == 0
    run_job("compact", compact.run, CompactOptions(trail, out / "compact", now=NOW, sample=20), spark=spark)
    assert audited(trail, out) == told
    # By Spark this time.
    options = PublishOptions(trail, out, now=NOW)
    second = run_job("publish", publish.run, options, spark=spark).summary
    assert second["files_added"] > 0
    assert second["files_removed"] > 0
    with local(out) as tables:
        assert tables.load_table("postroad.journeys").scan().to_arrow().num_rows > 0
        check_numbers(tables, told)
        before = snapshots(tables)
    again = published(trail, out, now=NOW)
    figures = ("files_added", "rows_added", "files_removed", "files_deleted")
    assert {name: again[name] for name in figures} == dict.fromkeys(figures, 0)
    with local(out) as tables:
        assert snapshots(tables) == before
        rows = tables.load_table("postroad.coverage").scan().to_arrow().to_pylist()
    pins = open_sources(trail).pins
    assert sorted(row["broker"] for row in rows if row["reason"] is None) == sorted(
        broker for broker, pinned in pins.items() for _ in pinned.runs
    )


def test_times_of_filters_are_not_told_as_covered(tmp_path: Path) -> None:
    trail, out = tmp_path / "trail", tmp_path / "out"
    write_trail(trail, replace(SMALL, recorder="bloom"))
    published(trail, out)
    truth = [row["time"] for row in read_truth(trail).to_pylist()]
    with local(out) as tables:
        assert tables.load_table("postroad.passages").scan().to_arrow().num_rows == 0
        rows = tables.load_table("postroad.coverage").scan().to_arrow().to_pylist()
    first, last = (datetime.fromtimestamp(one(truth) / 1_000, UTC) for one in (min, max))
    hidden = [row for row in rows if row["reason"] == "kept as filters, which are in no table"]
    assert sorted(row["broker"] for row in hidden) == [1, 2, 3]
    assert min(row["since"] for row in hidden) <= first
    assert max(row["until"] for row in hidden) > last


# Publishes, and dies at the n-th step: after a file was written, or after a commit.
DYING = """
import os, signal, sys
from pathlib import Path
from postroad.pipeline import open_tables, run_job
from postroad.pipeline.jobs import publish
from postroad.pipeline.jobs.publish import PublishOptions

steps = 0
def dying(work):
    def step(*given, **named):
        global steps
        done = work(*given, **named)
        steps += 1
        if steps == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return step

open_tables.put_file = dying(open_tables.put_file)
open_tables.OpenTable._committed = dying(open_tables.OpenTable._committed)
run_job("publish", publish.run, PublishOptions(Path(sys.argv[1]), Path(sys.argv[2])))
"""


def test_publication_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    trail, out = tmp_path / "trail", tmp_path / "out"
    write_trail(trail, SMALL)
    told = audited(trail, out)
    # After its first file, after the commit of all passages, and in the middle of what follows.
    files = len(open_sources(trail).named("passages"))
    for step in (1, files + 1, 3):
        done = subprocess.run(
            [sys.executable, "-c", DYING, str(trail), str(out), str(step)],
            capture_output=True,
            check=False,
            timeout=280,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
    published(trail, out)
    with local(out) as tables:
        check_numbers(tables, told)
        names = [task.file.file_path for task in tables.load_table("postroad.passages").scan().plan_files()]
        assert len(names) == len(set(names)) == files
        rows = tables.load_table("postroad.passages").scan().to_arrow().num_rows
    assert rows == sum(one.entry.rows for one in open_sources(trail).named("passages"))


def test_files_of_a_killed_publication_go_when_nobody_can_be_about_to_commit_them(tmp_path: Path) -> None:
    trail, out = tmp_path / "trail", tmp_path / "out"
    write_trail(trail, SMALL)
    published(trail, out)
    passages = out / "tables" / "postroad" / "passages"
    known = {path for folder in ("data", "metadata") for path in (passages / folder).iterdir()}
    # As one leaves them that is killed before its commit, of a trail in which they are erased by now.
    left = [passages / "data" / "1-2026-01-01-gone.parquet", passages / "metadata" / "gone-m0.avro"]
    for path in left:
        shutil.copy(max(path.parent.iterdir()), path)
    now = int(time.time() * 1_000)
    assert published(trail, out, now=now)["files_deleted"] == 0, "they may be about to count"
    assert all(path.exists() for path in left)
    told = published(trail, out, now=now + DEFAULT_GRACE_MS + 60_000)
    assert told["files_deleted"] == len(left)
    assert {path for folder in ("data", "metadata") for path in (passages / folder).iterdir()} == known
    with local(out) as tables:
        assert tables.load_table("postroad.passages").scan().to_arrow().num_rows > 0


def test_erased_subscription_is_in_no_file_of_a_table_once_readers_had_their_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    trail, out = tmp_path / "trail", tmp_path / "out"
    write_trail(trail, SMALL)
    published(trail, out, now=NOW)
    whom = next(
        Erasure(one["broker"], number)
        for path in sorted((out / "tables" / "postroad" / "passages" / "data").iterdir())
        for one in pq.read_table(path).to_pylist()
        for number in one["delivered"]
    )
    early, readers_began = open_sources(trail), _after_the_snapshots(out)
    options = CompactOptions(trail, out / "compact", now=NOW, sample=20, erase=whom)
    run_job("erase", compact.run, options, spark=spark)
    # The snapshot of before is old, but until now it was the latest: somebody may be reading it.
    assert published(trail, out, now=readers_began)["files_deleted"] == 0
    # A publication that began before the erasure and took long does not bring back what was erased.
    with local(out) as tables:
        shown = tables.load_table("postroad.passages").metadata_location
    with pytest.raises(PipelineError, match="later state"):
        run_job("publish", lambda run: publish.run(replace(run, sources=early)), PublishOptions(trail, out))
    with local(out) as tables:
        assert tables.load_table("postroad.passages").metadata_location == shown
    later = published(trail, out, now=_after_the_snapshots(out))
    assert later["files_deleted"] > 0
    for path in (out / "tables" / "postroad" / "passages" / "data").iterdir():
        for row in pq.read_table(path).to_pylist():
            assert row["broker"] != whom.broker or whom.subscription not in row["delivered"]
    with local(out) as tables:
        assert set(snapshots(tables).values()) <= {0, 1}
        # What is left can be read.
        for one in tables.list_tables("postroad"):
            tables.load_table(one).scan().to_arrow()


def _after_the_snapshots(out: Path) -> int:
    """A time at which all snapshots but the latest are older than readers may take."""
    with local(out) as tables:
        every = [one for name in tables.list_tables("postroad") for one in tables.load_table(name).snapshots()]
    return int(max(one.timestamp_ms for one in every)) + DEFAULT_GRACE_MS + 1


def test_tables_of_a_trail_in_a_store_are_in_a_store(store: Store, tmp_path: Path) -> None:
    trail, place = tmp_path / "trail", store.place("published")
    write_trail(trail, SMALL)
    copied(trail, place / "trail")
    told = audited(place / "trail", place / "out")
    uri = f"sqlite:///{tmp_path}/catalogue.db"
    with pytest.raises(PipelineError, match="--catalogue sqlite"):
        published(place / "trail", place / "out")
    first = published(place / "trail", place / "out", catalogue=uri)
    assert first["passages"].startswith("s3://trails/published/out/tables/postroad/passages/metadata/")
    endpoint = dict(place.store.options)["endpoint_override"]  # type: ignore[union-attr]
    with catalogue(uri, **{"s3.endpoint": endpoint, "s3.region": "us-east-1"}) as tables:
        report = tables.load_table("postroad.reconciliation").scan().to_arrow().to_pylist()
        assert sum(row["messages"] for row in report if row["about"] == "origin") == told["messages"]
        passages = tables.load_table("postroad.passages").scan(row_filter="arrived_from = 0").to_arrow()
        assert len(set(passages.column("id").to_pylist())) == told["messages"]
    assert published(place / "trail", place / "out", catalogue=uri)["files_added"] == 0


def test_command_publishes_and_tells_where_tables_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trail, out = tmp_path / "trail", tmp_path / "out"
    write_trail(trail, SMALL)
    given = ["pipeline", "publish", "--trail", str(trail), "--out", str(out), "--json"]
    done = here(monkeypatch, *given)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["written"] == ["postroad.passages", "postroad.coverage"]
    assert told["passages"].startswith(f"file://{out}/tables/postroad/passages/metadata/")
    write_trail(tmp_path / "other", SMALL)
    done = here(monkeypatch, "pipeline", "publish", "--trail", str(tmp_path / "other"), "--out", str(out))
    assert done.code == 2
    assert "choose another --namespace" in done.err
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    done = here(monkeypatch, *given)
    assert done.code == 2
    assert "pip install 'postroad[tables]'" in done.err


def test_examples_of_the_page_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trail, out = tmp_path / "trail", tmp_path / "out"
    write_trail(trail, SMALL)
    told = audited(trail, out)
    published(trail, out)
    page = (ROOT / "docs" / "open-tables.md").read_text("utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        names: dict[str, Any] = {}
        exec(example.replace("/tmp/results", str(out)), names)
        names["catalogue"].close()
    shown = capsys.readouterr().out
    assert str(told["lost after hop"]) in shown
    assert "subscription" in shown


def test_message_whose_id_bears_a_time_beyond_calendars_is_published(tmp_path: Path) -> None:
    schema = PLAIN["passages"]
    last = 2**48 - 1
    packed = pa.array([b""], pa.binary())
    found = {name: packed if pa.types.is_list(schema.field(name).type) else pa.array([1]) for name in schema.names}
    row = pa.table({**found, **{name: pa.array([1]) for name in ID}, "time": pa.array([last])})
    rows = plain_rows("passages", 1, row)
    with open_tables(None, tmp_path, "postroad", "trail", TrailState({"1": 1}, 0)) as tables:
        table = tables.table("passages", schema, by_day=True)
        table.add([put_data(table.folder, "one.parquet", table.schema, rows)])
        assert table.iceberg.scan().to_arrow().column("time").to_pylist()[0].year == 9999


def test_password_of_a_catalogue_is_not_told(tmp_path: Path) -> None:
    state = TrailState({}, 0)
    with (
        pytest.raises(PipelineError, match="cannot be used as a catalogue") as told,
        open_tables("mysql://somebody:s3cret@localhost/tables", tmp_path, "postroad", "trail", state),
    ):
        pass
    assert "s3cret" not in str(told.value)
