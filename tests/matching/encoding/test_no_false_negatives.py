"""Whatever a selector and a topic pattern want, their encoding finds."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.matching.encoding import EncodedPredicates, PredicateMatrix, Scheme, conjunction_categories
from postroad.matching.encoding.content import message_categories
from postroad.messages import Batch, Draft
from postroad.selectors import Selector, TopicPattern
from tests.matching.encoding.strategies import (
    drafts,
    edge_texts,
    edge_values,
    fitting_patterns,
    long_texts,
    own_selectors,
    patterns,
    quoted,
    schemes,
    selector_messages,
    selectors,
    wide_schemes,
)
from tests.selectors.strategies import selector_texts

subscriptions = st.tuples(selectors, st.none() | patterns())


def wants(selector: Selector, pattern: TopicPattern | None, batch: Batch, row: int) -> bool:
    message = batch.message(row)
    return (pattern is None or pattern.matches(message.topic)) and selector.matches(message.selectable())


def check(scheme: Scheme, wanted: list[tuple[Selector, TopicPattern | None]], rows: list[Draft]) -> None:
    """Each subscription on a broker of its own, number 3 i: the matrix finds all that want a message."""
    batch = Batch.build(rows)
    matrix = PredicateMatrix(scheme)
    for place, subscription in enumerate(wanted):
        matrix.replace(3 * place, EncodedPredicates.encode(scheme, [subscription]))
    found = matrix.match(batch)
    for row in range(len(batch)):
        for place, (selector, pattern) in enumerate(wanted):
            if wants(selector, pattern, batch, row):
                assert found[row, 3 * place // 64] >> (3 * place % 64) & 1, (str(selector), str(pattern), rows[row])


@settings(max_examples=150)
@given(schemes, st.lists(subscriptions, max_size=4), st.lists(drafts() | selector_messages, max_size=4))
def test_matrix_finds_every_broker_that_wants_a_message(
    scheme: Scheme, wanted: list[tuple[Selector, TopicPattern | None]], rows: list[Draft]
) -> None:
    check(scheme, wanted, rows)


@settings(max_examples=200)
@given(wide_schemes, st.lists(selector_texts(), min_size=1, max_size=4), st.lists(selector_messages, max_size=3))
def test_wide_vectors_find_every_broker_for_the_whole_language(
    scheme: Scheme, texts: list[str], rows: list[Draft]
) -> None:
    check(scheme, [(Selector.parse(text), None) for text in texts], rows)


@settings(max_examples=200)
@given(wide_schemes, st.lists(own_selectors, min_size=1, max_size=4), st.lists(drafts(), max_size=3))
def test_wide_vectors_find_every_broker_for_texts_that_share_pieces(
    scheme: Scheme, wanted: list[Selector], rows: list[Draft]
) -> None:
    check(scheme, [(selector, None) for selector in wanted], rows)


@settings(max_examples=200)
@given(wide_schemes, st.lists(edge_texts(), min_size=4, max_size=8), st.lists(edge_values, min_size=8, max_size=20))
def test_wide_vectors_find_numbers_at_the_edges_of_ladders(
    scheme: Scheme, texts: list[str], numbers: list[Any]
) -> None:
    check(scheme, [(Selector.parse(text), None) for text in texts], [Draft("x", {"a": number}) for number in numbers])


@settings(max_examples=300)
@given(wide_schemes, long_texts, st.data())
def test_wide_vectors_find_texts_by_patterns_made_of_them(scheme: Scheme, text: str, data: st.DataObject) -> None:
    pattern = data.draw(fitting_patterns(text))
    selector = Selector.parse(f"a LIKE {quoted(pattern)}")
    assert selector.matches({"a": text})
    check(scheme, [(selector, None)], [Draft("x", {"a": text}), Draft("x", {}, {"a": text})])


@given(wide_schemes, own_selectors, st.lists(drafts(), min_size=1, max_size=3))
def test_categories_of_a_wanted_message_include_those_of_a_conjunction(
    scheme: Scheme, selector: Selector, rows: list[Draft]
) -> None:
    batch = Batch.build(rows)
    offsets, words = message_categories(batch, scheme)
    asked = [held for conjunction in selector.disjunction for held in conjunction_categories(conjunction, scheme)]
    for row in range(len(batch)):
        held = set(words[offsets[row] : offsets[row + 1]].tolist())
        assert any(categories <= held for categories in asked) or not wants(selector, None, batch, row)


def test_examples_above_contain_wanted_messages() -> None:
    """The properties would hold of an encoding that finds nothing, if no example wanted anything."""
    seen = {"wanted": 0, "unwanted": 0}

    @settings(max_examples=150)
    @given(own_selectors, drafts())
    def count(selector: Selector, row: Draft) -> None:
        seen["wanted" if wants(selector, None, Batch.build([row]), 0) else "unwanted"] += 1

    count()
    assert seen["wanted"] >= 5
    assert seen["unwanted"] >= 5
