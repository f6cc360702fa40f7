"""Which untyped texts are numbers: those with an optional sign and a numeric literal of the selector language.

    integer   0 | [1-9][0-9]*                       and it fits in 64 bits, signed
    float     digits with a point and/or an exponent, and the value is finite

No blanks, no leading zeros in an integer (`007` is a name, not seven), no hexadecimal, no `inf`. `parse_number` is the
rule for kernels, `number_of` the rule in Python; they agree on every text, which the tests check.
"""

from __future__ import annotations

import re
from math import isinf
from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import device
from postroad.messages.values import LARGEST_INTEGER, SMALLEST_INTEGER

if TYPE_CHECKING:
    from postroad.messages.columns import Bytes

__all__ = ["FLOAT", "HARD", "INTEGER", "NOT_A_NUMBER", "number_of", "parse_number"]

# Results of `parse_number`.
NOT_A_NUMBER, INTEGER, FLOAT, HARD = 0, 1, 2, 3

_NUMBER = re.compile(
    r"[+-]?(?:(?P<integer>0|[1-9][0-9]*)|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
)
# A sign and the 19 digits of 2**63: a longer integer literal cannot fit, and is not converted.
_LONGEST_INTEGER = 20

_ZERO, _NINE, _PLUS, _MINUS, _POINT = ord("0"), ord("9"), ord("+"), ord("-"), ord(".")
_SMALL_E, _LARGE_E = ord("e"), ord("E")

# 19 decimal digits always fit in an unsigned 64-bit integer; of 20 only some do.
_MOST_DIGITS = 19
# Clinger's exact case: an integer up to 2**53 and a power of ten up to 10**22 are both exact as float64, so one
# multiplication or division rounds once, which is correct rounding. Everything else is HARD.
_EXACT_MANTISSA = np.uint64(2**53)
_EXACT_POWER = 22
_POWERS = np.array([float(10**power) for power in range(_EXACT_POWER + 1)])
# With an exponent beyond this, every mantissa that fits in a message gives infinity or zero. The limit also keeps the
# exponent from overflowing.
_LARGEST_EXPONENT = 1_000_000

_TOP = np.uint64(2**63)
_TEN = np.uint64(10)


def number_of(text: str) -> int | float | None:
    """Return the number that untyped text stands for, or None."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    if found["integer"] is not None:
        if len(text) > _LONGEST_INTEGER:
            return None
        integer = int(text)
        return integer if SMALLEST_INTEGER <= integer <= LARGEST_INTEGER else None
    value = float(text)
    return None if isinf(value) else value


@device
def parse_number(buffer: Bytes, start: int, end: int) -> tuple[int, int, float]:
    """Read `buffer[start:end]` as a number: (kind, integer, float).

    kind is NOT_A_NUMBER, INTEGER (the second field holds it), FLOAT (the third holds it, correctly rounded) or HARD:
    the text has the form of a float, but its value needs more than one exact operation; the caller asks `number_of`,
    which may still say None when the value is infinite.
    """
    at = start
    negative = False
    if at < end and (buffer[at] == _MINUS or buffer[at] == _PLUS):
        negative = buffer[at] == _MINUS
        at += 1
    first = at
    mantissa, significant, at = _digits(buffer, at, end, np.uint64(0), 0)
    whole_digits = at - first
    if at == end:
        if whole_digits == 0 or (whole_digits > 1 and buffer[first] == _ZERO):
            return NOT_A_NUMBER, 0, 0.0
        return _integer(mantissa, significant, negative)
    power = 0
    fraction_digits = 0
    if buffer[at] == _POINT:
        fraction = at + 1
        mantissa, significant, at = _digits(buffer, fraction, end, mantissa, significant)
        fraction_digits = at - fraction
        power = -fraction_digits
    if whole_digits + fraction_digits == 0:
        return NOT_A_NUMBER, 0, 0.0
    if at < end:
        exponent, good = _exponent(buffer, at, end)
        if not good:
            return NOT_A_NUMBER, 0, 0.0
        power += exponent
    return _scaled(mantissa, significant, power, negative)


@device
def _digits(buffer: Bytes, at: int, end: int, mantissa: np.uint64, significant: int) -> tuple[np.uint64, int, int]:
    """Append digits to a mantissa: (mantissa, significant digits, offset of the first byte that is not a digit).

    `significant` counts from the first digit that is not zero. Digits after the 19th only count: the mantissa would
    overflow.
    """
    while at < end:
        digit = buffer[at]
        if digit < _ZERO or digit > _NINE:
            break
        if significant > 0 or digit != _ZERO:
            significant += 1
            if significant <= _MOST_DIGITS:
                mantissa = mantissa * _TEN + np.uint64(digit - _ZERO)
        at += 1
    return mantissa, significant, at


@device
def _integer(mantissa: np.uint64, significant: int, negative: bool) -> tuple[int, int, float]:
    if significant > _MOST_DIGITS or mantissa > _TOP or (mantissa == _TOP and not negative):
        return NOT_A_NUMBER, 0, 0.0
    if mantissa == _TOP:
        return INTEGER, SMALLEST_INTEGER, 0.0
    value = np.int64(mantissa)
    return INTEGER, int(-value if negative else value), 0.0


@device
def _exponent(buffer: Bytes, at: int, end: int) -> tuple[int, bool]:
    """Read `e`, an optional sign and digits up to the end: (exponent, well formed)."""
    if buffer[at] != _SMALL_E and buffer[at] != _LARGE_E:
        return 0, False
    at += 1
    negative = False
    if at < end and (buffer[at] == _MINUS or buffer[at] == _PLUS):
        negative = buffer[at] == _MINUS
        at += 1
    if at == end:
        return 0, False
    exponent = 0
    while at < end:
        digit = buffer[at]
        if digit < _ZERO or digit > _NINE:
            return 0, False
        if exponent < _LARGEST_EXPONENT:
            exponent = exponent * 10 + int(digit - _ZERO)
        at += 1
    return -exponent if negative else exponent, True


@device
def _scaled(mantissa: np.uint64, significant: int, power: int, negative: bool) -> tuple[int, int, float]:
    if significant == 0:
        return FLOAT, 0, -0.0 if negative else 0.0
    if significant > _MOST_DIGITS or mantissa > _EXACT_MANTISSA or power > _EXACT_POWER or power < -_EXACT_POWER:
        return HARD, 0, 0.0
    value = float(mantissa)
    value = value / float(_POWERS[-power]) if power < 0 else value * float(_POWERS[power])
    return FLOAT, 0, -value if negative else value
