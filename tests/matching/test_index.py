"""The index equals one-by-one evaluation, whatever is added, removed and sent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.lab.bdrp import BdrpWorkload
from postroad.matching import MatchingError, SubscriptionIndex
from postroad.messages import Batch
from tests.matching.oracle import OneByOne, matched
from tests.matching.strategies import batches, subscriptions


@settings(max_examples=400)
@given(st.lists(subscriptions, max_size=12), batches)
def test_index_equals_one_by_one_evaluation(wanted: list[tuple[str | None, str | None]], batch: Batch) -> None:
    index, truth = SubscriptionIndex(), OneByOne()
    for key, (selector, topic) in enumerate(wanted):
        index.add(key, selector, topic)
        truth.add(key, selector, topic)
    assert matched(index, batch) == truth.match(batch)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 7), subscriptions), max_size=40), st.lists(batches, min_size=1, max_size=4))
def test_index_stays_equal_while_subscriptions_come_and_go(
    changes: list[tuple[int, tuple[str | None, str | None]]], probes: list[Batch]
) -> None:
    index, truth = SubscriptionIndex(), OneByOne()
    for step, (key, (selector, topic)) in enumerate(changes):
        if key in index:
            index.remove(key)
            truth.remove(key)
        else:
            index.add(key, selector, topic)
            truth.add(key, selector, topic)
        if step % 5 == 0:
            batch = probes[step % len(probes)]
            assert matched(index, batch) == truth.match(batch)
    for batch in probes:
        assert matched(index, batch) == truth.match(batch)
    for left in list(truth.subscriptions):
        index.remove(left)
    assert index.statistics()[:3] == (0, 0, 0)
    assert all(not found for batch in probes for found in matched(index, batch))


def test_index_refuses_a_key_it_has_and_a_key_it_has_not() -> None:
    index = SubscriptionIndex()
    index.add("s1", "a = 1")
    with pytest.raises(MatchingError, match="'s1' is in the index already"):
        index.add("s1", "a = 2")
    with pytest.raises(MatchingError, match="'s2' is not in the index"):
        index.remove("s2")
    assert len(index) == 1
    assert matched(index, Batch.build([("t", {"a": 1}), ("t", {"a": 2})])) == [{"s1"}, set()]


def test_index_that_is_filled_from_another_matches_like_it_and_changes_alone() -> None:
    texts = BdrpWorkload(4).predicates(300, 1, 3).texts()
    first, copy = SubscriptionIndex(), SubscriptionIndex()
    for key, text in enumerate(texts):
        first.add(key, text, ("news", "news.>", "*", "other")[key % 4])
    copy.add("what it had before", "a = 1")
    batch = BdrpWorkload(5).messages(200).batch()
    expected = matched(first, batch)
    copy.fill_from(first)
    assert matched(copy, batch) == expected
    assert any(expected)
    left = [{"new", *row.intersection(range(1, 300, 2))} for row in expected]
    for key in range(0, 300, 2):
        copy.remove(key)
    copy.add("new", None, "news")
    assert matched(copy, batch) == left
    assert matched(first, batch) == expected
    for key in range(300):
        first.remove(key)
    assert first.statistics()[:3] == (0, 0, 0)
    assert len(copy) == 151
    assert matched(copy, batch) == left
