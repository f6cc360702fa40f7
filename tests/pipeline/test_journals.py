"""The bulk trace reads the journals of brokers that died, and says what `postroad trace` says of the same messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from postroad.messages import Batch, MessageId
from postroad.pipeline import journals, run_job
from postroad.pipeline.jobs import trace
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.tracking import ExactRecorder
from postroad.tracking.journaled_recorder import Journaled, turn_entry
from postroad.trail import Journal, Trail, TrailWriter, journal_folder
from tests.trail.samples import NOON, passages

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DEAD, LIVING = 4, 5
TIMES = range(NOON + 100_000, NOON + 140_000, 10_000)


def message(time: int) -> Batch:
    """One message that enters at the broker that dies."""
    batch = Batch.build([("quotes", {}, {}, b"1")])
    identity = MessageId(7, DEAD, time, 0)
    batch.ids[0] = identity.head, identity.tail
    return batch


def crashed(root: Path) -> None:
    """A broker writes a file and dies later; its journal has messages that it delivered and relayed.

    The broker that they were relayed to has written all of its record.
    """
    writer = TrailWriter(root, DEAD, NOON)
    writer.write([passages([(DEAD, NOON + 1_000, 7, 0)], delivered=[[9]])], NOON + 60_000)
    journal = Journal(root, DEAD)
    recorder = Journaled(ExactRecorder(DEAD, NOON, 60_000, 1 << 24), journal.append)
    recorder.linked(LIVING, 1, NOON + 90_000)
    for time in TIMES:
        batch, row = message(time), np.zeros(1, np.int64)
        recorder.accepted(batch, time)
        recorder.delivered(batch, row, 9, time)
        recorder.relayed(batch, row, LIVING, time)
        journal.append(turn_entry(time + 1), ends_turn=True)
    journal.append(turn_entry(TIMES[-1] + 60_000), ends_turn=True)
    journal.sync()
    other = TrailWriter(root, LIVING, NOON)
    arrived = passages([(DEAD, time, 7, 0) for time in TIMES], arrived_from=[DEAD] * len(TIMES))
    other.write([arrived], NOON + 240_000)
    other.close(NOON + 300_000)


def asked(folder: Path) -> Path:
    """Ids: of the file, of the journal, and one that never was, of times that the journal reaches."""
    times = [NOON + 1_000, *TIMES, TIMES[-1] + 5_000]
    path = folder / "ids.txt"
    path.write_text("".join(f"{MessageId(7, DEAD, time, 0)}\n" for time in times))
    return path


def verdicts(folder: Path) -> dict[str, Any]:
    return {row["id"]: (row["verdict"], row["certainty"]) for row in pq.read_table(folder / "trace").to_pylist()}


def one_by_one(root: Path, ids: Path) -> dict[str, Any]:
    trail = Trail(root)
    told = {text: trail.trace(MessageId.parse(text)).journey for text in ids.read_text().split()}
    return {text: (journey.verdict.value, journey.certainty) for text, journey in told.items()}


@pytest.mark.parametrize("by_spark", [False, True])
def test_messages_in_the_journal_of_a_dead_broker_are_traced(
    request: pytest.FixtureRequest, tmp_path: Path, by_spark: bool
) -> None:
    spark: SparkSession | None = request.getfixturevalue("spark") if by_spark else None
    root = tmp_path / "trail"
    crashed(root)
    ids = asked(tmp_path)
    run_job("trace", trace.run, TraceOptions(root, tmp_path / "out", ids=ids), spark=spark)
    found = verdicts(tmp_path / "out")
    assert found == one_by_one(root, ids)
    assert [verdict for verdict, _ in found.values()].count("delivered") == 1 + len(TIMES)
    assert "never accepted" in {verdict for verdict, _ in found.values()}


def test_messages_that_entered_long_after_the_time_of_their_id_are_found_in_the_journal(tmp_path: Path) -> None:
    root = tmp_path / "trail"
    crashed(root)
    # The files are complete for the time of the id.
    late = MessageId(7, DEAD, NOON + 20_000, 0)
    journal = Journal(root, DEAD)
    recorder = Journaled(ExactRecorder(DEAD, NOON, 60_000, 1 << 24), journal.append)
    recorder.accepted(message(late.time), TIMES[-1] + 60_001)
    journal.append(turn_entry(TIMES[-1] + 60_002), ends_turn=True)
    journal.sync()
    ids = tmp_path / "ids.txt"
    ids.write_text(f"{late}\n")
    run_job("trace", trace.run, TraceOptions(root, tmp_path / "out", ids=ids))
    assert verdicts(tmp_path / "out") == one_by_one(root, ids) == {str(late): ("matched nobody", 1.0)}


def test_journal_that_is_too_large_or_damaged_leaves_a_gap_and_no_confident_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "trail"
    crashed(root)
    ids = asked(tmp_path)
    options = TraceOptions(root, tmp_path / "out", ids=ids)
    (segment,) = journal_folder(root, DEAD).iterdir()
    segment.write_bytes(segment.read_bytes()[:-30] + bytes(30))
    run_job("trace", trace.run, options)
    damaged = verdicts(tmp_path / "out")
    assert damaged == one_by_one(root, ids)
    monkeypatch.setattr(journals, "MAX_JOURNAL_BYTES", 10)
    run_job("trace", trace.run, options)
    rows = pq.read_table(tmp_path / "out" / "trace").to_pylist()
    late = [row for row in rows if row["time"] > NOON + 60_000]
    assert len(late) == len(TIMES) + 1
    assert all(row["gaps"] for row in late)
    assert "never accepted" not in {row["verdict"] for row in late}
