from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LimitError
from postroad.filters import positions
from postroad.matching.encoding import (
    EncodedPredicates,
    EncodingError,
    PredicateMatrix,
    Scheme,
    message_categories,
)
from postroad.matching.encoding.content import Categories
from postroad.messages import Batch
from postroad.selectors import Selector, TopicPattern

SCHEME = Scheme(192, 3, (25.0, 50.0), 3)
# Few distinct words, so that rows are subsets of messages often.
words = st.sampled_from([index * 0x9E3779B97F4A7C15 % 2**64 for index in range(1, 9)])
word_sets = st.lists(words, max_size=6)


def categories_of(sets: list[list[int]]) -> Categories:
    offsets = np.cumsum([0, *map(len, sets)], dtype=np.int64)
    return Categories(offsets, np.array([word for held in sets for word in held], np.uint64))


def bits_of(held: list[int]) -> set[int]:
    """The bits that are set in the vector of a message with these categories."""
    return set(positions(np.array(held, np.uint64), SCHEME.hashes, SCHEME.bits).reshape(-1).tolist())


def brokers(row: np.ndarray) -> set[int]:
    return {64 * word + bit for word in range(len(row)) for bit in range(64) if int(row[word]) >> bit & 1}


def matrix_of(lists: dict[int, EncodedPredicates]) -> PredicateMatrix:
    matrix = PredicateMatrix(SCHEME)
    for owner, predicates in lists.items():
        matrix.replace(owner, predicates)
    return matrix


predicate_lists = st.dictionaries(
    st.sampled_from((0, 1, 5, 63, 64, 130)),
    st.lists(st.lists(words, max_size=4), max_size=5).map(lambda sets: EncodedPredicates.of_categories(SCHEME, sets)),
    max_size=4,
)


@given(st.lists(word_sets, max_size=12) | st.lists(word_sets, min_size=60, max_size=70), predicate_lists)
def test_matrix_equals_testing_every_row_against_every_message(
    sets: list[list[int]], lists: dict[int, EncodedPredicates]
) -> None:
    categories = categories_of(sets)
    found = matrix_of(lists).match_categories(categories)
    for row, held in zip(found, map(bits_of, sets), strict=True):
        expected = {
            owner for owner, predicates in lists.items() if any(held.issuperset(places) for places in predicates.rows)
        }
        assert brokers(row) == expected


def batch(count: int = 1) -> Batch:
    return Batch.build([("news.uk", {"stock": "XYZ", "price": 50})] * count)


def encoded(text: str, pattern: str | None = None) -> EncodedPredicates:
    topics = None if pattern is None else TopicPattern.parse(pattern)
    return EncodedPredicates.encode(Scheme.sharp(), [(Selector.parse(text), topics)])


@pytest.mark.parametrize("count", [1, 8, 9, 64, 65, 200])
def test_matrix_reports_every_message_of_a_batch(count: int) -> None:
    matrix = PredicateMatrix(Scheme.sharp())
    matrix.replace(2, encoded("stock = 'XYZ' AND price > 20"))
    matrix.replace(70, encoded("stock = 'other'"))
    found = matrix.match(batch(count))
    assert found.shape == (count, 2)
    assert all(brokers(row) == {2} for row in found)


def test_replacing_a_list_forgets_the_one_before() -> None:
    matrix = PredicateMatrix(Scheme.sharp())
    matrix.replace(1, encoded("price = 50"))
    assert brokers(matrix.match(batch())[0]) == {1}
    matrix.replace(1, encoded("price = 51"))
    assert brokers(matrix.match(batch())[0]) == set()
    matrix.replace(1, encoded("price = 50"))
    assert matrix.remove(1)
    assert not matrix.remove(1)
    assert brokers(matrix.match(batch())[0]) == set()
    assert len(matrix) == 0


def test_blank_selector_matches_everything_and_empty_list_nothing() -> None:
    matrix = PredicateMatrix(Scheme.sharp())
    matrix.replace(0, encoded(""))
    matrix.replace(1, EncodedPredicates(Scheme.sharp()))
    matrix.replace(2, encoded("a = 1 AND a = 2"))
    assert brokers(matrix.match(batch())[0]) == {0}
    assert matrix.statistics()["rows"] == 1
    assert matrix.statistics()["brokers"] == 3


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("news.uk", True),
        ("news.us", False),
        ("news.*", True),
        ("*.uk", True),
        ("*.us", False),
        ("news.*.*", False),
        ("news.>", True),
        (">", True),
        ("*", False),
        ("sport.>", False),
    ],
)
def test_topic_patterns_select_topics(pattern: str, wanted: bool) -> None:
    matrix = PredicateMatrix(Scheme.sharp())
    matrix.replace(0, encoded("price = 50", pattern))
    assert (brokers(matrix.match(batch())[0]) == {0}) == wanted


def test_empty_batch_matches_nobody() -> None:
    matrix = PredicateMatrix(Scheme.sharp())
    matrix.replace(0, encoded(""))
    assert matrix.match(Batch.build([])).shape == (0, 1)


def test_matrix_refuses_a_list_of_another_scheme() -> None:
    matrix = PredicateMatrix(Scheme.paper())
    with pytest.raises(EncodingError, match="broker 3 encodes by"):
        matrix.replace(3, encoded("a = 1"))
    assert len(matrix) == 0


@pytest.mark.parametrize("owner", [-1, 65_536])
def test_matrix_refuses_a_broker_without_a_bit(owner: int) -> None:
    with pytest.raises(LimitError):
        PredicateMatrix(Scheme.sharp()).replace(owner, encoded("a = 1"))


def test_categories_of_a_batch_can_be_matched_twice() -> None:
    matrix = PredicateMatrix(Scheme.sharp())
    matrix.replace(0, encoded("price = 50"))
    categories = message_categories(batch(3), Scheme.sharp())
    assert matrix.match_categories(categories).tolist() == matrix.match(batch(3)).tolist() == [[1]] * 3
