"""Partitioning against sets of Python integers."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.messages import Batch
from postroad.messages.columns import BROADCAST, ENVELOPE_COLUMNS, FLAGS, HOP_LIMIT
from postroad.routing import Destinations, RoutingError, partition
from postroad.routing.destinations import bits_of, fitted
from postroad.routing.envelopes import all_may_go_on, any_broadcast, arrived
from postroad.routing.partition import OUT, counted, leads_beyond, part, rows_for

numbers = st.frozensets(st.integers(1, 200), max_size=8)


@given(st.lists(numbers, max_size=12))
def test_destinations_keep_the_numbers_of_each_row(sets: list[frozenset[int]]) -> None:
    destinations = Destinations.of(sets)
    assert [destinations.numbers(row) for row in range(len(sets))] == [sorted(one) for one in sets]
    assert len(destinations.sets) == len(set(sets))


@given(
    st.lists(numbers, min_size=1, max_size=12),
    st.lists(st.integers(0, 3), min_size=201, max_size=201),
    st.data(),
)
def test_partition_hands_each_destination_to_its_link(
    sets: list[frozenset[int]], link_of: list[int], data: st.DataObject
) -> None:
    destinations = Destinations.of(sets)
    out = data.draw(st.sets(st.integers(0, len(sets) - 1)))
    destinations.lines[sorted(out)] = OUT
    whole = data.draw(st.frozensets(st.sampled_from(sorted(set(sets), key=sorted)), max_size=2))
    everywhere = np.zeros(len(destinations.sets), np.bool_)
    for row, one in enumerate(sets):
        if one in whole and row not in out:
            everywhere[destinations.lines[row]] = True
    skipped = data.draw(st.integers(-1, 3))
    # Link 0 leads nowhere: its destinations are in no mask.
    masks = np.stack([bits_of([d for d, at in enumerate(link_of) if at == link and link], 4) for link in range(4)])

    found: dict[tuple[int, int], list[int]] = {}
    for link, rows, parts in partition(destinations, masks, everywhere, skipped):
        parts.checked(len(rows))
        assert len({tuple(line) for line in parts.sets.tolist()}) == len(parts.sets)
        assert rows.tolist() == sorted(rows.tolist())
        found.update({(link, row): parts.numbers(place) for place, row in enumerate(rows.tolist())})

    expected: dict[tuple[int, int], list[int]] = {}
    for row, one in enumerate(sets):
        if row in out:
            continue
        for link in range(4):
            there = sorted(number for number in one if link_of[number] == link and link)
            if everywhere[destinations.lines[row]]:
                if link != skipped:
                    expected[link, row] = []
                elif there:
                    expected[link, row] = there
            elif there:
                expected[link, row] = there
    assert found == expected


@given(st.lists(numbers, min_size=1, max_size=12), numbers)
def test_part_and_count_see_only_the_mask(sets: list[frozenset[int]], mask: frozenset[int]) -> None:
    destinations = Destinations.of(sets)
    bits = bits_of(mask, 4)
    rows, parts = part(destinations, bits)
    within = {row: sorted(one & mask) for row, one in enumerate(sets) if one & mask}
    assert {row: parts.numbers(place) for place, row in enumerate(rows.tolist())} == within
    assert counted(destinations, bits)[destinations.lines].tolist() == [len(one & mask) for one in sets]


def test_sets_are_cut_and_filled_up() -> None:
    bits = bits_of([1, 70], 2)
    assert fitted(fitted(bits, 3), 2).tolist() == bits.tolist()
    assert fitted(bits, 1).tolist() == [2]
    assert bits_of([500], 2).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("sets", "lines", "said"),
    [
        (np.zeros((1, 1), np.uint64), np.zeros(2, np.int64), "2 lines for 3 rows"),
        (np.zeros((1, 1), np.uint64), np.array([0, 0, 1]), "outside the 1 sets"),
        (np.zeros((1, 1), np.uint64), np.array([0, 0, -1]), "outside the 1 sets"),
        (np.zeros((1, 1025), np.uint64), np.zeros(3, np.int64), "sets of 1025 words"),
    ],
)
def test_destinations_that_do_not_fit_their_batch_are_refused(sets: np.ndarray, lines: np.ndarray, said: str) -> None:
    with pytest.raises(RoutingError, match=said):
        Destinations(sets, lines).checked(3)


def test_links_taken_in_several_turns_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    destinations = Destinations.of([[1, 2, 70], [2, 3], [1, 2, 70]])
    masks = np.stack([bits_of([number], 2) for number in (1, 2, 3, 70)])
    everywhere = np.zeros(2, np.bool_)

    def found() -> list[tuple[int, list[int], list[list[int]]]]:
        return [
            (link, rows.tolist(), [parts.numbers(row) for row in range(len(rows))])
            for link, rows, parts in partition(destinations, masks, everywhere)
        ]

    at_once = found()
    # By its name: as an attribute of the room, `partition` is the function.
    monkeypatch.setattr(importlib.import_module("postroad.routing.partition"), "_WORDS_AT_ONCE", 1)
    assert found() == at_once
    assert at_once[1] == (1, [0, 1, 2], [[2], [2], [2]])


@given(st.lists(st.tuples(numbers, st.booleans()), max_size=12), st.integers(1, 300))
def test_rows_for_a_broker_are_those_that_name_it_and_those_for_all(
    rows: list[tuple[frozenset[int], bool]], number: int
) -> None:
    envelopes = np.zeros((len(rows), ENVELOPE_COLUMNS), np.int64)
    envelopes[:, FLAGS] = [BROADCAST * everywhere for _, everywhere in rows]
    found = rows_for(Destinations.of([one for one, _ in rows]), envelopes, number)
    assert found.tolist() == [row for row, (one, everywhere) in enumerate(rows) if number in one or everywhere]
    assert any_broadcast(envelopes) == any(everywhere for _, everywhere in rows)


@given(st.lists(numbers, max_size=12), numbers, st.integers(1, 4), st.integers(1, 300))
def test_sets_lead_beyond_if_they_name_a_broker_out_of_reach(
    sets: list[frozenset[int]], within_reach: frozenset[int], words: int, number: int
) -> None:
    destinations = Destinations.of(sets)
    reached = {one for one in within_reach if one < 64 * words}
    beyond = any(one - reached - {number} for one in sets)
    assert leads_beyond(destinations.sets, bits_of(reached, words), number) == beyond


def test_hop_limit_of_a_row_that_arrived_is_never_below_zero() -> None:
    batch = Batch.build([("a", {}, (), b"")] * 3)
    batch.envelopes[:, HOP_LIMIT] = [0, 1, 2]
    assert arrived(batch).envelopes[:, HOP_LIMIT].tolist() == [0, 0, 1]


@pytest.mark.parametrize(("limits", "able"), [([], True), ([1, 5], True), ([1, 0], False), ([-1], False)])
def test_all_may_go_on_while_every_hop_limit_is_above_zero(limits: list[int], able: bool) -> None:
    envelopes = np.zeros((len(limits), ENVELOPE_COLUMNS), np.int64)
    envelopes[:, HOP_LIMIT] = limits
    assert all_may_go_on(envelopes) is able
