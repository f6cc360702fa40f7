"""Large selectors are refused by name, or handled without trouble."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, sampled_from

from postroad.selectors import Selector, SelectorError
from postroad.selectors.generated_code import generate
from postroad.selectors.limits import (
    MAX_IN_VALUES,
    MAX_LIKE_LENGTH,
    MAX_NAME_BYTES,
    MAX_NESTING,
    MAX_SELECTOR_LENGTH,
    MAX_TERMS,
)
from tests.selectors.strategies import selector_texts

DEEP = MAX_NESTING


def parenthesised(text: str, depth: int) -> str:
    return "(" * depth + text + ")" * depth


REFUSED = [
    (parenthesised("a", 10_000), "MAX_NESTING"),
    ("(" * 10_000, "MAX_NESTING"),
    (parenthesised("a", DEEP + 1), "MAX_NESTING"),
    ("NOT " * (DEEP + 1) + "a", "MAX_NESTING"),
    ("NOT " * 8_000 + "a", "MAX_NESTING"),
    ("-" * (DEEP + 1) + "a = 1", "MAX_NESTING"),
    ("-" * 10_000 + "a = 1", "MAX_NESTING"),
    ("NOT (" * (DEEP // 2 + 1) + "a" + ")" * (DEEP // 2 + 1), "MAX_NESTING"),
    ("a" + " OR a" * MAX_TERMS, "MAX_TERMS"),
    ("a = 1" + " + 1" * MAX_TERMS, "MAX_TERMS"),
    ("a = 1" + " " * MAX_SELECTOR_LENGTH, "MAX_SELECTOR_LENGTH"),
    ("'" * (MAX_SELECTOR_LENGTH + 1), "MAX_SELECTOR_LENGTH"),
    (f"a IN ({', '.join(['0'.join('xx')] * (MAX_IN_VALUES + 1))})".replace("x0x", "'x'"), "MAX_IN_VALUES"),
    (f"a LIKE '{'x' * (MAX_LIKE_LENGTH + 1)}'", "MAX_LIKE_LENGTH"),
    ("a" * (MAX_NAME_BYTES + 1) + " = 1", "MAX_NAME_BYTES"),
    ("ü" * (MAX_NAME_BYTES // 2 + 1) + " = 1", "MAX_NAME_BYTES"),
]


@pytest.mark.parametrize(("text", "limit"), REFUSED, ids=lambda value: value[:12])
def test_selector_beyond_a_limit_is_refused_by_its_name(text: str, limit: str) -> None:
    with pytest.raises(SelectorError, match=limit):
        Selector.parse(text)


# Conditions nested as deep as allowed, in every way that adds to the depth of a tree.
NESTED = {
    "parentheses": parenthesised("a = 1", DEEP),
    "negations": "NOT " * DEEP + "a = 1",
    "signs": "-" * DEEP + "a = 1",
    "junctions": "a = 1 OR a = 1 AND (" * DEEP + "a = 1" + ")" * DEEP,
    "comparisons": "TRUE = (a = 1 OR b AND " * DEEP + "a = 1" + ")" * DEEP,
    "negated groups": "NOT (b AND " * (DEEP // 2) + "a = 1" + ")" * (DEEP // 2),
    "arithmetic": "1 + 1 * (" * DEEP + "a" + ")" * DEEP + " > 0",
    "everything": "a = 1 OR b AND TRUE = (NOT b OR b AND " * (DEEP // 2) + "a = 1" + ")" * (DEEP // 2),
}


# Selectors as long as allowed.
LONG = {
    "or of numbers": " OR ".join(f"a = {number}" for number in range(MAX_TERMS)),
    "or of texts": " OR ".join(f"a = '{number}'" for number in range(MAX_TERMS - 1)) + " OR a = 1",
    "and": " AND ".join(["a = 1"] * MAX_TERMS),
    "sum": "a = 1" + " + 0" * (MAX_TERMS - 1),
    "difference": "0" + " - 0" * (MAX_TERMS - 1) + " < a",
    "product": "a = 1" + " * 1" * (MAX_TERMS - 1),
    "pairs": " AND ".join(["(a = 1 OR b = 2)"] * (MAX_TERMS // 2)),
    "side by side": " AND ".join(["NOT NOT (NOT -(a) = --(a))"] * (DEEP + 1)),
    "in": f"a IN ({', '.join(repr(str(number)) for number in range(MAX_IN_VALUES))}) OR a = 1",
    "text": f"a = '{'x' * (MAX_SELECTOR_LENGTH - 20)}' OR a = 1",
    "like": f"a LIKE '{'_' * MAX_LIKE_LENGTH}' OR a = 1",
    "name": f"{'b' * MAX_NAME_BYTES} = 1 OR a = 1",
}


@pytest.mark.parametrize("text", [*NESTED.values(), *LONG.values()], ids=[*NESTED, *LONG])
def test_selector_at_a_limit_works_far_from_the_recursion_limit(text: str) -> None:
    limit = sys.getrecursionlimit()
    # Far fewer frames than Python has by default, so that callers may be deep in their own calls.
    sys.setrecursionlimit(_depth() + 500)
    try:
        selector = Selector.parse(text)
        again = Selector.parse(str(selector))
        assert again == selector
        assert hash(again) == hash(selector)
        assert selector.matches({"a": 1, "b": True}) is generate(selector)({"a": 1, "b": True}) is True
        assert selector.evaluate({}) is None
        assert selector.disjunction
        assert "a" in selector.attributes
    finally:
        sys.setrecursionlimit(limit)


def _depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def test_pattern_of_many_wildcards_is_quick_to_fail() -> None:
    # Backtracking would take more steps than there are atoms; with each part settled once, it is some millions.
    selector = Selector.parse("a LIKE '" + "%a_" * 100 + "%b'")
    assert selector.evaluate({"a": "a" * 5_000}) is False


# Where canonical text is longer or deeper than what it was made from.
GROWING = {
    "commas": f"a IN({','.join(repr(f'{number:029}') for number in range(1_000))})",
    "operators": "or".join(f"(a{i}='{'x' * 34}'and b{i}='{'y' * 22}')" for i in range(400)),
    "numbers": "or".join(["(9e15=9e15)"] * 700),
    "backslashes": "a LIKE '" + "\\" * 600 + "!_%' ESCAPE '!'",
    "all backslashes": "a LIKE '" + "\\" * (MAX_LIKE_LENGTH - 2) + "!_%' ESCAPE '!'",
    "escapes": "a LIKE '" + "!_" * MAX_LIKE_LENGTH + "' ESCAPE '!'",
    "signs of numbers": "NOT " * (DEEP - 2) + "a = + +5",
    "signs of numbers, too deep": "NOT " * (DEEP - 1) + "a = + +5",
    "signs in parentheses": "NOT " * (DEEP - 3) + "(a = -(5))",
}


@pytest.mark.parametrize("text", GROWING.values(), ids=GROWING)
def test_selector_is_refused_or_its_canonical_text_parses_to_an_equal_one(text: str) -> None:
    try:
        selector = Selector.parse(text)
    except SelectorError as error:
        assert "the limit" in str(error)  # noqa: PT017  (either is right)
        return
    assert Selector.parse(str(selector)) == selector


@settings(max_examples=60)
@given(selector_texts(), integers(1, 400), sampled_from(["or", " AND ", " OR NOT "]))
def test_selector_made_of_many_is_refused_or_parses_back(text: str, times: int, word: str) -> None:
    try:
        selector = Selector.parse(word.join([f"({text})"] * times))
    except SelectorError as error:
        assert "the limit" in str(error)  # noqa: PT017  (either is right)
        return
    assert len(str(selector)) <= MAX_SELECTOR_LENGTH
    assert Selector.parse(str(selector)) == selector


def test_selector_whose_canonical_text_is_too_long_is_refused_with_its_length() -> None:
    with pytest.raises(SelectorError, match=r"33,0.. characters in its canonical form.*MAX_SELECTOR_LENGTH"):
        Selector.parse(GROWING["commas"])


def test_longest_selector_parses() -> None:
    text = "a = 1" + " " * (MAX_SELECTOR_LENGTH - 5)
    assert str(Selector.parse(text)) == "a = 1"
