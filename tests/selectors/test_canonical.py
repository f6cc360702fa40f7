"""The canonical text of selectors, case by case."""

from __future__ import annotations

import pytest

from postroad.selectors import Selector

CANONICAL = [
    ("", "TRUE"),
    ("a=1 and(b=2 or c)", "a = 1 AND (b = 2 OR c)"),
    ("((a = 1)) AND ((b))", "a = 1 AND b"),
    ("(a AND b) AND c", "a AND b AND c"),
    ("a OR (b OR (c OR d))", "a OR b OR c OR d"),
    ("(a AND b) OR c", "a AND b OR c"),
    ("a AND (b OR c)", "a AND (b OR c)"),
    ("not(a=1)", "NOT a = 1"),
    ("not(not(a))", "NOT NOT a"),
    ("NOT (a AND b)", "NOT (a AND b)"),
    ("(NOT a) AND b", "NOT a AND b"),
    ("(NOT a) = b", "(NOT a) = b"),
    ("(a = b) = (c = d)", "(a = b) = (c = d)"),
    ("(a) = (TRUE)", "a = TRUE"),
    ("a - (b - c) > 0", "a - (b - c) > 0"),
    ("(a - b) - c > 0", "a - b - c > 0"),
    ("a + (b + c) > 0", "a + (b + c) > 0"),
    ("a / (b * c) > 0", "a / (b * c) > 0"),
    ("(a / b) * c > 0", "a / b * c > 0"),
    ("(a * b) + (c / d) > 0", "a * b + c / d > 0"),
    ("(a + b) * (c - d) > 0", "(a + b) * (c - d) > 0"),
    ("(a * b + c) * d > 0", "(a * b + c) * d > 0"),
    ("a * (-b) > 0", "a * -b > 0"),
    ("-(a * b) > 0", "-(a * b) > 0"),
    ("(-a) * b > 0", "-a * b > 0"),
    ("-5 < a", "-5 < a"),
    ("- 5 < a", "-5 < a"),
    ("+5 < a", "5 < a"),
    ("-(5) < a", "-(5) < a"),
    ("-(-5) < a", "--5 < a"),
    ("a - -5 > 0", "a - -5 > 0"),
    ("a - (-5) > 0", "a - -5 > 0"),
    ("a > 0x1F", "a > 31"),
    ("a > 7L", "a > 7"),
    ("a > 7.", "a > 7.0"),
    ("a > .5f", "a > 0.5"),
    ("a > 1E3", "a > 1000.0"),
    ("a > 1e300", "a > 1e+300"),
    ("a > 00.10", "a > 0.1"),
    ("a > -0", "a > 0"),
    ("a = 'it''s'", "a = 'it''s'"),
    ("a not between 1 and 2", "a NOT BETWEEN 1 AND 2"),
    ("(a + 1) BETWEEN (b) AND (c * 2)", "a + 1 BETWEEN b AND c * 2"),
    ("a in('y','x','y')", "a IN ('y', 'x')"),
    ("a not in ('x')", "a NOT IN ('x')"),
    ("not a in ('x')", "NOT a IN ('x')"),
    ("a is not null", "a IS NOT NULL"),
    ("a like 'x%%y'", "a LIKE 'x%y'"),
    ("a like 'x%%_%%y'", "a LIKE 'x%_%y'"),
    ("a like '%%'", "a LIKE '%'"),
    ("a like 'x\\y%'", "a LIKE 'x\\y%'"),
    ("a like 'x!%' escape '!'", "a LIKE 'x\\%' ESCAPE '\\'"),
    ("a like 'x!__' escape '!'", "a LIKE 'x\\__' ESCAPE '\\'"),
    ("a like '!!\\!%' escape '!'", "a LIKE '!\\\\\\%' ESCAPE '\\'"),
    ("a like 'x!!' escape '!'", "a LIKE 'x!'"),
    ("a not like 'x' escape '!'", "a NOT LIKE 'x'"),
]


@pytest.mark.parametrize(("text", "expected"), CANONICAL)
def test_canonical_text_is(text: str, expected: str) -> None:
    selector = Selector.parse(text)
    assert str(selector) == expected
    assert str(Selector.parse(expected)) == expected
    assert Selector.parse(expected) == selector
