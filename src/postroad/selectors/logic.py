"""Three-valued logic over typed values: True, False, and None for unknown.

A missing attribute is unknown, and so is every comparison or sum that the types do not allow: a clash of types is not
an error. Numbers compare with numbers, and exactly even between integer and float, as in Python. Texts and booleans
have only `=` and `<>`. Bytes compare with nothing. Untyped text compares with a text as text, and with a number as a
number.
"""

from __future__ import annotations

import operator as python
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from postroad.messages import Untyped, number_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.messages import Value

__all__ = ["MIRRORED", "OPPOSITE", "ORDERINGS", "arithmetic", "compare", "is_text", "negative", "number", "positive"]

EQUALITIES: Final = frozenset(("=", "<>"))
ORDERINGS: Final = frozenset(("<", "<=", ">", ">="))
# NOT of a comparison is the opposite comparison: both are unknown for the same operands.
OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# The same comparison with its operands exchanged.
MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}

_PYTHON: dict[str, Callable[[Any, Any], bool]] = {
    "=": python.eq,
    "<>": python.ne,
    "<": python.lt,
    "<=": python.le,
    ">": python.gt,
    ">=": python.ge,
}

_NUMBER, _TEXT, _UNTYPED, _BOOLEAN, _OTHER = "number", "text", "untyped", "boolean", "other"
_KINDS: dict[type, str] = {int: _NUMBER, float: _NUMBER, str: _TEXT, Untyped: _UNTYPED, bool: _BOOLEAN, bytes: _OTHER}

_LEAST, _MOST = -(2**63), 2**63 - 1


def _kind(value: object) -> str:
    kind = _KINDS.get(value.__class__)
    return _kind_of_subclass(value) if kind is None else kind


def _kind_of_subclass(value: object) -> str:
    """Return the kind of a subclass: callers may pass enumerations and numpy floats, which no message has."""
    for base in (Untyped, str, bool, int, float):
        if isinstance(value, base):
            return _KINDS[base]
    return _OTHER


def is_text(value: object) -> bool:
    """Whether the value can be an operand of `IN` and `LIKE`."""
    return _kind(value) in (_TEXT, _UNTYPED)


def number(value: Value | None) -> int | float | None:
    """Return the value as an operand of arithmetic: itself, the number of untyped text, or unknown."""
    kind = _kind(value)
    if kind is _NUMBER:
        return value  # type: ignore[return-value]
    if kind is _UNTYPED:
        return number_of(value)  # type: ignore[arg-type]
    return None


def compare(operator: str, left: Value | None, right: Value | None) -> bool | None:
    """Return `left operator right`; unknown if an operand is, or if the types do not allow it."""
    if left is None or right is None:
        return None
    kinds = (_kind(left), _kind(right))
    if _NUMBER in kinds or (kinds == (_UNTYPED, _UNTYPED) and operator in ORDERINGS):
        left, right = number(left), number(right)
        if left is None or right is None:
            return None
        return _PYTHON[operator](left, right)
    if operator in ORDERINGS:
        return None
    if kinds == (_BOOLEAN, _BOOLEAN) or not {_BOOLEAN, _OTHER}.intersection(kinds):
        return _PYTHON[operator](left, right)
    return None


def arithmetic(operator: str, left: Value | None, right: Value | None) -> int | float | None:
    """Return `left operator right`; unknown if an operand is not a number, for overflow and for division by zero."""
    first, second = number(left), number(right)
    if first is None or second is None:
        return None
    if isinstance(first, int) and isinstance(second, int):
        return _of_integers(operator, first, second)
    return _of_floats(operator, float(first), float(second))


def _of_integers(operator: str, first: int, second: int) -> int | None:
    if operator == "+":
        result = first + second
    elif operator == "-":
        result = first - second
    elif operator == "*":
        result = first * second
    elif second == 0:
        return None
    else:
        # Python's // rounds down; the language rounds toward zero, as Java does.
        result = abs(first) // abs(second)
        if (first < 0) != (second < 0):
            result = -result
    return result if _LEAST <= result <= _MOST else None


def _of_floats(operator: str, first: float, second: float) -> float | None:
    if operator == "+":
        result = first + second
    elif operator == "-":
        result = first - second
    elif operator == "*":
        result = first * second
    elif second == 0.0:
        return None
    else:
        result = first / second
    return result if isfinite(result) else None


def positive(value: Value | None) -> int | float | None:
    """Unary plus: the number itself; unknown if it is infinite, as in all arithmetic."""
    return arithmetic("+", 0, value)


def negative(value: Value | None) -> int | float | None:
    """Unary minus; unknown for the smallest integer, whose opposite does not fit in 64 bits."""
    return arithmetic("-", 0, value)
