"""The filters that brokers would have sealed for a slice: the same keys and shapes as their recorders use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.filters import TABLE_2, BloomFilter, derived_keys, hash_ids, mix64
from postroad.messages.id_columns import id_words
from postroad.tracking import FilterSegment, HistoryKind, HistorySettings
from postroad.tracking.history import History, HistoryName
from postroad.tracking.history_seal import seal_history

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from postroad.lab.trails.scale import Scale
    from postroad.tracking import Lists, Passages

    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]

__all__ = ["BLOOM_SHAPE", "filters_of"]

# The smaller of the paper's buffers: a history of one origin has about a thousand ids a minute here.
BLOOM_SHAPE = TABLE_2["10K 99.999%"]
_SETTINGS = HistorySettings()


def filters_of(passages: Passages, broker: int, scale: Scale, opened: int, sealed: int) -> Iterator[FilterSegment]:
    """Yield the filters of what passed a broker in a slice; one per origin and kind of history, or more if full."""
    hashes = hash_ids(id_words(passages.origin, passages.time, passages.publisher, passages.counter))
    rows = np.arange(len(hashes))
    home = passages.origin == broker
    came = np.flatnonzero(~home)
    histories = [
        (HistoryKind.ACCEPTED, rows[home], hashes[home]),
        (HistoryKind.ARRIVED, came, hashes[came]),
        (HistoryKind.ARRIVED_FROM, came, _derived(hashes[came], passages.arrived_from[came])),
        (HistoryKind.RELAYED_SET, *_in_sets(hashes, passages.relayed_to))
        if scale.relay_keys == "sets"
        else (HistoryKind.RELAYED, *_listed(hashes, passages.relayed_to)),
        (HistoryKind.DELIVERED, *_listed(hashes, passages.delivered)),
        (HistoryKind.ACKNOWLEDGED, *_listed(hashes, passages.acknowledged)),
    ]
    for kind, row, keys in histories:
        if not len(row):
            continue
        origins = passages.origin[row]
        bounds = np.flatnonzero(np.diff(origins, prepend=-1))
        for start, end in zip(bounds, [*bounds[1:], len(row)][: len(bounds)], strict=True):
            name = HistoryName(int(kind), int(origins[start]), 0)
            times = passages.time[row[start:end]]
            yield from _sealed(name, keys[start:end], times, scale.recorder, opened, sealed)


def _listed(hashes: Words, lists: Lists) -> tuple[Ints, Words]:
    row = np.repeat(np.arange(len(hashes)), np.diff(lists.offsets))
    return row, _derived(hashes[row], lists.numbers)


def _in_sets(hashes: Words, lists: Lists) -> tuple[Ints, Words]:
    """Return one key for all numbers of a list together: the exclusive or of the mixed numbers."""
    row = np.flatnonzero(np.diff(lists.offsets))
    if not len(row):
        return row, hashes[:0]
    joined = np.bitwise_xor.reduceat(_mixed(lists.numbers), lists.offsets[row])
    return row, derived_keys(hashes[row] ^ joined ^ np.uint64(mix64(0)), 0)


def _mixed(numbers: Ints) -> Words:
    known, place = np.unique(numbers, return_inverse=True)
    mixed: Words = np.array([mix64(int(number)) for number in known], np.uint64)[place]
    return mixed


def _derived(hashes: Words, numbers: Ints) -> Words:
    """Return the keys (id, number) of all pairs in one call: mix64(hash xor mix64(number))."""
    return derived_keys(hashes ^ _mixed(numbers) ^ np.uint64(mix64(0)), 0) if len(numbers) else hashes


def _sealed(
    name: HistoryName, keys: Words, times: Ints, recorder: str, opened: int, sealed: int
) -> Iterator[FilterSegment]:
    if recorder == "sealed":
        history = History(name, 0, opened, opened, len(keys), int(times.min()), int(times.max()))
        yield seal_history(history, keys, _SETTINGS, sealed)
        return
    shape = BLOOM_SHAPE
    for start in range(0, len(keys), shape.n):
        some, when = keys[start : start + shape.n], times[start : start + shape.n]
        bloom = BloomFilter(shape.m, shape.k)
        bloom.add(some)
        yield FilterSegment(
            *name, int(when.min()), int(when.max()), np.empty(0, np.int64), opened + start, sealed, len(some), shape.n,
            "bloom", shape.m, shape.k, 0, bloom.ones, bytes(bloom),
        )  # fmt: skip
