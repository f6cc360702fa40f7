"""Selectors as plain tuples, made by the tests themselves: how they are written, and what they mean.

Everything here is written from the language's rules alone and shares nothing with the package, so that both can be held
against each other. It is slow and does one thing at a time. The forms:

    value      ("name", name)  ("text", text)  ("number", spelling, number)  ("boolean", truth)
               ("sign", "-", value)  ("arithmetic", "+", value, value)
    condition  ("compare", "<", x, x)  ("between", negated, value, low, high)  ("in", negated, name, texts)
               ("like", negated, name, items, escape)  ("null", negated, name)
               ("not", condition)  ("and", condition, condition)  ("or", condition, condition)
               and a name or a boolean; each x is a value, or under = and <> also a condition.

The items of a pattern are ANY, ONE, or a character.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from postroad.messages import Untyped

ANY, ONE = "any run", "any one"
UNKNOWN = None

Form = tuple[Any, ...]

# Writing

_LEVELS = {"or": 1, "and": 2, "not": 3, "compare": 4, "between": 4, "in": 4, "like": 4, "null": 4, "sign": 7}


def _level(form: Form) -> int:
    if form[0] == "arithmetic":
        return 5 if form[1] in "+-" else 6
    return _LEVELS.get(form[0], 8)


def write(form: Form, generous: bool = False) -> str:
    """The text of a form, with only the parentheses it needs, or generously with one around every part."""
    kind = form[0]

    def part(inner: Form, level: int) -> str:
        text = write(inner, generous)
        return f"({text})" if _level(inner) < level or (generous and kind != "sign") else text

    negation = "NOT " if len(form) > 1 and form[1] is True else ""
    if kind == "name":
        return spell(form[1])
    if kind == "text":
        return quote(form[1])
    if kind == "number":
        return str(form[1])
    if kind == "boolean":
        return "TRUE" if form[1] else "FALSE"
    if kind == "sign":
        return f"{form[1]}{part(form[2], 7)}"
    if kind == "arithmetic":
        own = _level(form)
        return f"{part(form[2], own)} {form[1]} {part(form[3], own + 1)}"
    if kind == "compare":
        return f"{part(form[2], 5)} {form[1]} {part(form[3], 5)}"
    if kind == "between":
        return f"{part(form[2], 5)} {negation}BETWEEN {part(form[3], 5)} AND {part(form[4], 5)}"
    if kind == "in":
        return f"{spell(form[2])} {negation}IN ({', '.join(map(quote, form[3]))})"
    if kind == "like":
        return f"{spell(form[2])} {negation}LIKE {write_pattern(form[3], form[4])}"
    if kind == "null":
        return f"{spell(form[2])} IS {negation}NULL"
    if kind == "not":
        return f"NOT {part(form[1], 3)}"
    own = _level(form)
    return f"{part(form[1], own)} {kind.upper()} {part(form[2], own + 1)}"


def spell(name: str) -> str:
    """A name as a selector writes it: in double quotes where it is not an identifier or is a reserved word."""
    return (
        name if (name.isidentifier() and name.lower() != "in") or name == "$d" else '"' + name.replace('"', '""') + '"'
    )


def quote(text: str) -> str:
    return "'" + "''".join(text.split("'")) + "'"


def write_pattern(items: tuple[str, ...], escape: str) -> str:
    text = ""
    for item in items:
        if item == ANY:
            text += "%"
        elif item == ONE:
            text += "_"
        else:
            text += escape + item if item in ("%", "_", escape) else item
    return quote(text) + (f" ESCAPE {quote(escape)}" if escape else "")


# Meaning


def kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, Untyped):
        return "untyped"
    return "text" if isinstance(value, str) else "bytes"


def read_number(text: str) -> Any:
    """What untyped text is as a number, character by character."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    mantissa, exponent = rest, ""
    for letter in "eE":
        if letter in mantissa:
            mantissa, _, exponent = mantissa.partition(letter)
            digits = exponent[1:] if exponent[:1] in ("+", "-") else exponent
            if not _is_digits(digits):
                return UNKNOWN
    if "." in mantissa:
        whole, _, fraction = mantissa.partition(".")
        if not _is_digits(whole + fraction):
            return UNKNOWN
    elif not _is_digits(mantissa):
        return UNKNOWN
    elif not exponent:
        if len(mantissa) > 1 and mantissa[0] == "0":
            return UNKNOWN
        number = sum(int(digit) * 10**place for place, digit in enumerate(reversed(mantissa)))
        return _in_64_bits(-number if text[0] == "-" else number)
    result = float(text)
    return UNKNOWN if math.isinf(result) else result


def _is_digits(text: str) -> bool:
    return text != "" and all(character in "0123456789" for character in text)


def _in_64_bits(number: int) -> Any:
    return number if -(2**63) <= number < 2**63 else UNKNOWN


def as_number(value: Any) -> Any:
    if value is UNKNOWN:
        return UNKNOWN
    if kind_of(value) == "untyped":
        return read_number(value)
    return value if kind_of(value) == "number" else UNKNOWN


def _order(left: Any, right: Any) -> int:
    """-1, 0 or 1; exact, as fractions, with the infinities at the ends."""
    if left in (math.inf, -math.inf) or right in (math.inf, -math.inf):
        ends = {math.inf: 1, -math.inf: -1}
        one, other = Fraction(ends.get(left, 0)), Fraction(ends.get(right, 0))
    else:
        one, other = Fraction(left), Fraction(right)
    return (one > other) - (one < other)


def compared(operator: str, left: Any, right: Any) -> Any:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    kinds = {kind_of(left), kind_of(right)}
    equality = operator in ("=", "<>")
    if kinds <= {"number", "untyped"} and not (kinds == {"untyped"} and equality):
        left, right = as_number(left), as_number(right)
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        order = _order(left, right)
        return {
            "=": order == 0,
            "<>": order != 0,
            "<": order < 0,
            "<=": order <= 0,
            ">": order > 0,
            ">=": order >= 0,
        }[operator]
    if equality and (kinds <= {"text", "untyped"} or kinds == {"boolean"}):
        same = left is right if kinds == {"boolean"} else list(left) == list(right)
        return same if operator == "=" else not same
    return UNKNOWN


def calculated(operator: str, left: Any, right: Any) -> Any:
    left, right = as_number(left), as_number(right)
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if operator == "/" and right == 0:
        return UNKNOWN
    if isinstance(left, int) and isinstance(right, int):
        exact = {"+": left + right, "-": left - right, "*": left * right}
        return _in_64_bits(math.trunc(Fraction(left, right)) if operator == "/" else exact[operator])
    left, right = float(left), float(right)
    results = {"+": left + right, "-": left - right, "*": left * right}
    result = left / right if operator == "/" else results[operator]
    return result if math.isfinite(result) else UNKNOWN


def like(items: tuple[str, ...], text: str) -> bool:
    if not items:
        return text == ""
    if items[0] == ANY:
        return like(items[1:], text) or (text != "" and like(items, text[1:]))
    return text != "" and items[0] in (ONE, text[0]) and like(items[1:], text[1:])


def value(form: Form, attributes: dict[str, Any]) -> Any:
    kind = form[0]
    if kind == "name":
        return attributes.get(form[1], UNKNOWN)
    if kind in ("text", "boolean"):
        return form[1]
    if kind == "number":
        return form[2]
    if kind == "sign":
        return calculated(form[1], 0, value(form[2], attributes))
    if kind == "arithmetic":
        return calculated(form[1], value(form[2], attributes), value(form[3], attributes))
    return truth(form, attributes)


def truth(form: Form, attributes: dict[str, Any]) -> Any:
    """TRUE, FALSE or UNKNOWN, as the rules say it."""
    kind = form[0]
    if kind in ("name", "boolean"):
        found = value(form, attributes)
        return found if isinstance(found, bool) else UNKNOWN
    if kind == "compare":
        return compared(form[1], value(form[2], attributes), value(form[3], attributes))
    if kind == "between":
        middle, low, high = (value(part, attributes) for part in form[2:])
        return _negated(form[1], _both(compared(">=", middle, low), compared("<=", middle, high)))
    if kind == "null":
        return _negated(form[1], attributes.get(form[2]) is None)
    if kind in ("in", "like"):
        text = attributes.get(form[2])
        if text is None or kind_of(text) not in ("text", "untyped"):
            return UNKNOWN
        return _negated(form[1], str(text) in form[3] if kind == "in" else like(form[3], str(text)))
    if kind == "not":
        return _negated(True, truth(form[1], attributes))
    one, other = truth(form[1], attributes), truth(form[2], attributes)
    if kind == "and":
        return _both(one, other)
    return _negated(True, _both(_negated(True, one), _negated(True, other)))


def _negated(negated: bool, given: Any) -> Any:
    return UNKNOWN if given is UNKNOWN else given is not negated


def _both(one: Any, other: Any) -> Any:
    if one is False or other is False:
        return False
    return UNKNOWN if UNKNOWN in (one, other) else True
