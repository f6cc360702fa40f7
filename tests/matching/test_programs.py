"""Conditions that only a program can decide: each kind of node once, with the answer written down."""

from __future__ import annotations

import pytest

from postroad.matching import SubscriptionIndex
from postroad.messages import Batch, Draft
from tests.matching.oracle import OneByOne, matched

# Each row of the batch by a letter, so that an answer is a word.
ROWS = {
    "n": Draft("t"),  # nothing
    "i": Draft("t", {"a": 7, "b": 2, "s": "road", "f": True}),
    "f": Draft("t", {"a": 7.5, "b": -2.5, "s": "rood", "f": False}),
    "u": Draft("t", headers={"a": "7", "b": "2.0", "s": "rod"}),  # untyped text
    "z": Draft("t", {"a": 0, "b": 0, "s": "", "f": True}),
    "w": Draft("t", {"a": "7", "b": "2", "s": "r%d", "f": "TRUE"}),  # texts: no numbers, and no boolean
}

ANSWERS = {
    # Arithmetic, which is for numbers alone; division by zero is unknown.
    "a + b > 8": "iu",
    "a - b >= 5": "ifu",
    "a * 2 = 14": "iu",
    "a / b > 3": "u",
    "a / b <= 3": "if",
    "-a + 7 = 0": "iu",
    "+a = 7 + b - b": "iu",
    "a + 0.5 = 7.5": "iu",
    "1 + 1 = 2": "nifuzw",
    # Comparisons of two attributes.
    "a > b": "ifu",
    "a = b": "z",
    "a <> b": "ifuw",
    "NOT (a > b)": "z",
    "s = s": "ifuzw",
    # Conditions as values.
    "(a > 5) = (b > 0)": "iuz",
    "(a > 5) <> f": "fz",
    "f = (s LIKE 'r%d')": "i",
    "f = (s LIKE 'r__d')": "i",
    "f = (s NOT LIKE 'r__d')": "fz",
    "f = (s IN ('road', 'rod'))": "if",
    "f = (s NOT IN ('road', 'rod'))": "z",
    "f = (a IS NULL)": "f",
    "f = (a IS NOT NULL)": "iz",
    "f = (a BETWEEN 7 AND 8)": "i",
    "f = (a NOT BETWEEN 7 AND 8)": "fz",
    "f = (TRUE)": "iz",
    "(f AND a > 5) = (TRUE)": "i",
    "(f OR a > 5) = (TRUE)": "ifuz",
    "(NOT f) = (FALSE)": "iz",
    "(s = 'road') = (a = 7)": "ifz",
    "('x' = 'x') = f": "iz",
}


def test_answers_name_rows_in_their_order() -> None:
    letters = "".join(ROWS)
    assert [answer for answer in ANSWERS.values() if answer != "".join(one for one in letters if one in answer)] == []


@pytest.mark.parametrize("selector", ANSWERS)
def test_program_answers_as_written_and_as_one_by_one_evaluation(selector: str) -> None:
    index, truth = SubscriptionIndex(), OneByOne()
    index.add("s", selector, None)
    truth.add("s", selector, None)
    batch = Batch.build(list(ROWS.values()))
    found = matched(index, batch)
    assert found == truth.match(batch)
    assert "".join(letter for letter, keys in zip(ROWS, found, strict=True) if keys) == ANSWERS[selector]


def test_programs_of_many_subscriptions_answer_each_for_itself() -> None:
    index = SubscriptionIndex()
    for selector in ANSWERS:
        index.add(selector, selector, None)
    found = matched(index, Batch.build(list(ROWS.values())))
    for letter, keys in zip(ROWS, found, strict=True):
        assert keys == {selector for selector, answer in ANSWERS.items() if letter in answer}


def test_disjunction_too_wide_to_expand_is_run_as_a_program() -> None:
    # 2 ** 8 conjunctions: beyond MAX_CONJUNCTIONS.
    wide = " AND ".join(f"(a = {number} OR s LIKE '%{number}%')" for number in range(8))
    index, truth = SubscriptionIndex(), OneByOne()
    index.add("s", wide, None)
    truth.add("s", wide, None)
    batch = Batch.build([Draft("t", {"a": 3, "s": "0124567"}), Draft("t", {"a": 3, "s": "012456"}), Draft("t")])
    assert matched(index, batch) == truth.match(batch) == [{"s"}, set(), set()]
