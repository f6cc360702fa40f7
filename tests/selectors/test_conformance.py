"""The language case by case: selector, message, and the truth of one for the other."""

from __future__ import annotations

import math
from typing import Any

import pytest

from postroad.messages import Untyped
from postroad.selectors import Selector
from postroad.selectors.generated_code import generate

T, F, U = True, False, None
BIG = 2**53


def check(text: str, attributes: dict[str, Any], expected: bool | None) -> None:
    selector = Selector.parse(text)
    assert selector.evaluate(attributes) is expected
    assert selector.matches(attributes) is (expected is True)
    assert generate(selector)(attributes) is (expected is True)
    negated = Selector.parse(f"NOT ({text})") if text.strip() else None
    if negated is not None:
        assert negated.evaluate(attributes) is (None if expected is None else not expected)
        assert generate(negated)(attributes) is (expected is False)


@pytest.mark.parametrize("text", ["", " ", "\t\n\r\f "])
def test_blank_selector_matches_everything(text: str) -> None:
    check(text, {}, T)
    assert str(Selector.parse(text)) == "TRUE"


# t, f and u are conditions of known truth.
TRUTHS = {"t": True, "f": False}
AND_TABLE = {"tt": T, "tf": F, "tu": U, "ft": F, "ff": F, "fu": F, "ut": U, "uf": F, "uu": U}
OR_TABLE = {"tt": T, "tf": T, "tu": T, "ft": T, "ff": F, "fu": U, "ut": T, "uf": U, "uu": U}
EQUAL_TABLE = {"tt": T, "tf": F, "tu": U, "ft": F, "ff": T, "fu": U, "ut": U, "uf": U, "uu": U}


@pytest.mark.parametrize(("pair", "expected"), AND_TABLE.items())
def test_and_has_its_truth_table(pair: str, expected: bool | None) -> None:
    check(f"{pair[0]} AND {pair[1]}", TRUTHS, expected)


@pytest.mark.parametrize(("pair", "expected"), OR_TABLE.items())
def test_or_has_its_truth_table(pair: str, expected: bool | None) -> None:
    check(f"{pair[0]} OR {pair[1]}", TRUTHS, expected)


@pytest.mark.parametrize(("pair", "expected"), EQUAL_TABLE.items())
def test_conditions_compare_as_booleans(pair: str, expected: bool | None) -> None:
    one, other = (f"({condition} OR FALSE)" for condition in pair)
    check(f"{one} = {other}", TRUTHS, expected)
    check(f"{one} <> {other}", TRUTHS, None if expected is None else not expected)


@pytest.mark.parametrize(("text", "expected"), [("NOT t", F), ("NOT f", T), ("NOT u", U), ("NOT NOT t", T)])
def test_not_has_its_truth_table(text: str, expected: bool | None) -> None:
    check(text, TRUTHS, expected)


PRECEDENCE = [
    ("t OR t AND f", T),
    ("(t OR t) AND f", F),
    ("f AND f OR t", T),
    ("f AND (f OR t)", F),
    ("NOT f AND f", F),
    ("NOT (f AND f)", T),
    ("NOT t = f", T),
    ("(NOT t) = f", T),
    ("NOT f OR t", T),
    ("2 + 3 * 4 = 14", T),
    ("(2 + 3) * 4 = 20", T),
    ("10 - 4 - 3 = 3", T),
    ("10 - (4 - 3) = 9", T),
    ("24 / 4 / 2 = 3", T),
    ("24 / (4 / 2) = 12", T),
    ("8 / 4 * 2 = 4", T),
    ("-2 * -3 = 6", T),
    ("- - 2 = 2", T),
    ("-(2 + 3) = -5", T),
    ("1 - -1 = 2", T),
    ("1--1 = 2", T),
    ("5 BETWEEN 2 + 2 AND 2 * 3 AND t", T),
    ("5 NOT BETWEEN 1 AND 4 AND f OR t", T),
    ("n + 1 BETWEEN n AND n + 2", T),
    ("1 < 2 AND 2 < 3", T),
    ("(1 < 2) = (2 < 3)", T),
    ("(1 < 2) = t", T),
    ("t = (1 < 2)", T),
    ("TRUE = (1 > 2)", F),
    ("(t)", T),
    ("((n)) + ((1)) = (8)", T),
]


@pytest.mark.parametrize(("text", "expected"), PRECEDENCE)
def test_operators_bind_in_their_order(text: str, expected: bool | None) -> None:
    check(text, TRUTHS | {"n": 7}, expected)


ARITHMETIC = [
    ("7 / 2 = 3", T),
    ("-7 / 2 = -3", T),
    ("7 / -2 = -3", T),
    ("-7 / -2 = 3", T),
    ("7 / 2.0 = 3.5", T),
    ("7.0 / 2 = 3.5", T),
    ("1 / 0 = 1", U),
    ("1 / 0 <> 1", U),
    ("1 / 0.0 = 1", U),
    ("1.0 / 0 = 1", U),
    ("0 / 0 = 0", U),
    ("1.0 / -0.0 < 0", U),
    ("9223372036854775807 + 1 > 0", U),
    ("-9223372036854775808 - 1 < 0", U),
    ("9223372036854775807 * 2 > 0", U),
    ("-9223372036854775808 / -1 > 0", U),
    ("-(-9223372036854775808) > 0", U),
    ("9223372036854775807 + 1.0 > 0", T),
    ("9223372036854775806 + 1 = 9223372036854775807", T),
    ("1e308 * 10 > 0", U),
    ("1e308 * 10 = 1e308 * 10", U),
    ("-1e308 - 1e308 < 0", U),
    ("missing + 1 = 1", U),
    ("flag + 1 = 2", U),
    ("text + 1 = 6", U),
    ("bytes + 1 = 1", U),
    ("untyped + 1 = 6", T),
    ("+untyped = 5", T),
    ("-untyped = -5", T),
    ("+text = 5", U),
    ("+flag = 1", U),
    ("+untyped = '5'", U),
    ("half + 0 = 0.5", T),
    ("infinite > 1e308", T),
    ("infinite + 0 > 0", U),
    ("-infinite < 0", U),
    ("0x1F = 31", T),
    ("0XfL = 15", T),
    ("7L / 2l = 3", T),
    ("7d / 2 = 3.5", T),
    ("0.1f = 0.1", T),
    ("6.2 = 62e-1", T),
    ("7. = 7", T),
    (".5D = 0.5", T),
    ("7E3 = 7000", T),
    ("-57.9e2 = -5790", T),
    ("1e-400 = 0", T),
]


@pytest.mark.parametrize(("text", "expected"), ARITHMETIC)
def test_arithmetic_follows_the_number_rules(text: str, expected: bool | None) -> None:
    attributes = {"flag": True, "text": "5", "bytes": b"5", "untyped": Untyped("5"), "half": 0.5, "infinite": math.inf}
    check(text, attributes, expected)


EXACTNESS = [
    ("a > 9007199254740992.0", {"a": BIG + 1}, T),
    ("a = 9007199254740992.0", {"a": BIG + 1}, F),
    ("a = 9007199254740993", {"a": float(BIG)}, F),
    ("a < 9007199254740993", {"a": float(BIG)}, T),
    ("a = b", {"a": BIG + 1, "b": float(BIG)}, F),
    ("a = b", {"a": BIG, "b": float(BIG)}, T),
    ("a < 9223372036854775808.0", {"a": 2**63 - 1}, T),
    ("a = 9223372036854775808.0", {"a": 2**63 - 1}, F),
    ("a = -9223372036854775808", {"a": -(2.0**63)}, T),
    ("a + 0.0 = 9007199254740992.0", {"a": BIG + 1}, T),
    ("a = 0", {"a": -0.0}, T),
    ("a > 9007199254740992.0", {"a": Untyped("9007199254740993")}, T),
]


@pytest.mark.parametrize(("text", "attributes", "expected"), EXACTNESS)
def test_integers_and_floats_compare_exactly(text: str, attributes: dict[str, Any], expected: bool | None) -> None:
    check(text, attributes, expected)


# For each pair of types: the truth of = for equal-looking values, of <>, and of an ordering.
VALUES: dict[str, Any] = {"text": "5", "untyped": Untyped("5"), "number": 5, "boolean": True, "bytes": b"5"}
CLASHES = {
    ("text", "text"): (T, F, U),
    ("text", "untyped"): (T, F, U),
    ("text", "number"): (U, U, U),
    ("text", "boolean"): (U, U, U),
    ("text", "bytes"): (U, U, U),
    ("untyped", "untyped"): (T, F, T),
    ("untyped", "number"): (T, F, T),
    ("untyped", "boolean"): (U, U, U),
    ("untyped", "bytes"): (U, U, U),
    ("number", "number"): (T, F, T),
    ("number", "boolean"): (U, U, U),
    ("number", "bytes"): (U, U, U),
    ("boolean", "boolean"): (T, F, U),
    ("boolean", "bytes"): (U, U, U),
    ("bytes", "bytes"): (U, U, U),
}


@pytest.mark.parametrize(("kinds", "expected"), CLASHES.items())
def test_types_compare_or_are_unknown(kinds: tuple[str, str], expected: tuple[bool | None, ...]) -> None:
    for one, other in (kinds, kinds[::-1]):
        attributes = {"a": VALUES[one], "b": VALUES[other]}
        check("a = b", attributes, expected[0])
        check("a <> b", attributes, expected[1])
        check("a <= b", attributes, expected[2])
        check("a >= b", attributes, expected[2])


LITERALS = [
    ("a = '5'", {"a": "5"}, T),
    ("a = '5'", {"a": "5.0"}, F),
    ("a = '5'", {"a": 5}, U),
    ("a = 5", {"a": "5"}, U),
    ("a <> 5", {"a": "x"}, U),
    ("a <> 'x'", {"a": 5}, U),
    ("a <> 'x'", {"a": "y"}, T),
    ("a <> 'x'", {}, U),
    ("a > 'x'", {"a": "y"}, U),
    ("a > TRUE", {"a": True}, U),
    ("a = TRUE", {"a": True}, T),
    ("a = TRUE", {"a": 1}, U),
    ("a = TRUE", {"a": "TRUE"}, U),
    ("a = TRUE", {"a": Untyped("true")}, U),
    ("a <> TRUE", {"a": False}, T),
    ("a <> FALSE", {"a": False}, F),
    ("a = 1", {"a": True}, U),
    ("a", {"a": True}, T),
    ("a", {"a": False}, F),
    ("a", {"a": 1}, U),
    ("a", {"a": "TRUE"}, U),
    ("a", {}, U),
    ("'x' = 'x'", {}, T),
    ("'x' <> 'x'", {}, F),
    ("'x' < 'y'", {}, U),
    ("5 = '5'", {}, U),
    ("TRUE = TRUE", {}, T),
    ("TRUE", {}, T),
    ("FALSE OR TRUE", {}, T),
    ("(1 = 1) = 5", {}, U),
    ("a = 'it''s'", {"a": "it's"}, T),
    ("a = ''", {"a": ""}, T),
    ("a = ''", {}, U),
    ("a = 'X'", {"a": "x"}, F),
    ("A = 'x'", {"a": "x"}, U),
    ("a = 'e\u0301'", {"a": "\u00e9"}, F),
    ("5 < a", {"a": 6}, T),
    ("5 >= a", {"a": 6}, F),
    ("'x' = a", {"a": "x"}, T),
    ("2 * 3 = a", {"a": 6}, T),
    ("a > 2 * 3", {"a": 7}, T),
    ("a > 1 / 0", {"a": 7}, U),
]


@pytest.mark.parametrize(("text", "attributes", "expected"), LITERALS)
def test_attributes_compare_with_literals(text: str, attributes: dict[str, Any], expected: bool | None) -> None:
    check(text, attributes, expected)


UNTYPED = [
    *((f"a = {number}", spelled, T) for number, spelled in [("5", "5"), ("5", "5.0"), ("-5", "-5"), ("5", "+5")]),
    *((f"a = {number}", spelled, T) for number, spelled in [("0", "-0"), ("1000", "1e3"), ("0.5", ".5"), ("5", "5.")]),
    *((f"a = {number}", spelled, T) for number, spelled in [("0.5", "00.5"), ("1000", "1E+3"), ("0.05", "5e-2")]),
    *(("a = 5", spelled, U) for spelled in ["", " 5", "5 ", "05", "0x5", "5L", "5f", "1e", "five", "--5", "5\n"]),
    *(
        ("a <> 5", spelled, U)
        for spelled in ["", "005", "\u0665", "5,0", "1_0", "inf", "nan", "Infinity", "1e999", "."]
    ),
    ("a > 0", "9223372036854775807", T),
    ("a > 0", "9223372036854775808", U),
    ("a > 0", "9223372036854775808.0", T),
    ("a < 0", "-9223372036854775808", T),
    ("a = '5'", "5", T),
    ("a = '5'", "5.0", F),
    ("a <> '5'", "5.0", T),
    ("a > '5'", "6", U),
    ("a = '5' AND a = 5", "5", T),
    ("a BETWEEN 4 AND 6", "5", T),
    ("a BETWEEN 4 AND 6", "x", U),
    ("a IN ('5', '6')", "5", T),
    ("a LIKE '5%'", "5.0", T),
    ("a", "TRUE", U),
    ("a IS NOT NULL", "", T),
]


@pytest.mark.parametrize(("text", "spelled", "expected"), UNTYPED)
def test_untyped_text_is_a_number_where_it_reads_as_one(text: str, spelled: str, expected: bool | None) -> None:
    check(text, {"a": Untyped(spelled)}, expected)


@pytest.mark.parametrize(
    ("one", "other", "equal", "less"),
    [("5", "5.0", F, F), ("5", "5", T, F), ("5", "6", F, T), ("10", "9", F, F), ("x", "y", F, U), ("x", "x", T, U)],
)
def test_two_untyped_texts_are_equal_as_texts_and_ordered_as_numbers(
    one: str, other: str, equal: bool, less: bool | None
) -> None:
    attributes = {"a": Untyped(one), "b": Untyped(other)}
    check("a = b", attributes, equal)
    check("a < b", attributes, less)


BETWEEN = [
    ("a BETWEEN 1 AND 3", 1, T),
    ("a BETWEEN 1 AND 3", 3, T),
    ("a BETWEEN 1 AND 3", 3.5, F),
    ("a BETWEEN 3 AND 1", 2, F),
    ("a BETWEEN 1 AND 3", "2", U),
    ("a BETWEEN 1 AND 3", None, U),
    ("a NOT BETWEEN 1 AND 3", 4, T),
    ("a NOT BETWEEN 1 AND 3", 2, F),
    ("a NOT BETWEEN 3 AND 1", 2, T),
    ("a NOT BETWEEN 1 AND 3", True, U),
    ("a BETWEEN 1 AND missing", 2, U),
    ("a BETWEEN 1 AND missing", 0, F),
    ("a NOT BETWEEN 1 AND missing", 0, T),
    ("a BETWEEN missing AND 3", 4, F),
    ("2 BETWEEN a AND 3", 1, T),
    ("a BETWEEN -1 AND +1", 0, T),
    ("a BETWEEN 1.5 AND 2.5", 2, T),
    ("a between 1 and 3 AND a <> 2", 2, F),
]


@pytest.mark.parametrize(("text", "value", "expected"), BETWEEN)
def test_between_includes_both_bounds(text: str, value: Any, expected: bool | None) -> None:
    check(text, {} if value is None else {"a": value}, expected)


IN = [
    ("a IN ('UK', 'US')", "UK", T),
    ("a IN ('UK', 'US')", "FR", F),
    ("a IN ('UK')", "UK", T),
    ("a NOT IN ('UK', 'US')", "FR", T),
    ("a NOT IN ('UK', 'US')", "US", F),
    ("a IN ('UK', 'US')", None, U),
    ("a NOT IN ('UK', 'US')", None, U),
    ("a IN ('5')", 5, U),
    ("a NOT IN ('5')", 5, U),
    ("a NOT IN ('5', '6')", True, U),
    ("a NOT IN ('5', '6')", b"5", U),
    ("a in ('x','x')", "x", T),
    ("a IN ('')", "", T),
]


@pytest.mark.parametrize(("text", "value", "expected"), IN)
def test_in_looks_for_a_text(text: str, value: Any, expected: bool | None) -> None:
    check(text, {} if value is None else {"a": value}, expected)


LIKE = [
    ("'12%3'", "123", T),
    ("'12%3'", "12993", T),
    ("'12%3'", "1234", F),
    ("'l_se'", "lose", T),
    ("'l_se'", "loose", F),
    ("'\\_%' ESCAPE '\\'", "_foo", T),
    ("'\\_%' ESCAPE '\\'", "bar", F),
    ("'%'", "", T),
    ("'%'", "anything", T),
    ("'%%'", "x", T),
    ("''", "", T),
    ("''", "x", F),
    ("'_'", "", F),
    ("'_'", "x", T),
    ("'_'", "\U0001d11e", T),
    ("'_'", "e\u0301", F),
    ("'_%'", "", F),
    ("'%_'", "xy", T),
    ("'%a'", "banana", T),
    ("'%a%'", "bnn", F),
    ("'b%'", "banana", T),
    ("'%an%an%'", "banana", T),
    ("'%an%an%an%'", "banana", F),
    ("'a%a'", "a", F),
    ("'a%a'", "aa", T),
    ("'%_x%y'", "axby", T),
    ("'%_x%y'", "xby", F),
    ("'a%_'", "a", F),
    ("'A%'", "abc", F),
    ("'a.c'", "abc", F),
    ("'a.c'", "a.c", T),
    ("'[ab]'", "a", F),
    ("'a%'", "a\nb", T),
    ("'a_b'", "a\nb", T),
    ("'a'", "a\n", F),
    ("'100!%' ESCAPE '!'", "100%", T),
    ("'100!%' ESCAPE '!'", "1000", F),
    ("'!!%' ESCAPE '!'", "!x", T),
    ("'%%x' ESCAPE '%'", "%x", T),
    ("'__' ESCAPE '_'", "_", T),
    ("'it''s%'", "it's so", T),
    ("'''''%' ESCAPE ''''", "'x", T),
    ("'\\%'", "\\x", T),
]


@pytest.mark.parametrize(("pattern", "value", "expected"), LIKE)
def test_like_follows_its_pattern(pattern: str, value: str, expected: bool) -> None:
    for given in (value, Untyped(value)):
        check(f"a LIKE {pattern}", {"a": given}, expected)
        check(f"a NOT LIKE {pattern}", {"a": given}, not expected)


@pytest.mark.parametrize("value", [5, 5.0, True, b"5"])
def test_like_is_unknown_for_what_is_not_text(value: Any) -> None:
    check("a LIKE '%'", {"a": value}, U)
    check("a NOT LIKE '5'", {"a": value}, U)
    check("a LIKE '%'", {}, U)


@pytest.mark.parametrize("value", ["", "x", Untyped(""), 0, 0.0, False, b""])
def test_only_missing_attributes_are_null(value: Any) -> None:
    check("a IS NULL", {"a": value}, F)
    check("a IS NOT NULL", {"a": value}, T)
    check("a IS NULL", {"b": value}, T)
    check("a IS NOT NULL", {"b": value}, F)


@pytest.mark.parametrize("text", ["a is null", "A IS NULL OR a Is Null", "a iS nOt NuLl OR NOT a is not null"])
def test_keywords_have_any_case(text: str) -> None:
    check(text, {}, T)


@pytest.mark.parametrize(
    "name",
    [
        "_a",
        "$a",
        "a$b_1",
        "größe",
        "Ω",
        "名前",
        "a٣",
        "काम",
        "€a",
        "a‿b",
        "Ⅻ",
        "\u017f",
        "\u0131s",
        "İN",
        "nulls",
        "JMSType",
    ],
)
def test_names_are_those_of_java(name: str) -> None:
    check(f"{name} = 1", {name: 1}, T)
    assert Selector.parse(f"{name} = 1").attributes == {name}
