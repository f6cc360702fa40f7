"""Spans of the states under which rows were accepted, beside a list that has the state of every row."""

from __future__ import annotations

import random

import numpy as np
import pytest

from postroad.broker import accepted_states
from postroad.broker.accepted_states import AcceptedStates
from postroad.broker.channel_items import ANY_STATE


class Rows:
    """Rows that are accepted, and go from the front."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.states = AcceptedStates([(0, 1, 1)])
        self.state_of: dict[int, int] = {}
        self.place, self.state = 0, 1

    @property
    def first(self) -> int | None:
        return min(self.state_of, default=None)

    @property
    def there(self) -> tuple[int, int] | None:
        return (min(self.state_of), max(self.state_of)) if self.state_of else None

    def accept(self) -> None:
        for _ in range(self.random.randint(0, 3)):
            self.state_of[self.place] = self.state
            self.place += self.random.randint(1, 3)

    def change(self) -> None:
        self.state += self.random.randint(1, 3)
        self.place += self.random.randint(0, 2)
        self.states.begin(self.place, self.state, self.there)

    def go(self) -> None:
        for place in list(self.state_of)[: self.random.randint(0, 6)]:
            del self.state_of[place]
        self.states.end_before(self.first)

    def restart(self) -> None:
        self.states = AcceptedStates(self.states.spans, self.place)

    def spans(self) -> dict[int, tuple[int, int]]:
        places = np.array(list(self.state_of), np.int64)
        return {
            place: (span.oldest, span.newest)
            for part, span in self.states.divide(places)
            for place in places[part].tolist()
        }


@pytest.mark.parametrize("seed", range(50))
def test_each_row_has_its_state_however_often_states_change_and_rows_go(seed: int) -> None:
    rows = Rows(seed)
    for _ in range(200):
        getattr(rows, rows.random.choice(["accept", "accept", "change", "go", "restart"]))()
        if rows.state_of:
            assert rows.spans() == {place: (state, state) for place, state in rows.state_of.items()}
        assert rows.states.newest == rows.state
        assert rows.states.oldest <= min(rows.state_of.values(), default=rows.state)
        if not rows.state_of:
            rows.states.end_before(None)
            assert rows.states.oldest == rows.state


@pytest.mark.parametrize("seed", range(50))
def test_rows_of_more_spans_than_are_kept_count_for_the_states_of_their_neighbours_too(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepted_states, "MAX_SPANS", 4)
    rows = Rows(seed)
    for _ in range(200):
        getattr(rows, rows.random.choice(["accept", "accept", "change", "change", "go", "restart"]))()
        assert len(rows.states.spans) <= 4
        spans = rows.spans() if rows.state_of else {}
        assert all(spans[place][0] <= state <= spans[place][1] for place, state in rows.state_of.items())
        # What is accepted now is never among them.
        last = [spans[place] for place, state in rows.state_of.items() if state == rows.state]
        assert all(newest == rows.state for _, newest in last)
        assert rows.states.newest == rows.state


def test_states_under_which_nothing_is_accepted_leave_no_span() -> None:
    states = AcceptedStates([(0, 1, 1)])
    for state in range(2, 100):
        states.begin(10 * state, state, (3, 5))
    assert [each.newest for each in states.spans] == [1, 99]


def test_rows_of_a_store_that_says_no_states_may_be_of_any() -> None:
    states = AcceptedStates()
    states.begin(10, 7, (5, 9))
    ((_, before), (_, after)) = states.divide(np.array([5, 9, 10]))
    assert (before.oldest, before.newest) == (0, ANY_STATE)
    assert (after.oldest, after.newest) == (7, 7)


def test_rows_in_place_of_those_that_a_crash_has_lost_are_of_the_last_state() -> None:
    states = AcceptedStates([(0, 1, 1), (20, 2, 2), (30, 3, 3)], end=15)
    ((_, before), (_, after)) = states.divide(np.array([14, 15]))
    assert (before.newest, after.oldest) == (1, 3)


@pytest.mark.parametrize("seed", range(50))
def test_rows_accepted_before_numbers_fall_may_be_of_any_state_since_then(seed: int) -> None:
    rows = Rows(seed)
    for _ in range(200):
        getattr(rows, rows.random.choice(["accept", "accept", "change", "go", "restart"]))()
        if rows.random.random() < 0.05:
            # Their broker has lost its store, and its clock is behind.
            rows.state = rows.random.randint(0, rows.state)
            rows.states.begin(rows.place, rows.state, rows.there)
        spans = rows.spans() if rows.state_of else {}
        assert all(
            oldest <= state <= newest
            for (oldest, newest), state in zip(spans.values(), rows.state_of.values(), strict=True)
        )
        assert rows.states.oldest == min([rows.states.newest, *(oldest for oldest, _ in spans.values())])
        assert rows.states.newest == rows.state
