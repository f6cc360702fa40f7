"""Sets of places against sets of Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from postroad.store.row_sets import RowSet, Runs, intersect, runs_of, subtract, unite

numbers = st.sets(st.integers(0, 60)).map(sorted)


def runs(places: list[int]) -> Runs:
    return runs_of(np.array(places, np.int64))


def listed(found: Runs) -> list[int]:
    # Sorted, apart, and none empty: what every function may rely on.
    assert (found.ends > found.starts).all()
    assert (found.starts[1:] > found.ends[:-1]).all()
    places: list[int] = found.places().tolist()
    assert found.size == len(places)
    return places


@given(numbers, numbers)
def test_runs_are_united_subtracted_and_intersected_as_sets_are(one: list[int], other: list[int]) -> None:
    assert listed(runs(one)) == one
    assert listed(unite(runs(one), runs(other))) == sorted({*one, *other})
    assert listed(subtract(runs(one), runs(other))) == sorted(set(one) - set(other))
    assert listed(intersect(runs(one), runs(other))) == sorted(set(one) & set(other))
    assert runs(one).contains(np.arange(61)).tolist() == [place in one for place in range(61)]


changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), numbers),
        st.tuples(st.just("remove"), numbers),
        st.tuples(st.just("pull"), st.tuples(st.integers(0, 30), st.integers(0, 70))),
        st.tuples(st.just("append"), numbers),
    ),
    max_size=12,
)


@given(numbers, changes)
def test_row_set_changes_as_a_set_does(begin: list[int], steps: list[tuple[str, Any]]) -> None:
    rows, twin = RowSet(runs(begin)), set(begin)
    for name, value in steps:
        if name == "add":
            rows.add(runs(value))
            twin |= set(value)
        elif name == "remove":
            gone = twin & set(value)
            assert rows.remove(runs(value)) == len(gone)
            twin -= gone
        elif name == "pull":
            most, below = value
            front = rows.front(most, below)
            assert listed(front) == sorted(place for place in twin if place < below)[:most]
            rows.drop_front(front)
            twin -= set(listed(front))
        else:
            behind = [place + max(twin, default=0) + 2 for place in value]
            rows.append(runs(behind))
            twin |= set(behind)
        assert listed(rows.runs) == sorted(twin)
        assert len(rows) == len(twin)
        assert rows.first == min(twin, default=-1)
