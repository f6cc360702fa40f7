"""The exact recorder against sets: what it was told is what its rows say, however it was told."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import Batch, MessageId
from postroad.tracking import (
    ADDENDUM,
    HERE,
    ExactRecorder,
    Passages,
    Shed,
    SubscriptionChanges,
    TrackingRecorder,
    exact_book,
)

if TYPE_CHECKING:
    from postroad.tracking import Segment

NOW = 1_700_000_000_000
FIELDS = ("relayed_to", "delivered", "acknowledged", "refused", "queued")

Told = dict[tuple[int, int, int, int], dict[str, set[int]]]


def batch_of(ids: list[MessageId]) -> Batch:
    batch = Batch.build([("t",)] * len(ids))
    batch.ids[:] = [(one.head, one.tail) for one in ids]
    return batch


def rows_of(found: Passages) -> list[dict[str, Any]]:
    columns = [found.origin, found.time, found.publisher, found.counter, found.arrived_from]
    rows = []
    for row, (origin, time, publisher, counter, came) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):  # type: ignore[attr-defined]
        more = {}
        for name in FIELDS:
            lists = getattr(found, name)
            more[name] = lists.numbers[lists.offsets[row] : lists.offsets[row + 1]].tolist()
        rows.append({"key": (origin, time, publisher, counter), "came": came, **more})
    return rows


def union(segments: list[Segment]) -> Told:
    """What rows mean together, by id."""
    told: Told = defaultdict(lambda: defaultdict(set))
    for segment in segments:
        if isinstance(segment, Passages):
            for row in rows_of(segment):
                one = told[row["key"]]
                if row["came"] != ADDENDUM:
                    one["came"].add(row["came"])
                for name in FIELDS:
                    one[name].update(row[name])
    return told


def plain(told: Told) -> dict[Any, Any]:
    return {key: {name: found for name, found in one.items() if found} for key, one in told.items()}


# Few ids, so that the same one comes up again and again; brokers, times and publishers on both sides of a byte and a
# sign, so that a wrong order or width shows.
identities = st.builds(
    MessageId,
    publisher=st.sampled_from([1, 300, 2**32 - 1]),
    broker=st.sampled_from([2, 70_000]),
    time=st.sampled_from([NOW, NOW + 1, NOW + 400]),
    counter=st.sampled_from([0, 65_535]),
)
numbers = st.sampled_from([1, 2, 9, 2**32 - 1])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("in"), st.lists(identities, min_size=1, max_size=6), st.sampled_from([HERE, 5, 6])),
        st.tuples(st.sampled_from(["relayed", "delivered", "queued"]), st.integers(0, 9), st.integers(0, 63), numbers),
        st.tuples(st.just("copied"), st.integers(0, 9), st.integers(1, 63), numbers),
        st.tuples(st.sampled_from(["acknowledged", "refused"]), identities, numbers),
        st.tuples(st.just("seal"), st.booleans()),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(steps)
def test_rows_say_exactly_what_the_recorder_was_told(steps: list[tuple[Any, ...]]) -> None:
    recorder = ExactRecorder(4, NOW)
    truth: Told = defaultdict(lambda: defaultdict(set))
    batches: list[Batch] = []
    segments: list[Segment] = []

    def tell(batch: Batch, rows: Any, name: str, number: int) -> None:
        for head, tail in batch.ids[rows].tolist():
            truth[key_of(MessageId.of(head, tail))][name].add(number)

    for step in steps:
        match step:
            case ("in", ids, came):
                batch = batch_of(ids)
                batches.append(batch)
                tell(batch, np.arange(len(batch)), "came", came)
                if came == HERE:
                    recorder.accepted(batch, NOW)
                else:
                    recorder.arrived(batch, came, NOW)
            case ("relayed" | "delivered" | "queued" | "copied" as what, which, mask, number) if batches:
                batch = batches[which % len(batches)]
                rows = np.flatnonzero([mask >> bit & 1 for bit in range(len(batch))]).astype(np.int32)
                name = {"relayed": "relayed_to", "queued": "queued"}.get(what, "delivered")
                tell(batch, rows, name, number)
                if what == "copied":
                    batch, rows = batch.take(rows), np.arange(len(rows), dtype=np.int32)
                getattr(recorder, "delivered" if what == "copied" else what)(batch, rows, number, NOW)
            case ("acknowledged" | "refused" as name, identity, number):
                truth[key_of(identity)][name].add(number)
                words = np.array([[identity.head, identity.tail]], np.uint64)
                recorder.acknowledged(words, number, name == "acknowledged", NOW)
            case ("seal", release):
                segments += stored(recorder, NOW + 1, release)
    for key, one in truth.items():
        if not segments:
            assert_found(recorder, key, one)
    segments += stored(recorder, NOW + 2, True)
    assert plain(union(segments)) == plain(truth)
    for segment in segments:
        if isinstance(segment, Passages):
            assert_tidy(segment)


def key_of(identity: MessageId) -> tuple[int, int, int, int]:
    return (identity.broker, identity.time, identity.publisher, identity.counter)


def stored(recorder: ExactRecorder, now: int, release: bool) -> list[Segment]:
    segments = []
    for job in recorder.due(now, force=True):
        segments += job.make()
        if release:
            recorder.release(job.number)
    return segments


def assert_found(recorder: ExactRecorder, key: tuple[int, int, int, int], one: dict[str, set[int]]) -> None:
    found = recorder.findings(MessageId(key[2], key[0], key[1], key[3]), NOW)
    assert (found.accepted is not None) == (HERE in one["came"])
    assert {hit.number for hit in found.arrived_from} == one["came"] - {HERE}
    assert (found.arrived is not None) == bool(one["came"] - {HERE})
    for name, hits in zip(
        FIELDS, (found.relayed_to, found.delivered, found.acknowledged, found.refused, found.queued), strict=True
    ):
        assert [hit.number for hit in hits] == sorted(one[name])
        assert all(hit.doubt == 0 for hit in hits)


def assert_tidy(found: Passages) -> None:
    """Rows in order, one for each id and neighbour, lists ascending without doubles."""
    rows = rows_of(found)
    keys = [row["key"] for row in rows]
    assert keys == sorted(keys)
    assert len({(row["key"], row["came"]) for row in rows}) == len(rows)
    for row in rows:
        assert row["came"] != ADDENDUM or keys.count(row["key"]) == 1
        for name in FIELDS:
            assert row[name] == sorted(set(row[name]))


def test_more_batches_in_flight_than_are_remembered_are_recorded_all_the_same() -> None:
    recorder = ExactRecorder(4, NOW)
    batches = [batch_of([MessageId(7, 4, NOW + index, row) for row in range(3)]) for index in range(200)]
    for batch in batches:
        recorder.accepted(batch, NOW)
    for batch in batches:
        recorder.delivered(batch, np.array([0, 2], np.int32), 9, NOW)
    (passages,) = (one for one in stored(recorder, NOW + 1, True) if isinstance(one, Passages))
    assert len(passages.time) == 600
    assert [row["delivered"] for row in rows_of(passages)] == [[9], [], [9]] * 200


def test_a_batch_larger_than_a_chunk_and_many_small_ones_keep_their_places() -> None:
    recorder = ExactRecorder(4, NOW)
    large = Batch.build([("t",)] * 70_000)
    large.ids[:, 0] = MessageId(7, 4, NOW, 0).head
    large.ids[:, 1] = np.arange(70_000, dtype=np.uint64) + np.uint64(MessageId(7, 4, NOW, 0).tail)
    small = batch_of([MessageId(9, 4, NOW, 0)])
    for batch in (small, large, small):
        recorder.accepted(batch, NOW)
    recorder.delivered(large, np.array([69_999], np.int32), 1, NOW)
    recorder.relayed(small, np.array([0], np.int32), 2, NOW)
    (passages,) = (one for one in stored(recorder, NOW + 1, True) if isinstance(one, Passages))
    assert len(passages.time) == 70_001
    rows = [row for row in rows_of(passages) if row["delivered"] or row["relayed_to"]]
    assert [row["key"][1:] for row in rows] == [(NOW, 9, 0), (NOW + 1, 7, 69_999 - 65_536)]


@pytest.mark.parametrize("quiet", [True, False])
def test_a_book_is_handed_over_when_it_is_old_even_if_it_is_empty(quiet: bool) -> None:
    recorder = ExactRecorder(4, NOW, persist_ms=1_000)
    if not quiet:
        recorder.accepted(batch_of([MessageId(7, 4, NOW, 0)]), NOW)
    assert recorder.due(NOW + 999) == []
    (job,) = recorder.due(NOW + 1_000)
    assert job.through == NOW + 999
    assert len(job.make()) == (0 if quiet else 1)
    assert recorder.due(NOW + 1_999) == []


def test_the_budget_seals_before_time() -> None:
    recorder = ExactRecorder(4, NOW, budget_bytes=3 << 20)
    batch = Batch.build([("t",)] * 50_000)
    jobs = []
    for turn in range(8):
        batch.ids[:, 1] = np.arange(50_000, dtype=np.uint64) + np.uint64(turn * 50_000)
        recorder.accepted(batch, NOW)
        jobs += recorder.due(NOW + turn)
    assert len(jobs) >= 2
    assert recorder.statistics().early_seals == len(jobs)
    assert recorder.statistics().pending_jobs == len(jobs)
    before = recorder.statistics().held_bytes
    for job in jobs:
        recorder.release(job.number)
    assert recorder.statistics().held_bytes < before / 2


def test_what_went_no_further_and_who_was_there_is_handed_over_too() -> None:
    recorder: TrackingRecorder = ExactRecorder(4, NOW)
    batch = batch_of([MessageId(7, 4, NOW, 0)])
    recorder.subscribed(3, "ann", "news", "", NOW)
    recorder.linked(2, 10, NOW)
    recorder.accepted(batch, NOW)
    recorder.shed(batch, np.array([0], np.int32), 3, "queue full", NOW)
    found = recorder.findings(MessageId(7, 4, NOW, 0), NOW)
    assert [drop.reason for drop in found.dropped] == ["queue full"]
    assert found.neighbours == (2,)
    (job,) = recorder.due(NOW + 1, force=True)
    kinds = {type(segment) for segment in job.make()}
    assert {Passages, Shed, SubscriptionChanges} <= kinds


def test_ids_that_follow_each_other_are_kept_as_runs_and_come_out_as_they_were() -> None:
    recorder = ExactRecorder(4, NOW)
    following = [MessageId(7, 4, NOW + turn, counter) for turn in range(3) for counter in range(20)]
    single = [MessageId(9, 4, NOW, 5)]
    broken = [MessageId(8, 4, NOW, counter) for counter in (1, 2, 3, 4, 5, 6, 7, 8, 10)]
    batches = [following[:20], single, following[20:40], broken, following[40:]]
    for ids in batches:
        batch = batch_of(ids)
        recorder.accepted(batch, NOW)
        recorder.delivered(batch, np.array([0, len(ids) - 1], np.int32), 3, NOW)
    assert recorder.findings(following[39], NOW).delivered[0].number == 3
    assert recorder.findings(following[38], NOW).delivered == ()
    told = union(stored(recorder, NOW + 1, True))
    everything = {(one.broker, one.time, one.publisher, one.counter) for ids in batches for one in ids}
    assert set(told) == everything
    ends = {(one.broker, one.time, one.publisher, one.counter) for ids in batches for one in (ids[0], ids[-1])}
    assert {key for key, one in told.items() if one["delivered"]} == ends


def test_the_memory_of_a_stored_book_is_used_again_without_mixing_them_up() -> None:
    recorder = ExactRecorder(4, NOW)
    for turn in range(4):
        ids = [MessageId(7 + number % 3, 4, NOW + turn, number) for number in range(50)]
        recorder.accepted(batch_of(ids), NOW)
        jobs = recorder.due(NOW + turn + 1, True)
        later = [MessageId(5, 4, NOW + turn, number * 2) for number in range(30)]
        recorder.accepted(batch_of(later), NOW)
        told = union([segment for job in jobs for segment in job.make()])
        for job in jobs:
            recorder.release(job.number)
        before = [MessageId(5, 4, NOW + turn - 1, number * 2) for number in range(30)] if turn else []
        assert set(told) == {(one.broker, one.time, one.publisher, one.counter) for one in [*ids, *before]}


def test_what_waits_to_be_stored_seals_no_further_book() -> None:
    recorder = ExactRecorder(4, NOW, 60_000, 1 << 16)
    batch = batch_of([MessageId(7, 4, NOW, row) for row in range(20)])
    for _ in range(400):
        recorder.shed(batch, np.arange(20), 3, "full", NOW)
    assert [len(recorder.due(NOW + 250 * look)) for look in range(1, 5)] == [1, 0, 0, 0]


def test_a_book_is_handed_over_at_once_when_the_clock_was_set_back() -> None:
    recorder = ExactRecorder(4, NOW, 60_000)
    assert len(recorder.due(NOW - 3_600_000)) == 1
    assert [len(recorder.due(NOW - 3_600_000 + ms)) for ms in (59_999, 60_000)] == [0, 1]


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.booleans(), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=12
    )
)
def test_a_question_is_answered_from_runs_and_copies_without_laying_them_out(
    steps: list[tuple[int, bool, int, int]],
) -> None:
    told: dict[MessageId, list[tuple[int, int]]] = defaultdict(list)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_book, "_CHUNK_ROWS", 8)
        book = exact_book.Book(NOW)
        kept = []
        for size, follow, arrived_from, first in steps:
            ids = [MessageId(7, 4, NOW, first + (row if follow else row * row % 11)) for row in range(size)]
            batch = batch_of(ids) if ids else Batch.build([("t",)]).take(np.zeros(0, np.int64))
            kept.append(batch)
            book.take(batch.ids, arrived_from)
            book.enter(batch.ids, np.arange(0, size, 2), exact_book.DELIVERED, 3 + arrived_from)
            for row, one in enumerate(ids):
                told[one].append((-1, arrived_from))
                if row % 2 == 0:
                    told[one].append((exact_book.DELIVERED, 3 + arrived_from))
        patch.delattr(exact_book.Book, "ids")
        for counter in range(20):
            one = MessageId(7, 4, NOW, counter)
            assert set(book.about(one.head, one.tail)) == set(told[one])
