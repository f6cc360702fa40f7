"""What a reader answers, against what was written; and what it does with files that are not what they should be."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import Batch, MessageId
from postroad.tracking import (
    ADDENDUM,
    HERE,
    Aliases,
    HistoryKind,
    HistorySettings,
    Hit,
    LinkChanges,
    LogRecords,
    Names,
    SealedRecorder,
    SubscriptionChanges,
    Verdict,
)
from postroad.trail import DAY_MS, SCHEMAS, Trail, TrailError, TrailWriter, by_date, describe_file, tabulate, write_file
from postroad.trail.coverage import GapReason
from tests.trail.samples import HOUR, NOON, a_filter, everything, passages, short, wide

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.tracking import Exploration, Findings

ID = MessageId(7, 1, NOON, 0)
NUMBERS = st.sets(st.sampled_from([2, 3, 70_000]), max_size=2)
rows = st.fixed_dictionaries(
    {
        # Few origins, times and publishers, so that rows of one message meet in a file and across files; one time is of
        # another day.
        "key": st.tuples(
            st.sampled_from([1, 2]),
            st.sampled_from([NOON, NOON + 1, NOON + DAY_MS]),
            st.sampled_from([7, 8]),
            st.just(0),
        ),
        "came": st.sampled_from([HERE, ADDENDUM, 5, 6]),
        "relayed_to": NUMBERS,
        "delivered": NUMBERS,
        "acknowledged": NUMBERS,
        "refused": NUMBERS,
        "queued": NUMBERS,
    }
)
LISTS = ("relayed_to", "delivered", "acknowledged", "refused", "queued")


def segment(rows: list[dict[str, Any]]) -> Any:
    ordered = sorted(rows, key=lambda row: row["key"])
    lists = {name: [row[name] for row in ordered] for name in LISTS}
    return passages([row["key"] for row in ordered], arrived_from=[row["came"] for row in ordered], **lists)


@settings(max_examples=15)
@given(st.lists(st.lists(rows, min_size=1, max_size=6), max_size=4), st.booleans())
def test_findings_are_the_union_of_all_rows_of_the_id(
    tmp_path_factory: pytest.TempPathFactory, commits: list[list[dict[str, Any]]], checkpoint: bool
) -> None:
    root = tmp_path_factory.mktemp("trail")
    writer = TrailWriter(root, 4, NOON - HOUR)
    truth: dict[Any, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for turn, some in enumerate(commits):
        writer.write([segment(some)], NOON + 3 * DAY_MS + turn)
        for row in some:
            truth[row["key"]]["came"].add(row["came"])
            for name in LISTS:
                truth[row["key"]][name] |= row[name]
    if checkpoint:
        writer.ledger.checkpoint(NOON)
    writer.close(NOON + 4 * DAY_MS)
    trail = Trail(root)
    for origin in (1, 2):
        for time in (NOON, NOON + 1, NOON + DAY_MS, NOON + 2):
            one = truth.get((origin, time, 7, 0), defaultdict(set))
            found = trail.findings(4, MessageId(7, origin, time, 0))
            assert_says(found, one)
    assert trail.warnings == []


def assert_says(found: Findings, one: dict[str, set[int]]) -> None:
    assert (found.accepted is not None) == (HERE in one["came"])
    assert (found.arrived is not None) == bool(one["came"] - {HERE, ADDENDUM})
    assert {hit.number for hit in found.arrived_from} == one["came"] - {HERE, ADDENDUM}
    parts = (found.relayed_to, found.delivered, found.acknowledged, found.refused, found.queued)
    for name, hits in zip(LISTS, parts, strict=True):
        assert [hit.number for hit in hits] == sorted(one[name])
        assert all(hit.doubt == 0 for hit in hits)
    assert found.gaps == ()


def a_network(root: Path) -> dict[int, TrailWriter]:
    """Message 7 goes from broker 1 over 2 to 3, and is delivered at 2 and 3."""
    writers = {broker: TrailWriter(root, broker, NOON - HOUR) for broker in (1, 2, 3)}
    key = [(1, NOON, 7, 0)]
    writers[1].write(
        [
            passages(key, relayed_to=[[2]]),
            Names(["publisher"], wide([7]), wide([NOON - 9]), ["bob"]),
            LinkChanges(wide([2]), wide([NOON - 10]), short([1]), short([1])),
            Aliases(["ID:abc"], wide([1]), wide([NOON]), wide([7]), short([0])),
        ],
        NOON + HOUR,
    )
    writers[2].write(
        [
            passages(key, arrived_from=[1], relayed_to=[[3]], delivered=[[50]]),
            SubscriptionChanges(wide([50]), wide([NOON - 2]), short([1]), ["ann"], ["news.*"], ["price > 3"]),
        ],
        NOON + HOUR,
    )
    writers[3].write([passages(key, arrived_from=[2], delivered=[[60]], acknowledged=[[60]])], NOON + HOUR)
    return writers


def test_a_message_is_traced_broker_by_broker_with_names(tmp_path: Path) -> None:
    a_network(tmp_path)
    trail = Trail(tmp_path)
    story = trail.trace(ID)
    assert story.journey.verdict is Verdict.DELIVERED
    assert [(stop.broker, stop.parent) for stop in story.journey.stops] == [(1, 0), (2, 1), (3, 2)]
    assert story.publisher == "bob"
    assert story.subscriptions[2, 50].principal == "ann"
    assert trail.aliased("ID:abc") == [ID]
    assert trail.aliased("ID:xyz") == []
    assert trail.brokers() == [1, 2, 3]


def test_an_id_that_never_was_is_certainly_not_there(tmp_path: Path) -> None:
    a_network(tmp_path)
    story = Trail(tmp_path).trace(MessageId(7, 1, NOON + 1, 0))
    assert (story.journey.verdict, story.journey.certainty) == (Verdict.NEVER_ACCEPTED, 1.0)


def test_after_the_last_commit_the_answer_is_not_recorded(tmp_path: Path) -> None:
    a_network(tmp_path)
    story = Trail(tmp_path).trace(MessageId(7, 1, NOON + 2 * HOUR, 0))
    assert story.journey.verdict is Verdict.NOT_RECORDED


def test_a_broker_without_a_part_in_the_trail_is_unanswered(tmp_path: Path) -> None:
    a_network(tmp_path)
    trail = Trail(tmp_path)
    assert trail.trace(MessageId(7, 9, NOON, 0)).journey.verdict is Verdict.UNANSWERED
    assert [gap.reason for gap in trail.findings(9, ID).gaps] == [GapReason.NEVER_BEGUN]


@pytest.mark.parametrize("exploration", ["relayed", "neighbours"])
def test_an_origin_that_crashed_before_its_first_commit_is_gone_around_by_the_links_of_others(
    tmp_path: Path, exploration: Exploration
) -> None:
    TrailWriter(tmp_path, 1, NOON - HOUR)
    other, stranger = (TrailWriter(tmp_path, broker, NOON - HOUR) for broker in (2, 3))
    linked = LinkChanges(wide([1]), wide([NOON - 10]), short([1]), short([1]))
    other.write([linked, passages([(1, NOON, 7, 0)], arrived_from=[1], delivered=[[50]])], NOON + HOUR)
    stranger.write([], NOON + HOUR)
    TrailWriter(tmp_path, 1, NOON + HOUR).close(NOON + 2 * HOUR)
    journey = Trail(tmp_path).trace(ID, exploration=exploration).journey
    assert journey.verdict is Verdict.RECORDED_IN_PART
    assert [(stop.broker, stop.parent, stop.recorded) for stop in journey.stops] == [(1, 0, False), (2, 1, True)]
    assert [(broker, hit.number) for broker, hit in journey.delivered] == [(2, 50)]
    assert journey.queries == 2


def test_a_directory_that_no_broker_wrote_to_is_no_trail(tmp_path: Path) -> None:
    with pytest.raises(TrailError, match="is not a trail"):
        Trail(tmp_path)
    with pytest.raises(TrailError, match="is not a directory"):
        Trail(tmp_path / "nowhere")


def test_journeys_answer_like_the_passages_they_were_made_of(tmp_path: Path) -> None:
    writers = a_network(tmp_path)
    before = {broker: Trail(tmp_path).findings(broker, ID) for broker in writers}

    def pairs(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(4, "big") for number in numbers)

    row = {
        "origin": 1,
        "time": NOON,
        "publisher": 7,
        "counter": 0,
        "path": pairs(1, 2, 2, 3),
        "delivered": pairs(2, 50, 3, 60),
        "acknowledged": pairs(3, 60),
        "refused": None,
        "complete": 1,
    }
    table = pa.Table.from_pylist([row], schema=SCHEMAS["journeys"])
    file = write_file(tmp_path, "journeys", 1, NOON // DAY_MS, "compacted", table)
    writers[1].ledger.append(NOON, [file])
    for broker, writer in writers.items():
        old = [one.path for one in writer.ledger.pin().all_entries("passages")[0]]
        writer.ledger.replace(NOON, old)
        after = Trail(tmp_path).findings(broker, ID)
        assert after._replace(probes=0) == before[broker]._replace(probes=0)


def test_links_and_subscribers_of_a_time_are_known_days_after_they_began(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    writer.write(
        [
            LinkChanges(wide([2, 3]), wide([NOON, NOON]), short([1, 1]), short([1, 1])),
            SubscriptionChanges(wide([50]), wide([NOON]), short([1]), ["ann"], ["news"], [""]),
        ],
        NOON + 1,
    )
    later = NOON + 5 * DAY_MS
    for day in range(1, 6):
        writer.write([], NOON + day * DAY_MS)
    gone = LinkChanges(wide([3]), wide([later + 5]), short([0]), short([0]))
    writer.write([gone], later + HOUR)
    writer.ledger.checkpoint(later)
    trail = Trail(tmp_path)
    assert trail.neighbours(4, NOON - 5, NOON - 1) == []
    assert trail.neighbours(4, later - 5, later + 4) == [2, 3]
    assert trail.neighbours(4, later + 10, later + 20) == [2]
    assert trail.subscriptions(4, later, later) == [50]
    assert [one.principal for one in trail.named_subscriptions(4, {50, 51}, later, later)] == ["ann"]
    # Only the last days' files are read for that.
    assert trail.reads.files < 15


def test_a_trace_in_a_trail_of_many_days_reads_hardly_more_than_in_one_of_few(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 4, NOON)
    writer.write(
        [
            LinkChanges(wide([2]), wide([NOON]), short([1]), short([1])),
            SubscriptionChanges(wide([50]), wide([NOON]), short([1]), ["ann"], ["news"], [""]),
            Names(["publisher"], wide([7]), wide([NOON]), ["bob"]),
        ],
        NOON + 1,
    )
    costs = []
    for day in range(1, 31):
        at = NOON + day * DAY_MS
        writer.write([passages([(4, at + row, 7, 0) for row in range(90)], delivered=[[50]] * 90)], at + HOUR)
        writer.ledger.checkpoint(at)
        if day in (3, 30):
            trail = Trail(tmp_path)
            story = trail.trace(MessageId(7, 4, NOON + 2 * DAY_MS + 5, 0))
            assert story.journey.verdict is Verdict.DELIVERED
            assert (story.publisher, story.subscriptions[4, 50].principal) == ("bob", "ann")
            costs.append((trail.reads.files, trail.reads.bytes))
    (few_files, few_bytes), (many_files, many_bytes) = costs
    assert many_files == few_files
    assert many_bytes < 2 * few_bytes


def test_links_of_a_run_that_crashed_do_not_stand_in_the_next(tmp_path: Path) -> None:
    TrailWriter(tmp_path, 4, NOON).write([LinkChanges(wide([2]), wide([NOON]), short([1]), short([1]))], NOON + 1)
    TrailWriter(tmp_path, 4, NOON + 50).write(
        [LinkChanges(wide([3]), wide([NOON + 60]), short([1]), short([1]))], NOON + 99
    )
    assert Trail(tmp_path).neighbours(4, NOON + 70, NOON + 80) == [3]


def sealed_traffic(root: Path) -> list[MessageId]:
    """What the `sealed` recorder leaves of messages that came over a link and went to a subscription and a link."""
    recorder = SealedRecorder(4, HistorySettings(), NOON)
    recorder.linked(2, 1, NOON)
    recorder.linked(3, 1, NOON)
    recorder.subscribed(50, "ann", "news", "", NOON)
    ids = [MessageId(7, 1, NOON + 10 * turn, 0) for turn in range(200)]
    batch = Batch.build([("t",)] * len(ids))
    batch.ids[:] = [(one.head, one.tail) for one in ids]
    rows = np.arange(len(ids), dtype=np.int32)
    recorder.arrived(batch, 2, NOON + 2_000)
    recorder.relayed(batch, rows[::2].copy(), 3, NOON + 2_000)
    recorder.delivered(batch, rows[:100].copy(), 50, NOON + 2_000)
    writer = TrailWriter(root, 4, NOON - HOUR)
    for job in recorder.due(NOON + HOUR, force=True):
        writer.write(job.make(), job.through)
    writer.close(NOON + HOUR)
    return ids


def test_filters_are_asked_about_who_was_there_at_the_time(tmp_path: Path) -> None:
    ids = sealed_traffic(tmp_path)
    trail = Trail(tmp_path)
    for turn, identity in enumerate(ids[:4] + ids[-4:]):
        found = trail.findings(4, identity)
        assert found.gaps == ()
        assert found.arrived is not None
        assert 0 < found.arrived.doubt < 1e-3
        assert [hit.number for hit in found.arrived_from] == [2]
        assert [hit.number for hit in found.relayed_to] == [3] * (turn % 2 == 0)
        assert [hit.number for hit in found.delivered] == [50] * (turn < 4)
    assert trail.findings(4, MessageId(8, 1, NOON + 10, 0)).arrived is None


def test_rows_of_the_plain_log_answer_exactly(tmp_path: Path) -> None:
    fields = [wide([1] * 4), wide([NOON] * 4), wide([7] * 4), short([0] * 4)]
    kinds = [HistoryKind.ARRIVED, HistoryKind.ARRIVED_FROM, HistoryKind.RELAYED, HistoryKind.DELIVERED]
    log = LogRecords(short(kinds), wide([0, 2, 3, 50]), *fields)
    TrailWriter(tmp_path, 4, NOON - HOUR).write([log], NOON + HOUR)
    found = Trail(tmp_path).findings(4, ID)
    assert found.arrived == Hit(0, 0.0, NOON, NOON)
    assert found.accepted is None
    answers = [found.arrived_from, found.relayed_to, found.delivered]
    assert [[hit.number for hit in hits] for hits in answers] == [[2], [3], [50]]


def test_a_filter_that_cannot_be_asked_is_a_gap_and_the_others_are_asked(tmp_path: Path) -> None:
    identity = sealed_traffic(tmp_path)[0]
    writer = TrailWriter(tmp_path, 4, NOON + 2 * HOUR)
    writer.ledger.append(NOON + 2 * HOUR, [])
    prepared = writer.prepare([a_filter()._replace(method="of the future")], NOON + 3 * HOUR)
    writer.commit(prepared)
    found = Trail(tmp_path).findings(4, identity)
    assert found.arrived is not None
    assert [gap.reason for gap in found.gaps] == ["filters cannot be read: 1"]


def test_there_must_be_a_directory(tmp_path: Path) -> None:
    with pytest.raises(TrailError, match="not a directory"):
        Trail(tmp_path / "none")


# --- damage ----------------------------------------------------------------------------------------------------------


def truncate(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def flip(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def scribble(data: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(len(data))


def empty(data: bytes, chance: random.Random) -> bytes:
    return b""


@pytest.mark.parametrize("harm", [truncate, flip, scribble, empty])
def test_a_damaged_file_is_named_and_never_makes_a_wrong_answer(tmp_path: Path, harm: Any) -> None:
    writers = a_network(tmp_path)
    writers[2].ledger.checkpoint(NOON)
    for broker in writers:
        writers[broker].close(NOON + 2 * HOUR)
    ids = [ID, MessageId(7, 1, NOON + 1, 0)]
    whole = {(broker, one): Trail(tmp_path).findings(broker, one) for broker in writers for one in ids}
    chance = random.Random(5)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for path in files:
        data = path.read_bytes()
        for _ in range(3):
            path.write_bytes(harm(data, chance))
            trail = Trail(tmp_path)
            for (broker, one), truth in whole.items():
                found = trail.findings(broker, one)
                # Either the answer is the true one, or it says that the record is not complete.
                assert found.gaps or found == truth, path
                # What is said is true anyway.
                assert set(found.relayed_to) <= set(truth.relayed_to)
                assert set(found.delivered) <= set(truth.delivered)
                assert found == truth or any(str(path) in text for text in trail.warnings), path
            trail.trace(ID)
            trail.aliased("ID:abc")
        path.write_bytes(data)


def test_a_file_that_is_gone_is_a_gap(tmp_path: Path) -> None:
    a_network(tmp_path)
    (path,) = tmp_path.glob("passages/broker=2/*/*.parquet")
    path.unlink()
    trail = Trail(tmp_path)
    assert [gap.reason for gap in trail.findings(2, ID).gaps] == [f"a file cannot be read: {path.name}"]
    assert str(path) in trail.warnings[0]
    assert trail.trace(ID).journey.verdict is Verdict.RECORDED_IN_PART


@pytest.mark.parametrize(("key", "value"), [("version", "1"), ("version", "3"), ("table", "shed"), ("broker", "9")])
def test_files_of_other_versions_tables_or_brokers_are_left_out(tmp_path: Path, key: str, value: str) -> None:
    writer = TrailWriter(tmp_path, 4, NOON - HOUR)
    ((day, rows),) = by_date("passages", tabulate(everything())["passages"])
    file = write_file(tmp_path, "passages", 4, day, "foreign", rows)
    meta = {b"postroad.version": b"2", b"postroad.table": b"passages", b"postroad.broker": b"4"}
    meta[b"postroad." + key.encode()] = value.encode()
    pq.write_table(rows.replace_schema_metadata(meta), tmp_path / file.path)
    writer.ledger.append(NOON, [describe_file(tmp_path, file.path, "passages", day)])
    trail = Trail(tmp_path)
    assert trail.findings(4, ID).accepted is None
    assert trail.findings(4, ID).gaps
    assert value in trail.warnings[0]


def test_files_that_no_manifest_names_do_not_count(tmp_path: Path) -> None:
    a_network(tmp_path)
    ((day, rows),) = by_date("passages", tabulate([passages([(1, NOON + 1, 7, 0)])])["passages"])
    write_file(tmp_path, "passages", 1, day, "not-committed", rows)
    (tmp_path / "manifests/broker=1/000000000099.json.77.tmp").write_bytes(os.urandom(9))
    trail = Trail(tmp_path)
    assert trail.findings(1, MessageId(7, 1, NOON + 1, 0)).accepted is None
    assert trail.warnings == []
