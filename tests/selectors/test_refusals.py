"""What is refused, where the error points, and what it advises."""

from __future__ import annotations

import pytest

from postroad.errors import PostroadError
from postroad.selectors import Selector, SelectorError


def refusal(text: str) -> SelectorError:
    with pytest.raises(SelectorError) as caught:
        Selector.parse(text)
    return caught.value


# A selector with a mistake, the position of the mistake, and words of the advice.
MISTAKES = [
    ("a == 1", 2, "write ="),
    ("a != 1", 2, "write <>"),
    ("a =< 1", 2, "write <="),
    ("a => 1", 2, "write >="),
    ("a = 1 && b = 2", 6, "write AND"),
    ("a = 1 || b = 2", 6, "write OR"),
    ("!a", 0, "write NOT"),
    ('a = "x"', 4, "single quotes"),
    ("a = \u2018x\u2019", 4, "plain single quotes"),
    ("`a` = 1", 0, "without quotes"),
    ("a = 'x", 4, "no closing quote"),
    ("a = 'x''", 4, "no closing quote"),
    ("a = 'it's'", 8, "write ''"),
    ("a IN ('x, 'y')", 11, "write ''"),
    ("a LIKE 'x", 7, "no closing quote"),
    ("a = 1;", 5, "semicolon"),
    ("a % 2 = 0", 2, "remainder"),
    ("a = ?", 4, "parameters"),
    ("a = NULL", 4, "IS NULL"),
    ("a <> null", 5, "IS NULL"),
    ("NULL = a", 0, "IS NULL"),
    ("a =", 3, "a name, a number"),
    ("= 1", 0, "a name, a number"),
    ("a = AND b", 4, "a name, a number"),
    ("a AND", 5, "a name, a number"),
    ("AND a", 0, "a name, a number"),
    ("a OR OR b", 5, "a name, a number"),
    ("NOT", 3, "a name, a number"),
    ("a +", 3, "a name, a number"),
    ("a = * 5", 4, "a name, a number"),
    ("()", 1, "a name, a number"),
    ("(a = 1", 6, "still open"),
    ("a = 1)", 5, "AND, OR or the end"),
    ("(a = 1 b", 7, "AND, OR or )"),
    ("a b", 2, "AND, OR or the end"),
    ("a = 1 b = 2", 6, "AND, OR or the end"),
    ("a = b = c", 6, "do not chain"),
    ("1 < a < 5", 6, "do not chain"),
    ("a = 1 IS NULL", 6, "AND, OR or the end"),
    ("a = = 5", 4, "a name, a number"),
    ("a IN ()", 6, "an empty list"),
    ("a IN (1, 2)", 6, "x = 1 OR x = 2"),
    ("a IN (-1)", 6, "in the list of IN"),
    ("a IN 'x'", 5, "( and a list"),
    ("a IN ('x'", 9, "a comma or )"),
    ("a IN ('x',)", 10, "in the list of IN"),
    ("a IN ('x' 'y')", 10, "a comma or )"),
    ("a IN (b)", 6, "in the list of IN"),
    ("'x' IN ('x')", 0, "the name of an attribute"),
    ("a + 1 IN ('x')", 0, "the name of an attribute"),
    ("a LIKE 5", 7, "single quotes after LIKE"),
    ("a LIKE b", 7, "single quotes after LIKE"),
    ("5 LIKE 'x'", 0, "the name of an attribute"),
    ("a LIKE 'x' ESCAPE 'xy'", 18, "one character, not 2"),
    ("a LIKE 'x' ESCAPE ''", 18, "one character, not 0"),
    ("a LIKE 'x' ESCAPE 5", 18, "single quotes after ESCAPE"),
    ("a LIKE 'x!y' ESCAPE '!'", 9, "escapes nothing"),
    ("a LIKE 'x''!y' ESCAPE '!'", 11, "escapes nothing"),
    ("a LIKE 'x!' ESCAPE '!'", 9, "escapes nothing"),
    ("a ESCAPE '!'", 2, "ESCAPE is a reserved word"),
    ("a IS 5", 5, "NULL or NOT NULL"),
    ("a IS NOT 5", 9, "NULL"),
    ("5 IS NULL", 0, "the name of an attribute"),
    ("a NOT b", 6, "BETWEEN, IN or LIKE"),
    ("a NOT NULL", 6, "BETWEEN, IN or LIKE"),
    ("a BETWEEN 1", 11, "the upper bound"),
    ("a BETWEEN 1 OR 2", 12, "the upper bound"),
    ("a BETWEEN 'x' AND 'y'", 10, "works on numbers"),
    ("'x' BETWEEN 1 AND 2", 0, "works on numbers"),
    ("a BETWEEN (b = 1) AND 2", 10, "works on numbers"),
    ("a BETWEEN 1 AND TRUE", 16, "works on numbers"),
    ("a + 'x' = 1", 4, "works on numbers"),
    ("'x' + a = 1", 0, "works on numbers"),
    ("a + TRUE = 1", 4, "works on numbers"),
    ("-'x' = 1", 1, "works on numbers"),
    ("-(a = 1) = b", 1, "works on numbers"),
    ("(a = 1) + 2 = 3", 0, "works on numbers"),
    ("2 * (a AND b) = 3", 4, "works on numbers"),
    ("(a = 1) < 2", 0, "only by = and <>"),
    ("2 > (a AND b)", 4, "only by = and <>"),
    ("5", 0, "not a condition"),
    ("'x'", 0, "not a condition"),
    ("a + 1", 0, "not a condition"),
    ("(a + 1)", 0, "not a condition"),
    ("a AND 5", 6, "not a condition"),
    ("5 OR a", 0, "not a condition"),
    ("NOT 5", 4, "not a condition"),
    ("a = 1 AND (b + 1) OR c", 10, "not a condition"),
    ("a = NOT b", 4, "NOT is a reserved word"),
    ("in = 1", 0, "IN is a reserved word"),
    ("a = 010", 4, "write 8 or 10"),
    ("a = 00", 4, "write 0"),
    ("a = 09", 4, "write 9"),
    ("a = 010L", 4, "write 8 or 10"),
    ("a = 9223372036854775808", 4, "64 bits"),
    ("a = -9223372036854775809", 5, "64 bits"),
    ("a = 0x8000000000000000", 4, "64 bits"),
    ("a = " + "9" * 5000, 4, "64 bits"),
    ("a = 0x" + "F" * 5000, 4, "64 bits"),
    ("a = 1e309", 4, "too large"),
    ("a = 5x", 4, "cannot start with a digit"),
    ("a = 1e", 4, "cannot start with a digit"),
    ("a = 0xG", 4, "cannot start with a digit"),
    ("a = 1٣", 4, "cannot start with a digit"),
    ("a = 1.2.3", 7, "AND, OR or the end"),
    ("a = .", 4, "a name, a number"),
    ("a-b = 1 AND @", 12, "a name, a number"),
    ("a\u00a0= 1", 1, "NO-BREAK SPACE cannot be in a name"),
    ("a = \u200bb", 4, "ZERO WIDTH SPACE cannot be in a name"),
    ("\u0301a = 1", 0, "COMBINING ACUTE ACCENT cannot be in a name"),
    ("² = 1", 0, "SUPERSCRIPT TWO cannot be in a name"),
    ("a\x07b", 1, "AND, OR or the end"),
    ("a = '\ud800'", 5, "surrogate"),
]


@pytest.mark.parametrize(("text", "position", "advice"), MISTAKES)
def test_mistake_is_pointed_at_with_advice(text: str, position: int, advice: str) -> None:
    error = refusal(text)
    assert advice in str(error)
    assert error.position == position
    assert error.text == text
    assert isinstance(error, PostroadError)


def test_error_shows_line_caret_and_expectation() -> None:
    error = refusal("stock = 'S1' AND price >")
    assert str(error) == (
        "the selector ends too early\n"
        "  stock = 'S1' AND price >\n"
        "                          ^\n"
        "expected: a name, a number, a text in single quotes, TRUE, FALSE or ("
    )
    assert error.expected == "a name, a number, a text in single quotes, TRUE, FALSE or ("


def caret_column(error: SelectorError) -> tuple[str, int]:
    line, caret = str(error).split("\n")[1:3]
    return line, caret.index("^")


def test_long_selector_is_shown_through_a_window() -> None:
    text = "a = 1 AND " * 50 + "b == 2 " + "AND a = 1 " * 50
    line, column = caret_column(refusal(text))
    assert len(line) < 80
    assert line.startswith("  …")
    assert line.endswith("…")
    assert line[column:].startswith("== 2")


def test_caret_stands_under_the_place_after_line_breaks_and_controls() -> None:
    line, column = caret_column(refusal("a = 'x\ny\x1b[31m' AND\r\n\tb == 2"))
    assert line.isprintable()
    assert line[column:].startswith("==")


def test_caret_allows_for_wide_and_combining_characters() -> None:
    line, column = caret_column(refusal("a = '名前e\u0301' == 2"))
    # Two wide characters take a column more each, one combining mark takes none.
    assert column == line.index("==") + 2 - 1


def test_what_is_not_text_is_refused_as_such() -> None:
    with pytest.raises(TypeError, match="not bytes"):
        Selector.parse(b"a = 1")  # type: ignore[arg-type]


def test_errors_survive_copying_between_processes() -> None:
    import pickle

    error = refusal("a == 1")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.position == error.position
