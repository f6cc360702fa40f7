"""Long lists of encoded predicates are read, laid out and merged a step at a time, with the same result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.broker import interests as interests_module
from postroad.broker.interests import Interests
from postroad.matching import SubscriptionIndex
from postroad.matching.encoding import (
    EncodedPredicates,
    EncodingError,
    PredicateMatrix,
    Scheme,
    from_bytes,
    from_bytes_in_steps,
    matrix,
    to_bytes,
    wire,
)
from postroad.messages import Batch, Draft
from postroad.routing.contract import Delta

if TYPE_CHECKING:
    from collections.abc import Generator

SCHEME = Scheme.paper(bits=128)
rows = st.sets(st.sets(st.integers(0, 127), max_size=6).map(lambda row: tuple(sorted(row))), max_size=80)


@pytest.fixture(autouse=True, scope="module")
def short_steps() -> Generator[None, None, None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "STEP", 8)
        patch.setattr(matrix, "_STEP", 4)
        patch.setattr(matrix, "_STEP_PLACES", 9)
        patch.setattr(interests_module, "MERGE_STEP", 3)
        yield


def walked(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """What a generator returns, and in how many steps."""
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
        count += 1


@given(rows)
def test_list_read_in_steps_is_the_list(found: set[tuple[int, ...]]) -> None:
    made = EncodedPredicates(SCHEME, found)
    read, steps = walked(from_bytes_in_steps(to_bytes(made)))
    assert read == made
    assert to_bytes(read) == to_bytes(made)
    # Some eight rows or positions in a step, and one row at least.
    assert steps >= sum(map(len, found)) // 8
    assert steps <= 3 + 2 * sum(map(len, found)) // 8 + len(found)


@given(rows.filter(lambda found: len(found) > 1), st.randoms(use_true_random=False))
def test_list_in_another_order_is_refused(found: set[tuple[int, ...]], random: Any) -> None:
    made = EncodedPredicates(SCHEME, found)
    mixed = list(made.rows)
    random.shuffle(mixed)
    other = EncodedPredicates.canonical(SCHEME, mixed)
    if other.rows == made.rows:
        assert from_bytes(to_bytes(other)) == made
        return
    with pytest.raises(EncodingError, match="not canonical"):
        from_bytes(to_bytes(other))


@given(rows, rows, rows, st.lists(st.sets(st.integers(0, 2**64 - 1), max_size=8), max_size=9))
@settings(max_examples=50)
def test_changes_merged_in_steps_match_as_the_whole_does(
    held: set[tuple[int, ...]], added: set[tuple[int, ...]], removed: set[tuple[int, ...]], messages: list[set[int]]
) -> None:
    known = Interests(SubscriptionIndex(), SCHEME)
    whole = (held | added) - removed
    known.replace(3, to_bytes(EncodedPredicates(SCHEME, held)))
    parts = [to_bytes(EncodedPredicates(SCHEME, part)) for part in (added, removed)]
    known.change(3, Delta(*parts))
    expected = PredicateMatrix(SCHEME)
    expected.replace(3, EncodedPredicates(SCHEME, whole))
    batch = Batch.build([Draft("a.b", {f"n{word % 50}": str(word) for word in words}) for words in messages])
    found = known.split(batch, entering=True).destinations
    assert [found.numbers(row) == [3] for row in range(len(batch))] == expected.match(batch).any(axis=1).tolist()


def test_row_of_all_positions_is_a_step_of_its_own() -> None:
    full = EncodedPredicates(SCHEME, [tuple(range(first, 128)) for first in range(20)])
    read, steps = walked(from_bytes_in_steps(to_bytes(full)))
    assert read == full
    assert steps > 20 * 100 // 8
    _, laid_out = walked(PredicateMatrix(SCHEME).replace_in_steps(1, full))
    assert laid_out >= 2 * 20 - 1
