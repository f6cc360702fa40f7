"""Small questions without Spark: the same answers, from the files that can have them, and from no others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.lab.trails import Faults, Scale, read_truth, write_trail
from postroad.messages import MessageId
from postroad.pipeline import DamagedFileError, PipelineError, driver_answers, run_job
from postroad.pipeline.asked_file import SMALL, read_few
from postroad.pipeline.context import read_context
from postroad.pipeline.jobs import audit, storage, trace
from postroad.pipeline.jobs.audit import AuditOptions
from postroad.pipeline.jobs.storage import StorageOptions
from postroad.pipeline.jobs.trace import OUTSIDE_RANGE, TOO_LONG_ALIAS, UNKNOWN_ALIAS, TraceOptions
from postroad.pipeline.judgement import judged
from postroad.pipeline.session import SparkStart
from postroad.pipeline.sources import open_sources
from postroad.pipeline.tables import ID
from postroad.trail import Trail, TrailFile
from postroad.trail.spots import SPOT_MS, Spots
from tests.cli.programs import here
from tests.pipeline.trails import TROUBLED, evidence_of, some_ids

if TYPE_CHECKING:
    from pathlib import Path

FILTERS = Scale(
    brokers=4, messages=300, seed=3, publishers=5, subscriptions=3, interests=40, seconds=60, seal_seconds=20,
    recorder="sealed", faults=Faults(lost=0.05),
)  # fmt: skip


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started for a small question")

    monkeypatch.setattr(SparkStart, "__call__", refuse)


def text(one: tuple[int, ...]) -> str:
    origin, time, publisher, counter = one
    return str(MessageId(publisher, origin, time, counter))


def by_id(rows: list[dict[str, Any]]) -> dict[tuple[int, ...], dict[str, Any]]:
    return {tuple(row[name] for name in ID): {**row, "asked": None, "id": None} for row in rows}


def test_small_trace_gives_the_verdicts_of_one_by_one(troubled: Path, tmp_path: Path) -> None:
    ids = some_ids(troubled, 150, seed=5)
    (tmp_path / "ids.txt").write_text("\n".join(map(text, ids)) + f"\nnobody's\n\n{'x' * 1_025}\n")
    since = TROUBLED.start + 40_000
    options = TraceOptions(troubled, tmp_path / "out", since=since, ids=tmp_path / "ids.txt")
    account = run_job("trace", trace.run, options)
    rows = pq.read_table(tmp_path / "out" / "trace").to_pylist()
    expected = by_id(judged(read_context(open_sources(troubled)), evidence_of(troubled, ids)).to_pylist())
    found = by_id([row for row in rows if row["origin"] is not None])
    inside = {one for one in ids if one[1] >= since}
    assert 0 < len(inside) < len(ids)
    assert {one: found[one] for one in inside} == {one: {**expected[one], "id": None} for one in inside}
    assert {found[one]["verdict"] for one in ids if one not in inside} == {OUTSIDE_RANGE}
    assert [row["asked"] for row in rows if row["verdict"] == UNKNOWN_ALIAS] == ["nobody's"]
    assert [row["asked"] for row in rows if row["verdict"] == TOO_LONG_ALIAS] == ["x" * 1_025]
    assert account.summary["ids"] == len(ids) + 2


@pytest.mark.parametrize("relay_keys", ["each", "sets"])
def test_small_trace_of_filters_agrees_with_postroad_trace(tmp_path: Path, relay_keys: str) -> None:
    trail = tmp_path / "trail"
    write_trail(trail, replace(FILTERS, relay_keys=relay_keys))
    ids = some_ids(trail, 40, seed=7)
    pq.write_table(pa.Table.from_pylist([dict(zip(ID, one, strict=True)) for one in ids]), tmp_path / "ids.parquet")
    run_job("trace", trace.run, TraceOptions(trail, tmp_path / "out", ids=tmp_path / "ids.parquet"))
    found = by_id(pq.read_table(tmp_path / "out" / "trace").to_pylist())
    reader = Trail(trail)
    for one in ids:
        journey = reader.trace(MessageId.parse(text(one))).journey
        assert found[one]["verdict"] == journey.verdict.value
        assert found[one]["brokers"] == sorted(stop.broker for stop in journey.stops)
        assert found[one]["certainty"] == pytest.approx(journey.certainty, rel=1e-12)


def test_files_are_chosen_by_the_minutes_that_ids_carry_and_none_is_missed(tmp_path: Path) -> None:
    write_trail(tmp_path, replace(TROUBLED, brokers=4, messages=1_000, seconds=1_200, seal_seconds=60))
    sources = open_sources(tmp_path)
    for one in some_ids(tmp_path, 5, seed=4):
        spots = Spots([(one[0], one[1] // SPOT_MS)])
        chosen = sources.asked(spots).named("passages")
        names = {source.entry.path for source in chosen}
        assert (
            0
            < sum(source.entry.size for source in chosen)
            < 0.3 * sum(source.entry.size for source in sources.named("passages"))
        )
        for source in sources.named("passages"):
            if source.entry.path not in names:
                rows = TrailFile(tmp_path, source.entry, source.broker, sources.reads).read(list(ID)).to_pylist()
                assert one not in {tuple(row[name] for name in ID) for row in rows}


def test_ranges_of_times_have_the_minutes_that_a_slow_search_finds() -> None:
    random = np.random.default_rng(1)
    pairs = {(int(origin), int(minute)) for origin, minute in random.integers(0, 30, (40, 2))}
    spots = Spots(pairs)
    origin, start, length = (random.integers(0, high, 500) for high in (32, 32 * SPOT_MS, 4 * SPOT_MS))
    found = spots.within(origin, start, start + length)
    for row, (whose, since, until) in enumerate(zip(origin, start, start + length, strict=True)):
        expected = any(whose == one and since // SPOT_MS <= minute <= until // SPOT_MS for one, minute in pairs)
        assert found[row] == expected
    assert not Spots([]).has(1, 0, 2**47)


def test_question_about_other_times_meets_no_damage(tmp_path: Path) -> None:
    trail = tmp_path / "trail"
    write_trail(trail, replace(TROUBLED, messages=1_000, seconds=600, seal_seconds=60, faults=Faults()))
    truth = read_truth(trail).sort_by("time").to_pylist()
    first, last = (text(tuple(row[name] for name in ID)) for row in (truth[0], truth[-1]))
    path = min((trail / "passages" / f"broker={truth[0]['origin']}").glob("*/*.parquet"))
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    (tmp_path / "ids.txt").write_text(f"{last}\n")
    told = run_job("trace", trace.run, TraceOptions(trail, tmp_path / "out", ids=tmp_path / "ids.txt"))
    assert told.damaged == []
    (tmp_path / "ids.txt").write_text(f"{first}\n")
    with pytest.raises(DamagedFileError, match=path.name):
        run_job("trace", trace.run, TraceOptions(trail, tmp_path / "out", ids=tmp_path / "ids.txt"))
    options = TraceOptions(trail, tmp_path / "out", ids=tmp_path / "ids.txt", skip_damaged=True)
    told = run_job("trace", trace.run, options)
    assert [path.name in one.path for one in told.damaged] == [True]
    (row,) = pq.read_table(tmp_path / "out" / "trace").to_pylist()
    assert row["verdict"] not in ("never accepted", "delivered", "matched nobody")


def test_several_jobs_run_one_after_the_other(troubled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ids.txt").write_text("\n".join(map(text, some_ids(troubled, 5))) + "\n")
    where = ("--trail", str(troubled), "--out", str(tmp_path / "out"), "--json")
    refused = here(monkeypatch, "pipeline", "run", "trace", "audit", *where)
    assert (refused.code, "--ids FILE" in refused.err) == (2, True)
    done = here(monkeypatch, "pipeline", "run", "trace", "audit", "--ids", str(tmp_path / "ids.txt"), *where)
    assert done.code == 0, done.err
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [(one["job"], one["written"]) for one in told] == [
        ("trace", [str(tmp_path / "out" / "trace")]),
        ("audit", [str(tmp_path / "out" / "reconciliation")]),
    ]


@pytest.mark.parametrize(
    ("name", "content", "asked"),
    [
        ("ids.txt", "a\r\n b \n\na\n", ["a", "b"]),
        ("ids.csv", "other,id\n1,x\n2,y\n", ["x", "y"]),
        ("ids.csv", "whatever\nx\n", ["x"]),
        ("ids.csv", 'id\n"x,y"\n', None),
        ("ids.csv", "one,two\n1,2\n", None),
    ],
)
def test_files_of_ids_are_read_as_spark_reads_them_or_left_to_it(
    tmp_path: Path, name: str, content: str, asked: list[str] | None
) -> None:
    (tmp_path / name).write_bytes(content.encode())
    found = read_few(tmp_path / name, SMALL)
    assert (None if found is None else found.column("asked").to_pylist()) == asked


@pytest.mark.parametrize(("job", "options"), [(trace.run, TraceOptions), (audit.run, AuditOptions)])
def test_missing_file_of_ids_is_told_before_spark_is_started(
    troubled: Path, tmp_path: Path, job: Any, options: Any
) -> None:
    with pytest.raises(PipelineError, match=r"none\.txt: there is no such file of ids"):
        run_job("job", job, options(troubled, tmp_path / "out", ids=tmp_path / "none.txt"))


def test_texts_are_parsed_as_one_by_one(tmp_path: Path) -> None:
    right = ["00000007-00000002-018bcfe56800-0001", "ffffffff-ffffffff-ffffffffffff-ffff"]
    wrong = [
        "00000007-00000002-018bcfe56800-000",
        "00000007-00000002-018BCFE56800-0001",
        "00000007_00000002-018bcfe56800-0001",
        "0000000g-00000002-018bcfe56800-0001",
        "é0000007-00000002-018bcfe56800-001",
        "an alias",
    ]
    (tmp_path / "ids.txt").write_text("\n".join([*right, *wrong]), "utf-8")
    rows = read_few(tmp_path / "ids.txt", SMALL).to_pylist()
    known = [MessageId.parse(one) for one in right]
    expected = [(one.broker, one.time, one.publisher, one.counter) for one in known] + [(None,) * 4] * len(wrong)
    assert [row["asked"] for row in rows] == [*right, *wrong]
    assert [tuple(row[name] for name in ID) for row in rows] == expected
    assert read_few(tmp_path / "ids.txt", (len(rows) - 1, 1_000_000)) is None
    assert read_few(tmp_path / "ids.txt", (len(rows), 10)) is None


def test_large_question_is_left_to_spark(troubled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ids.txt").write_text("\n".join(map(text, some_ids(troubled, 5))) + "\n")
    assert read_few(tmp_path / "ids.txt", SMALL).num_rows == 10
    monkeypatch.setattr(driver_answers, "MAX_BYTES", 100)
    with pytest.raises(AssertionError, match="Spark was started"):
        run_job("trace", trace.run, TraceOptions(troubled, tmp_path / "out", ids=tmp_path / "ids.txt"))


def test_storage_of_a_small_trail_of_many_files_needs_no_spark(tmp_path: Path) -> None:
    trail = tmp_path / "trail"
    write_trail(
        trail, Scale(brokers=3, messages=500, seed=2, publishers=5, subscriptions=3, seconds=60, seal_seconds=2)
    )
    account = run_job("storage", storage.run, StorageOptions(trail, tmp_path / "out"))
    files = [entry for here in open_sources(trail).all_entries().values() for entry in here]
    assert account.summary["exact_bytes"] == sum(entry.size for entry in files if entry.table == "passages")
    assert sum(row["files"] for row in pq.read_table(tmp_path / "out" / "storage").to_pylist()) == 90


def test_storage_names_a_file_that_is_damaged(tmp_path: Path) -> None:
    trail = tmp_path / "trail"
    write_trail(trail, FILTERS)
    path = min(trail.glob("filters/broker=2/*/*.parquet"))
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=path.name):
        run_job("storage", storage.run, StorageOptions(trail, tmp_path / "out"))
    account = run_job("storage", storage.run, StorageOptions(trail, tmp_path / "out", skip_damaged=True))
    assert [path.name in lost.path for lost in account.damaged] == [True]
