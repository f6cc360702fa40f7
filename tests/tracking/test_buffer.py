"""The shared buffer of keys against a dictionary of lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.tracking.buffer import KeyBuffer

CHUNK = 16
runs = st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=40)), max_size=12)


def put(buffer: KeyBuffer, slot: int, keys: list[int]) -> None:
    while keys:
        room = buffer.room(len(keys))
        room[:] = np.array(keys[: len(room)], np.uint64)
        buffer.filled(slot, len(room))
        keys = keys[len(room) :]


def grouped(buffer: KeyBuffer, truth: dict[int, list[int]]) -> dict[int, list[int]]:
    sizes = {slot: len(keys) for slot, keys in truth.items()}
    return {slot: keys.tolist() for slot, keys in buffer.extract().grouped(sizes).items()}


@given(runs, st.sets(st.integers(1, 6)), runs)
@settings(max_examples=150)
def test_buffer_gives_back_the_keys_of_each_history(
    first: list[tuple[int, list[int]]], kept: set[int], then: list[tuple[int, list[int]]]
) -> None:
    buffer, truth = KeyBuffer(CHUNK), dict[int, list[int]]()
    for slot, keys in first:
        put(buffer, slot, keys)
        truth.setdefault(slot, []).extend(keys)
    assert grouped(buffer, truth) == truth
    early, before = buffer.extract(), {slot: list(keys) for slot, keys in truth.items()}
    truth = {slot: keys for slot, keys in truth.items() if slot in kept}
    buffer.keep_only({slot: len(keys) for slot, keys in truth.items()})
    for slot, keys in then:
        put(buffer, slot, keys)
        truth.setdefault(slot, []).extend(keys)
    assert grouped(buffer, truth) == truth
    assert buffer.entries == sum(map(len, truth.values()))
    # What a job took along is as it was.
    sizes = {slot: len(keys) for slot, keys in before.items()}
    assert {slot: keys.tolist() for slot, keys in early.grouped(sizes).items()} == before


@given(runs, st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_buffer_finds_wanted_keys_with_their_histories(first: list[tuple[int, list[int]]], others: list[int]) -> None:
    buffer = KeyBuffer(CHUNK)
    for slot, keys in first:
        put(buffer, slot, keys)
    wanted = [keys[0] for _, keys in first] + others + [0]
    expected = sorted((slot, key) for slot, keys in first for key in keys if key in wanted)
    assert sorted(buffer.extract().search(np.array(wanted, np.uint64), 10_000)) == expected
    assert len(buffer.extract().search(np.array(wanted, np.uint64), 1)) <= 1
