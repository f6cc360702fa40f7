"""Compaction: smaller, in fewer files, and every answer as before."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from postroad.lab.trails import read_truth
from postroad.messages import MessageId
from postroad.pipeline import PipelineError, run_job
from postroad.pipeline.commit_note import sole_compaction
from postroad.pipeline.erasure import Erasure
from postroad.pipeline.files import PREFIX, FileMaker, sweep_unfinished
from postroad.pipeline.jobs import compact
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.proof import differences, drawn
from postroad.pipeline.sources import open_sources
from postroad.pipeline.tables import ID
from postroad.tracking import SubscriptionChanges
from postroad.trail import DAY_MS, Trail, TrailWriter
from tests.pipeline.compactions import NOW, answers, rows_of
from tests.pipeline.trails import TROUBLED, passages, some_ids

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NOON = NOW // DAY_MS * DAY_MS - DAY_MS // 2


@pytest.fixture(scope="module")
def compacted(spark: SparkSession, troubled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compact")
    shutil.copytree(troubled, folder / "trail")
    options = CompactOptions(folder / "trail", folder / "out", now=NOW, sample=200)
    account = run_job("compact", compact.run, options, spark=spark)
    assert account.summary["ids_proven"] == 400
    assert account.summary["files_after"] < account.summary["files_before"]
    assert account.written == [str(folder / "trail")]
    return folder / "trail"


Answers = dict[tuple[int, ...], dict[str, Any]]


@pytest.fixture(scope="module")
def before(troubled: Path) -> Answers:
    """The answers about all messages, and about as many that never existed."""
    return answers(troubled, all_ids(troubled))


def all_ids(trail: Path) -> list[tuple[int, ...]]:
    return some_ids(trail, TROUBLED.messages, seed=2)


def test_every_id_is_answered_as_before(troubled: Path, compacted: Path, before: Answers) -> None:
    assert answers(compacted, all_ids(troubled)) == before


def test_journeys_are_the_messages_that_nothing_happened_to(troubled: Path, compacted: Path, before: Answers) -> None:
    truth = {tuple(row[name] for name in ID): row for row in read_truth(troubled).to_pylist()}
    assert truth.keys() <= before.keys()
    plain = {id for id in truth if not before[id]["gaps"] and before[id]["verdict"] in PLAIN}
    found = {}
    for broker, entries in open_sources(compacted).all_entries().items():
        for entry in entries:
            if entry.table == "journeys":
                for row in pq.ParquetFile(compacted / entry.path).read().to_pylist():
                    assert row["origin"] == broker
                    found[tuple(row[name] for name in ID)] = row
    assert set(found) == plain
    assert rows_of(compacted, "journeys") == len(found)
    numbers = {id: [int.from_bytes(row["path"][at : at + 8]) for at in range(0, len(row["path"] or b""), 8)]
               for id, row in found.items() if row["path"]}  # fmt: skip
    assert all(path == truth[id]["path"] for id, path in numbers.items())


PLAIN = {"delivered", "acknowledged", "matched nobody"}


def test_reader_of_one_id_agrees_after_compaction(troubled: Path, compacted: Path) -> None:
    old, new = Trail(troubled), Trail(compacted)
    for origin, time, publisher, counter in some_ids(troubled, 60, seed=9):
        identity = MessageId(publisher, origin, time, counter)
        before, after = old.trace(identity).journey, new.trace(identity).journey
        assert (before.verdict, before.certainty, before.lost) == (after.verdict, after.certainty, after.lost)
        assert [stop.broker for stop in before.stops] == [stop.broker for stop in after.stops]
        assert before.delivered == after.delivered
    assert new.warnings == []


def test_compacting_again_changes_no_answer(spark: SparkSession, compacted: Path, tmp_path: Path) -> None:
    shutil.copytree(compacted, tmp_path / "trail")
    options = CompactOptions(tmp_path / "trail", tmp_path / "out", now=NOW, sample=50)
    before = {path for path in (tmp_path / "trail").rglob("*") if path.is_file()}
    account = run_job("compact", compact.run, options, spark=spark)
    # There was nothing to do: no file is new, and no manifest.
    assert {path for path in (tmp_path / "trail").rglob("*") if path.is_file()} == before
    assert account.written == []
    assert rows_of(tmp_path / "trail", "journeys") == rows_of(compacted, "journeys")
    assert rows_of(tmp_path / "trail", "passages") == rows_of(compacted, "passages")
    ids = some_ids(compacted, 300, seed=4)
    assert answers(compacted, ids) == answers(tmp_path / "trail", ids)


def test_leftovers_of_a_killed_compaction_go_at_the_next(compacted: Path, tmp_path: Path) -> None:
    shutil.copytree(compacted, tmp_path / "trail")
    sources = open_sources(tmp_path / "trail")
    live = next(entry for entry in sources.all_entries()[1] if entry.table == "journeys")
    left = (tmp_path / "trail" / live.path).with_name(f"{PREFIX}killed-j0-t7-0000.parquet")
    left.write_bytes(b"half")
    # Without a lock another compaction may be at work, whose file this is.
    assert sweep_unfinished(sources) == 0
    with sole_compaction(tmp_path / "trail") as is_sole:
        assert is_sole
        assert sweep_unfinished(sources, is_sole=is_sole) == 1
    assert not left.exists()
    assert (tmp_path / "trail" / live.path).exists()


def test_attempts_at_one_task_write_files_of_their_own(troubled: Path, tmp_path: Path) -> None:
    rows = pq.ParquetFile(next(troubled.glob("passages/broker=1/*/*.parquet"))).read()
    first, second = (list(FileMaker(tmp_path, "passages", "compact-x").write(1, rows)) for _ in range(2))
    assert {entry.path for entry in first}.isdisjoint(entry.path for entry in second)
    assert [entry.crc for entry in first] == [entry.crc for entry in second]


def test_file_that_reaches_out_of_the_range_stays(spark: SparkSession, tmp_path: Path) -> None:
    early, late = NOON - 30_000, NOON + 20_000
    first, second = (TrailWriter(tmp_path / "trail", broker, NOON - 3_600_000) for broker in (1, 2))
    first.write([passages((1, early, 0, [2], []), (1, early + 1, 0, [], [9]))], NOON + 120_000)
    # One file, and each of its origins on another side of noon.
    second.write([passages((1, early, 1, [], [9]), (2, late, 0, [], [9]))], NOON + 120_000)
    for writer in (first, second):
        writer.close(NOON + 130_000)
    ids: list[tuple[int, ...]] = [(1, early, 7, 0), (1, early + 1, 7, 0), (2, late, 7, 0)]
    before = answers(tmp_path / "trail", ids)
    assert {row["verdict"] for row in before.values()} == {"delivered"}
    options = CompactOptions(tmp_path / "trail", tmp_path / "out", until=NOON, now=NOW, sample=20)
    account = run_job("compact", compact.run, options, spark=spark)
    assert answers(tmp_path / "trail", ids) == before
    assert (account.summary["journeys"], account.summary["passages_joined"]) == (1, 1)
    assert account.summary["passages_left"] == 1
    assert account.summary["ids_proven"] == 4


def test_compaction_that_would_lose_rows_commits_nothing(
    spark: SparkSession, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(small, tmp_path / "trail")
    real = compact.evidence_by_origin
    monkeypatch.setattr(
        compact, "evidence_by_origin", lambda *given, **more: real(*given, **more).where("time % 7 > 0")
    )
    options = CompactOptions(tmp_path / "trail", tmp_path / "out", now=NOW, sample=20)
    with pytest.raises(PipelineError, match="rows would be taken out, and what takes their place has"):
        run_job("compact", compact.run, options, spark=spark)
    assert {path.name for path in tmp_path.rglob("compact-*")} == set()
    assert rows_of(tmp_path / "trail", "passages") == rows_of(small, "passages")


@pytest.mark.parametrize("given", [{"keep_ms": 0}, {"erase": Erasure(3, 2)}])
def test_part_of_the_time_is_refused_where_all_of_it_is_meant(
    spark: SparkSession, troubled: Path, tmp_path: Path, given: dict[str, Any]
) -> None:
    with pytest.raises(PipelineError, match="leave out --since and --until"):
        run_job("compact", compact.run, CompactOptions(troubled, tmp_path / "out", since=NOON, **given), spark=spark)


def test_keeping_nothing_is_retention(spark: SparkSession, tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path / "trail", 1, NOON)
    writer.write([passages((1, NOON, 0, [], [9]))], NOON + 60_000)
    writer.close(NOON + 60_000)
    options = CompactOptions(tmp_path / "trail", tmp_path / "out", now=NOW, keep_ms=0)
    account = run_job("compact", compact.run, options, spark=spark)
    assert (account.summary["files_taken_out"], account.written) == (1, [str(tmp_path / "trail")])
    assert answers(tmp_path / "trail", [(1, NOON, 7, 0)])[1, NOON, 7, 0]["verdict"] == "outside retention"


def test_erasing_a_subscriber_that_never_was_is_refused(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "trail")
    options = CompactOptions(tmp_path / "trail", tmp_path / "out", now=NOW, erase=Erasure(3, 4_711))
    with pytest.raises(PipelineError, match="broker 3 has no record of a subscription 4711"):
        run_job("compact", compact.run, options, spark=spark)


def test_who_is_still_subscribed_is_known_when_it_is_erased(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 1, NOON)
    changes = [(5, 1), (6, 1), (6, 0)]
    for after, (number, begins) in enumerate(changes):
        numbers, times = np.array([number]), np.array([NOON + after])
        row = SubscriptionChanges(numbers, times, np.array([begins], np.int32), ["p"], ["t"], [""])
        writer.write([row], NOON + 60_000 + after)
    here = [number for number in (5, 6, 7) if compact.is_still_here(open_sources(tmp_path), Erasure(1, number))]
    assert here == [5]
    writer.close(NOON + 70_000)
    assert not compact.is_still_here(open_sources(tmp_path), Erasure(1, 5))


def test_ids_of_a_proof_are_of_all_origins() -> None:
    ids = [(origin, time, 7, 0) for origin in range(1, 6) for time in range(400)]
    chosen = drawn(ids, 100)
    assert chosen == drawn(reversed(ids), 100)
    assert len(set(chosen)) == 100
    assert min(sum(one[0] == origin for one in chosen) for origin in range(1, 6)) > 5
    assert drawn(ids[:3], 100) == ids[:3]


def test_reader_that_pinned_before_reads_on(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "trail")
    reader = Trail(tmp_path / "trail")
    for broker in reader.brokers():
        reader.pinned(broker)
    options = CompactOptions(tmp_path / "trail", tmp_path / "out", now=NOW, sample=20)
    run_job("compact", compact.run, options, spark=spark)
    origin, time, publisher, counter = some_ids(small, 1)[0]
    identity = MessageId(publisher, origin, time, counter)
    assert reader.trace(identity).journey.verdict == Trail(small).trace(identity).journey.verdict
    assert reader.warnings == []


def test_compaction_that_would_change_an_answer_commits_nothing(
    spark: SparkSession, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(small, tmp_path / "trail")
    monkeypatch.setattr("postroad.pipeline.proof.differences", lambda *_: ["one is gone"])
    options = CompactOptions(tmp_path / "trail", tmp_path / "out", now=NOW, sample=20)
    with pytest.raises(PipelineError, match="answered differently: one is gone"):
        run_job("compact", compact.run, options, spark=spark)
    assert {path.name for path in tmp_path.rglob("compact-*")} == set()
    assert rows_of(tmp_path / "trail", "passages") == rows_of(small, "passages")


def test_differences_are_lost_ids_and_changed_answers() -> None:
    row = {"verdict": "delivered", "certainty": 0.999, "brokers": [1], "delivered": [{"broker": 1, "doubt": 0.1}],
           "acknowledged": [], "lost": []}  # fmt: skip
    assert differences({1: row}, {1: row | {"certainty": 0.9985, "delivered": [{"broker": 1, "doubt": 0.2}]}}) == []
    assert differences({1: row}, {}) == ["1 is gone"]
    assert differences({1: row}, {1: row | {"brokers": [1, 2]}}) == ["1: brokers was [1], would be [1, 2]"]
    assert len(differences({1: row}, {1: row | {"delivered": [{"broker": 2, "doubt": 0.1}]}})) == 1
