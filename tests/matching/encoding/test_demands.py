from __future__ import annotations

import pytest

from postroad.filters import hash_bytes
from postroad.matching.encoding import EncodedPredicates, Scheme, conjunction_categories, message_categories
from postroad.matching.encoding.demands import MAX_ALTERNATIVES, MAX_DEMANDS
from postroad.matching.encoding.families import (
    ABOVE,
    BELOW,
    EQUAL_BOOLEAN,
    EQUAL_TEXT,
    EXISTS_NUMBER,
    EXISTS_TEXT,
    GRAM,
    PREFIX,
    SUFFIX,
    base,
    category,
    equal_number,
    packed,
)
from postroad.messages import Batch, Draft
from postroad.selectors import Selector

PAPER = Scheme.paper()
SHARP = Scheme.sharp(thresholds=(25.0, 50.0, 75.0))


def demands(text: str, scheme: Scheme) -> list[set[int]]:
    selector = Selector.parse(text)
    return [set(held) for conjunction in selector.disjunction for held in conjunction_categories(conjunction, scheme)]


def text_is(name: str, text: str) -> int:
    return category(EQUAL_TEXT, name, hash_bytes(text.encode()))


def number_is(name: str, number: int | float) -> int:
    found = equal_number(number)
    assert found is not None
    return category(found[0], name, found[1])


def piece(family: int, text: str) -> int:
    return category(family, "a", packed(text.encode()))


def test_paper_asks_for_the_value_of_an_equality_and_the_existence_of_the_rest() -> None:
    assert demands("stock = 'XYZ' AND price > 20", PAPER) == [{text_is("stock", "XYZ"), base(EXISTS_NUMBER, "price")}]


@pytest.mark.parametrize(
    "text", ["a LIKE 'abc%'", "a LIKE '%abc'", "a LIKE '%abc%'", "a LIKE 'a_c'", "a NOT LIKE 'abc%'", "a <> 'abc'"]
)
def test_paper_asks_only_for_the_existence_of_other_texts(text: str) -> None:
    assert demands(text, PAPER) == [{base(EXISTS_TEXT, "a")}]


@pytest.mark.parametrize(
    ("text", "family", "place"),
    [
        ("a < 20", BELOW, 0),
        ("a < 25", BELOW, 0),
        ("a <= 25", BELOW, 1),
        ("a < 25.5", BELOW, 1),
        ("a > 80", ABOVE, 2),
        ("a > 75", ABOVE, 2),
        ("a >= 75", ABOVE, 1),
        ("a > 74.5", ABOVE, 1),
    ],
)
def test_ladder_asks_for_the_nearest_threshold_outside_the_range(text: str, family: int, place: int) -> None:
    assert demands(text, SHARP) == [{category(family, "a", place)}]


def test_ladder_asks_for_both_sides_of_an_interval() -> None:
    assert demands("a BETWEEN 30 AND 40", SHARP) == [{category(ABOVE, "a", 0), category(BELOW, "a", 1)}]


@pytest.mark.parametrize("text", ["a < 80", "a > 20", "a <= 75", "a >= 25", "a <> 5"])
def test_range_beyond_the_ladder_asks_for_a_number(text: str) -> None:
    assert demands(text, SHARP) == [{base(EXISTS_NUMBER, "a")}]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a LIKE 'ab%'", {piece(PREFIX, "ab")}),
        ("a LIKE 'abcd%'", {piece(PREFIX, "abc"), piece(GRAM, "abc"), piece(GRAM, "bcd")}),
        ("a LIKE '%b'", {piece(SUFFIX, "b")}),
        ("a LIKE '%abcd'", {piece(SUFFIX, "bcd"), piece(GRAM, "abc"), piece(GRAM, "bcd")}),
        ("a LIKE '%abc%'", {piece(GRAM, "abc")}),
        ("a LIKE '%ab%'", {base(EXISTS_TEXT, "a")}),
        ("a LIKE '%'", {base(EXISTS_TEXT, "a")}),
        ("a LIKE '_ab_'", {base(EXISTS_TEXT, "a")}),
        ("a LIKE 'x_abc%yz'", {piece(PREFIX, "x"), piece(GRAM, "abc"), piece(SUFFIX, "yz")}),
        ("a LIKE 'a_b'", {piece(PREFIX, "a"), piece(SUFFIX, "b")}),
    ],
)
def test_pattern_asks_for_its_pieces(text: str, wanted: set[int]) -> None:
    assert demands(text, SHARP) == [wanted]


def test_pieces_are_cut_by_bytes_of_utf8() -> None:
    (found,) = demands("a LIKE 'é€%'", SHARP)
    raw = "é€".encode()
    assert found == {
        category(PREFIX, "a", packed(raw[:3])),
        *(category(GRAM, "a", packed(raw[at : at + 3])) for at in range(3)),
    }


def test_in_asks_for_one_of_its_values() -> None:
    assert demands("a IN ('x', 'y') AND b = 1", PAPER) == [
        {text_is("a", "x"), number_is("b", 1)},
        {text_is("a", "y"), number_is("b", 1)},
    ]


def test_wide_in_asks_for_a_text() -> None:
    values = ", ".join(f"'{index}'" for index in range(MAX_ALTERNATIVES + 1))
    assert demands(f"a IN ({values})", SHARP) == [{base(EXISTS_TEXT, "a")}]


def test_alternatives_are_bounded() -> None:
    values = ", ".join(f"'{index}'" for index in range(5))
    text = " AND ".join(f"{name} IN ({values})" for name in "abcdef")
    assert len(demands(text, SHARP)) == 5
    assert len(demands("a IS NOT NULL AND b IS NOT NULL AND c IS NOT NULL", SHARP)) == MAX_ALTERNATIVES


def test_demands_of_a_row_are_bounded() -> None:
    text = " AND ".join(f"n{index} = {index}" for index in range(MAX_DEMANDS + 20))
    (found,) = demands(text, SHARP)
    assert len(found) == MAX_DEMANDS


@pytest.mark.parametrize(
    "text", ["a IS NULL", "a + 1 > b OR a IS NULL", "JMSTimestamp > 5", "JMSMessageID = 'x'", "JMSPriority = 5"]
)
def test_what_no_category_describes_asks_for_nothing(text: str) -> None:
    assert set() in demands(text, SHARP)


def test_boolean_asks_for_its_value() -> None:
    assert demands("a", PAPER) == demands("a = TRUE", PAPER) == [{category(EQUAL_BOOLEAN, "a", 1)}]
    assert demands("NOT a", PAPER) == [{category(EQUAL_BOOLEAN, "a", 0)}]


def test_derived_names_ask_for_the_attributes_behind_them() -> None:
    assert demands("JMSType = 'x' AND JMSCorrelationID = 'y'", PAPER) == [
        {text_is("type", "x"), text_is("correlation-id", "y")}
    ]


def test_priority_is_encoded_when_the_scheme_says_so() -> None:
    scheme = Scheme.sharp(priority=True, topics=False)
    batch = Batch.build([Draft("t", priority=9), Draft("t", priority=1)])
    offsets, words = message_categories(batch, scheme)
    (asked,) = demands("JMSPriority = 9", scheme)
    assert asked <= set(words[: offsets[1]].tolist())
    assert not asked <= set(words[offsets[1] :].tolist())


@pytest.mark.parametrize(
    ("one", "other"), [(50, 50.0), (0, -0.0), (-(2**63), -(2.0**63)), (2**64, 2.0**64), (10**400, None)]
)
def test_equal_numbers_have_one_word(one: int | float, other: float | None) -> None:
    assert equal_number(one) == (None if other is None else equal_number(other))


def test_big_integers_keep_apart_from_the_float_between_them() -> None:
    assert equal_number(2**53 + 1) != equal_number(2.0**53)
    assert equal_number(2**53) == equal_number(2.0**53)


def test_encoding_merges_equal_subscriptions() -> None:
    selectors = [Selector.parse(text) for text in ("a = 1", "a = 1.0", "b = 1 OR a = 1")]
    assert len(EncodedPredicates.encode(SHARP, [(selector, None) for selector in selectors])) == 2
