"""Numeric literals of selectors: those of the language, and Java's spellings of the same numbers."""

from __future__ import annotations

import re
from math import isinf

__all__ = ["LiteralMistake", "number_literal"]

_MOST = 2**63 - 1
# At most 19 digits fit; longer ones are refused unconverted (Python refuses to convert thousands of digits).
_MOST_DIGITS = 19

_INTEGER = re.compile(r"([1-9][0-9]*|0)[lL]?")
_HEXADECIMAL = re.compile(r"0[xX]0*([0-9A-Fa-f]+)[lL]?")
_OCTAL = re.compile(r"0[0-9]+[lL]?")
_FLOAT = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")


class LiteralMistake(Exception):
    """A number is not written as the language requires; the text says what to write."""


def number_literal(token: str, negative: bool = False) -> int | float:
    """Return the number of a token that starts with a digit or a point, with its sign.

    Raises:
        LiteralMistake: the token is not a number.
    """
    # The quick way for nearly all; `isascii` because other scripts have digits too.
    if token.isdecimal() and token[0] != "0" and len(token) < _MOST_DIGITS and token.isascii():
        return -int(token) if negative else int(token)
    if found := _INTEGER.fullmatch(token):
        return _integer(found[1], 10, negative)
    if found := _HEXADECIMAL.fullmatch(token):
        return _integer(found[1], 16, negative)
    if _OCTAL.fullmatch(token):
        raise LiteralMistake(_octal_advice(token.rstrip("lL")))
    if found := _FLOAT.fullmatch(token):
        value = float(found[1])
        if isinf(value):
            raise LiteralMistake(f"the number {_short(token)} is too large for a 64-bit float")
        return -value if negative else value
    raise LiteralMistake(f"{_short(token)} is neither a number nor a name (a name cannot start with a digit)")


def _integer(digits: str, base: int, negative: bool) -> int:
    value = int(digits, base) if len(digits) <= _MOST_DIGITS else _MOST + 2
    if value > _MOST + negative:
        raise LiteralMistake(f"the integer {_short(digits)} does not fit in 64 bits; write it with a point, as a float")
    return -value if negative else value


def _octal_advice(digits: str) -> str:
    decimal = digits.lstrip("0") or "0"
    if len(digits) > _MOST_DIGITS or not set(digits) <= set("01234567"):
        return f"{_short(digits)} has a leading zero; write {_short(decimal)}"
    octal = int(digits, 8)
    choice = decimal if octal == int(decimal) else f"{octal} or {decimal}"
    return f"{digits} has a leading zero, which JMS and Java read as octal; write {choice}"


def _short(token: str) -> str:
    return token if len(token) <= 24 else f"{token[:20]}…"
