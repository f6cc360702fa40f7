"""Ids that came as runs are in the same filters as ids that came one by one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.filters import Shape, derived_keys, hash_ids, mix64
from postroad.messages import Batch, MessageId
from postroad.tracking import (
    BloomRecorder,
    FilterSegment,
    HistoryKind,
    HistorySettings,
    SealedRecorder,
    histories,
    probe,
)
from postroad.tracking.buffer import CHUNK_KEYS
from postroad.tracking.id_runs import LEAST_RUN, IdRuns, is_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.tracking import Segment
    from postroad.tracking.histories import HistoryRecorder

HERE, START = 3, 1_700_000_000_000
SUBSCRIPTION = 7
RECORDERS: dict[str, type[HistoryRecorder]] = {"bloom": BloomRecorder, "sealed": SealedRecorder}


def run(time: int, counter: int, size: int) -> NDArray[np.uint64]:
    first = MessageId(9, HERE, time, counter)
    ids = np.empty((size, 2), np.uint64)
    ids[:, 0] = first.head
    ids[:, 1] = np.uint64(first.tail) + np.arange(size, dtype=np.uint64)
    return ids


def batch_of(ids: NDArray[np.uint64], known: bool = False) -> Batch:
    batch = Batch.build([("t",)] * len(ids))
    batch.ids[:] = ids
    if known:
        batch.run = ids.item(0, 0), ids.item(0, 1)
    return batch


def recorder_of(name: str, **more: Any) -> HistoryRecorder:
    chosen = {"shape": Shape(4096, 5, 50), "capacity": 50, "interval": 100, "linger": 0, "tolerance": 20, **more}
    recorder = RECORDERS[name](HERE, HistorySettings(**chosen), START)
    recorder.subscribed(SUBSCRIPTION, "ann", "t", "", START)
    return recorder


def filters_of(recorder: HistoryRecorder) -> list[FilterSegment]:
    made: list[Segment] = []
    for job in recorder.due(START + 50, force=True):
        made += job.make()
    return [one for one in made if isinstance(one, FilterSegment)]


def tell(
    recorder: HistoryRecorder,
    pieces: list[NDArray[np.uint64]],
    together: bool,
    known: bool = False,
    size: int = LEAST_RUN - 1,
) -> None:
    """The same ids in the same order, as whole batches, perhaps known as runs, or in parts of a size."""
    for ids in pieces:
        parts = [ids] if together else np.array_split(ids, range(size, len(ids), size))
        for part in parts:
            recorder.accepted(batch_of(part, known), START)
        for part in parts:
            recorder.delivered(batch_of(part, known), np.arange(len(part), dtype=np.int32), SUBSCRIPTION, START)


pieces = st.lists(
    st.tuples(st.sampled_from([START, START + 1, START - 40]), st.integers(1, 120)), min_size=1, max_size=5
).map(lambda drawn: [run(time, 1_000 * place, size) for place, (time, size) in enumerate(drawn)])


@pytest.mark.parametrize("name", RECORDERS)
@given(pieces, st.booleans())
def test_filters_are_the_same_whether_ids_come_as_runs_or_in_small_parts(
    name: str, given_ids: list[NDArray[np.uint64]], known: bool
) -> None:
    as_runs, in_parts = recorder_of(name), recorder_of(name)
    tell(as_runs, given_ids, together=True, known=known)
    tell(in_parts, given_ids, together=False)
    for ids in given_ids:
        for head, tail in (ids[0].tolist(), ids[-1].tolist()):
            identity = MessageId.from_bytes((head << 64 | tail).to_bytes(16, "big"))
            found = as_runs.findings(identity, START)
            assert found.accepted is not None
            assert SUBSCRIPTION in {hit.number for hit in found.delivered}
    assert as_runs.statistics().recorded == in_parts.statistics().recorded == 2 * sum(map(len, given_ids))
    filters, expected = filters_of(as_runs), filters_of(in_parts)

    def facts(one: FilterSegment) -> tuple[object, ...]:
        # A history closes at the same id; keys stand in another order in it, which moves the bits of a ribbon only.
        return one.kind, one.time_from, one.time_to, one.singles.tolist(), one.entries, one.bits, one.ones

    assert [facts(one) for one in filters] == [facts(one) for one in expected]
    if name == "bloom":
        assert [one.data for one in filters] == [one.data for one in expected]
    told = np.concatenate(given_ids)
    times = (told[:, 1] >> np.uint64(16)).astype(np.int64)
    for kind in (HistoryKind.ACCEPTED, HistoryKind.DELIVERED):
        hits = [probe(one, hash_ids(told), times, SUBSCRIPTION) for one in filters if one.kind == kind]
        assert np.any(hits, axis=0).all()


@pytest.mark.parametrize("name", RECORDERS)
@given(pieces, st.integers(1, 3), st.integers(1, 40))
def test_filters_are_the_same_whether_ids_come_in_ones_and_twos_or_in_small_parts(
    name: str, given_ids: list[NDArray[np.uint64]], size: int, hashed_after: int
) -> None:
    one_by_one, in_parts = recorder_of(name), recorder_of(name)
    with patch.object(histories, "_MANY_RUNS", hashed_after):
        tell(one_by_one, given_ids, together=False, known=True, size=size)
    tell(in_parts, given_ids, together=False)
    for head, tail in (ids[-1].tolist() for ids in given_ids):
        found = one_by_one.findings(MessageId.from_bytes((head << 64 | tail).to_bytes(16, "big")), START)
        assert found.accepted is not None
        assert SUBSCRIPTION in {hit.number for hit in found.delivered}
    filters, expected = filters_of(one_by_one), filters_of(in_parts)
    assert [(one.kind, one.entries, one.bits, one.ones) for one in filters] == [
        (one.kind, one.entries, one.bits, one.ones) for one in expected
    ]
    told = np.concatenate(given_ids)
    times = (told[:, 1] >> np.uint64(16)).astype(np.int64)
    for kind in (HistoryKind.ACCEPTED, HistoryKind.DELIVERED):
        hits = [probe(one, hash_ids(told), times, SUBSCRIPTION) for one in filters if one.kind == kind]
        assert np.any(hits, axis=0).all()


def test_messages_one_by_one_take_the_memory_of_their_hashes() -> None:
    recorder, many = recorder_of("sealed", capacity=1 << 20, budget=1 << 30), 20_000
    ids = run(START, 0, many)
    ids[:, 1] = ids[::-1, 1].copy()
    tell(recorder, [ids], together=False, size=1)
    hashes = 2 * 8 * many
    assert recorder.statistics().held_bytes < hashes + 8 * CHUNK_KEYS + 50_000, "some runs, and the end of a chunk"


def test_a_history_that_is_stored_is_forgotten() -> None:
    recorder = recorder_of("sealed", capacity=1_000)
    tell(recorder, [run(START, 0, 20)], together=False, size=1)
    published, delivered = recorder._open.values()
    (job,) = recorder.due(START + 200)
    job.make()
    recorder.release(job.number)
    del job
    unused = 2  # the name here, and the argument
    assert sys.getrefcount(published) == sys.getrefcount(delivered) == unused


def test_an_id_is_found_in_runs_until_their_job_is_released() -> None:
    for name in RECORDERS:
        recorder = recorder_of(name, capacity=1_000, shape=Shape(1 << 16, 10, 1_000))
        tell(recorder, [run(START, 0, 200)], together=True)
        (job,) = recorder.due(START + 200)
        job.make()
        inside, outside = MessageId(9, HERE, START, 199), MessageId(9, HERE, START, 200)
        assert [hit.number for hit in recorder.findings(inside, START).delivered] == [SUBSCRIPTION]
        assert recorder.findings(outside, START).accepted is None
        recorder.release(job.number)
        assert recorder.findings(inside, START).accepted is None


def test_many_runs_are_handed_over_before_their_time() -> None:
    recorder = recorder_of("sealed", capacity=100, linger=90, budget=8_000)
    tell(recorder, [run(START, 0, 900)], together=True)
    assert recorder.due(START + 1), "900 ids of each kind are 14,400 bytes of hashes"


def test_runs_are_told_from_what_is_none() -> None:
    ids = run(START, 65_530, 20)
    rows = np.arange(20, dtype=np.int32)
    assert is_run(ids, rows)
    assert is_run(ids, rows.astype(np.int64)[3:9])
    assert not is_run(ids, rows[::2].copy())
    assert not is_run(ids, rows[::-1].copy())
    ids[4, 0] += np.uint64(1)
    assert not is_run(ids, rows)


def test_keys_of_runs_are_those_of_their_ids() -> None:
    first, second = run(START, 0, 300), run(START, 500, 20)
    plain, pairs = IdRuns(derived=False), IdRuns(derived=True)
    for ids, number in ((first, 7), (second, 8)):
        plain.add(int(ids[0, 0]), int(ids[0, 1]), len(ids), 0)  # type: ignore[arg-type]
        pairs.add(int(ids[0, 0]), int(ids[0, 1]), len(ids), mix64(number))  # type: ignore[arg-type]
    words = [hash_ids(first), hash_ids(second)]
    assert plain.keys().tolist() == np.concatenate(words).tolist()
    expected = np.concatenate([derived_keys(words[0], 7), derived_keys(words[1], 8)])
    assert pairs.keys().tolist() == expected.tolist()
    assert list(pairs.keys_of(*second[3].tolist())) == [int(expected[303])]
    assert list(plain.keys_of(int(first[0, 0]), int(first[0, 1]) - 1)) == []
