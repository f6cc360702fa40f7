"""What a store retains becomes a dataset with every message in it, once and as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroad.archive import ARCHIVE_SCHEMA, ArchiveError, archive_table, export_archive
from postroad.matching import SubscriptionIndex
from postroad.messages import Batch
from postroad.pipeline.jobs.match import archived_batch, matched
from tests.archive.retained import retain
from tests.matching.oracle import OneByOne
from tests.matching.strategies import batches, subscriptions

if TYPE_CHECKING:
    from pathlib import Path


def numbered(topic: str, *numbers: int) -> Batch:
    return Batch.build([(topic, {"n": n, "kind": "order"}, {"price": f"{n}.5"}, b"body %d" % n) for n in numbers])


def test_export_writes_every_retained_message_once_in_order(tmp_path: Path) -> None:
    made = [numbered(f"orders.{n % 3}", *range(10 * n, 10 * n + 10)) for n in range(30)]
    retain(tmp_path / "store", *made, topics=("orders.>", "orders.1"))
    report = export_archive(tmp_path / "store", tmp_path / "archive")
    assert (report.messages, report.gone) == (300, 0)
    assert sorted(report.retained) == ["orders.1", "orders.>"]
    rows = pq.read_table(tmp_path / "archive").to_pylist()
    assert [row["body"] for row in rows] == [b"body %d" % n for n in range(300)]
    sent = [batch.message(row) for batch in made for row in range(len(batch))]
    assert [row["id"] for row in rows] == [str(each.id) for each in sent]
    assert [row["topic"] for row in rows] == [each.topic for each in sent]
    assert dict(rows[7]["attributes"]) == {"n": "7", "kind": "order", "price": "7.5"}
    assert int(rows[0]["time"].timestamp() * 1_000) == sent[0].id.time


def test_export_takes_the_topics_and_times_that_are_asked_for(tmp_path: Path) -> None:
    retain(tmp_path / "store", *(numbered(f"orders.{n % 2}", n) for n in range(20)))
    first = 1_700_000_000_000
    report = export_archive(tmp_path / "store", tmp_path / "a", "orders.1", first + 5_000, first + 12_000)
    rows = pq.read_table(tmp_path / "a", columns=["body"]).to_pylist()
    assert [row["body"] for row in rows] == [b"body %d" % n for n in (5, 7, 9, 11)]
    assert report.messages == 4


def test_export_counts_what_went_while_it_read(tmp_path: Path) -> None:
    retain(tmp_path / "store", *(numbered("a", *range(n, n + 400)) for n in range(20)))
    segments = sorted((tmp_path / "store").iterdir())
    assert len(segments) > 3
    whole = export_archive(tmp_path / "store", tmp_path / "whole").messages
    data = bytearray(segments[0].read_bytes())
    data[len(data) // 2] ^= 1
    segments[0].write_bytes(data)
    report = export_archive(tmp_path / "store", tmp_path / "archive")
    assert report.gone > 0
    assert report.messages + report.gone == whole


def test_export_refuses_what_is_no_store_or_retains_nothing_or_is_there_already(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="there is no store"):
        export_archive(tmp_path / "store", tmp_path / "archive")
    retain(tmp_path / "store", numbered("a", 1))
    retain(tmp_path / "store", topics=())
    with pytest.raises(ArchiveError, match="retains no topic"):
        export_archive(tmp_path / "store", tmp_path / "archive")
    retain(tmp_path / "other", numbered("a", 1))
    export_archive(tmp_path / "other", tmp_path / "archive")
    with pytest.raises(ArchiveError, match="exists already"):
        export_archive(tmp_path / "other", tmp_path / "archive")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(subscriptions, batches, st.data())
def test_archived_rows_match_as_the_messages_do_one_by_one(
    wanted: tuple[str | None, str | None], batch: Batch, data: st.DataObject
) -> None:
    selector, topic = wanted
    index, truth = SubscriptionIndex(), OneByOne()
    index.add(1, selector, topic)
    truth.add(1, selector, topic)
    archived = pa.RecordBatch.from_arrays(
        [column.combine_chunks() for column in archive_table(batch).columns], schema=ARCHIVE_SCHEMA
    )
    # Spark may hand over any part of a column.
    first = data.draw(st.integers(0, len(batch)))
    last = data.draw(st.integers(first, len(batch)))
    part = archived.slice(first, last - first)
    found = matched(part.column("envelope"), part.column("encoded"), index)
    expected = [bool(each) for each in truth.match(batch)][first:last]
    assert found.tolist() == expected
    again = archived_batch(archived.column("envelope"), archived.column("encoded"))
    assert [again.message(row).selectable() for row in range(len(batch))] == [
        batch.message(row).selectable() for row in range(len(batch))
    ]
