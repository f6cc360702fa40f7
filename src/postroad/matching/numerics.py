"""Exact comparison of integers with floats, and 64-bit arithmetic that knows when it leaves its range.

Selectors calculate as SQL does: a result outside 64 bits is unknown, never wrapped. In a kernel integers wrap silently
and a division by zero or of the smallest integer by -1 stops the process, so each function finds out before or from the
signs; what it returns beside `False` is not used.

No float here is NaN: attributes and literals are refused if they are, and a calculation that gives NaN or an infinity
is unknown.
"""

from __future__ import annotations

import numpy as np

from postroad.kernels import Float, Int, Truth, device

_LIMIT = 2.0**63
_SMALLEST = np.int64(-(2**63))


@device
def compare_integer_float(integer: Int, number: Float) -> Int:
    """-1, 0 or 1 as the integer is below, equal to or above the float, without rounding the integer."""
    # Outside these two bounds the conversion to an integer is undefined. Both are powers of two, so exact as floats.
    if number >= _LIMIT:
        return -1
    if number < -_LIMIT:
        return 1
    # Cut off towards zero: for an equal whole part the rest decides, and its sign is that of the number.
    whole = np.int64(number)
    if integer != whole:
        return -1 if integer < whole else 1
    fraction = number - np.float64(whole)
    if fraction == 0.0:
        return 0
    return -1 if fraction > 0.0 else 1


@device
def compare_numbers(
    integral: bool, integer: Int, number: Float, other_integral: bool, other_integer: Int, other: Float
) -> Int:
    """-1, 0 or 1; each side is an integer or a float."""
    if integral and other_integral:
        return 0 if integer == other_integer else (-1 if integer < other_integer else 1)
    if integral:
        return compare_integer_float(integer, other)
    if other_integral:
        return -compare_integer_float(other_integer, number)
    return 0 if number == other else (-1 if number < other else 1)


@device
def add(one: Int, other: Int) -> tuple[Truth, Int]:
    """(fits, sum)."""
    # It has wrapped if the sum has another sign than both operands.
    total = one + other
    return ((one ^ total) & (other ^ total)) >= 0, total


@device
def subtract(one: Int, other: Int) -> tuple[Truth, Int]:
    """(fits, difference)."""
    # It has wrapped if the operands differ in sign, and the difference has not the sign of the first.
    total = one - other
    return ((one ^ other) & (one ^ total)) >= 0, total


@device
def multiply(one: Int, other: Int) -> tuple[Truth, Int]:
    """(fits, product)."""
    if one == 0 or other == 0:
        return True, np.int64(0)
    if (one == -1 and other == _SMALLEST) or (other == -1 and one == _SMALLEST):
        return False, np.int64(0)
    total = one * other
    return total // other == one and total % other == 0, total


@device
def divide(one: Int, other: Int) -> tuple[Truth, Int]:
    """(defined, quotient truncated toward zero)."""
    # The processor traps on the one quotient that does not fit, so it must not be tried.
    if other == 0 or (one == _SMALLEST and other == -1):
        return False, np.int64(0)
    quotient = one // other
    if quotient < 0 and quotient * other != one:
        quotient += 1
    return True, quotient
