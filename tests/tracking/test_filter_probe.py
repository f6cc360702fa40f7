"""How sure a hit is."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.filters import BloomFilter, FilterError, hash_ids
from postroad.messages import MessageId
from postroad.tracking import FilterSegment, HistoryKind, evidence_of, probe

HERE, TIME = 3, 1_700_000_000_000
WANTED = MessageId(1, HERE, TIME, 0)


def segment_of(
    entries: int, *, holds: bool, opened: int = 0, m: int = 1024, singles: tuple[int, ...] = ()
) -> FilterSegment:
    made = BloomFilter(m, 3)
    ids = np.array([(MessageId(2, HERE, TIME, n)).head for n in range(entries)], np.uint64)
    made.add(hash_ids(np.stack([ids, np.arange(entries, dtype=np.uint64)], axis=1)))
    if holds:
        made.add(hash_ids(np.array([(WANTED.head, WANTED.tail)], np.uint64)))
    window = (1, 0) if singles else (TIME - 5, TIME + 5)
    return FilterSegment(
        HistoryKind.ACCEPTED,
        HERE,
        0,
        *window,
        np.array(singles, np.int64),
        opened,
        opened + 10,
        entries,
        entries,
        "bloom",
        m,
        3,
        0,
        made.ones,
        bytes(made),
    )


def test_doubt_is_that_of_the_whole_matching_set() -> None:
    segments = [segment_of(150, holds=True), segment_of(200, holds=False, opened=1)]
    # The share of bits that are set, for each of three positions.
    rates = [(one.ones / one.bits) ** one.hashes for one in segments]
    evidence = evidence_of(segments, WANTED)
    (hit,) = evidence.hits(HistoryKind.ACCEPTED)
    assert hit.doubt == pytest.approx(1 - (1 - rates[0]) * (1 - rates[1]))
    assert (hit.number, hit.time_from, hit.time_to) == (0, TIME - 5, TIME + 5)
    assert evidence.probes == 2


def test_filters_of_other_times_and_origins_are_not_asked() -> None:
    far = segment_of(10, holds=True)._replace(time_from=TIME + 1, time_to=TIME + 9)
    foreign = segment_of(10, holds=True)._replace(origin=4)
    evidence = evidence_of([far, foreign], WANTED)
    assert (evidence.probes, evidence.hits(HistoryKind.ACCEPTED)) == (0, ())
    assert evidence.findings(HERE).accepted is None


def test_single_times_are_found_and_tell_no_window() -> None:
    (hit,) = evidence_of([segment_of(1, holds=True, singles=(TIME - 9, TIME))], WANTED).hits(HistoryKind.ACCEPTED)
    assert (hit.time_from, hit.time_to) == (TIME, TIME)
    word = hash_ids(np.array([(WANTED.head, WANTED.tail)] * 2, np.uint64))
    asked = probe(segment_of(1, holds=True, singles=(TIME,)), word, np.array([TIME, TIME + 1]))
    assert asked.tolist() == [True, False]


def test_unlike_filters_opened_at_one_time_are_both_asked() -> None:
    segments = [segment_of(20, holds=True), segment_of(90, holds=False, m=2048)]
    assert evidence_of(segments, WANTED).hits(HistoryKind.ACCEPTED)


def test_damaged_and_unknown_filters_are_named() -> None:
    with pytest.raises(FilterError, match="words do not make"):
        evidence_of([segment_of(5, holds=True)._replace(data=bytes(8))], WANTED)
    with pytest.raises(FilterError, match="'cuckoo'"):
        evidence_of([segment_of(5, holds=True)._replace(method="cuckoo")], WANTED)
