"""The operands of constraints as fields: plain bits, or entries of a dictionary.

Writing a constraint is listing its fields; reading it is asking a source for them one by one. So what follows an
operator stands twice, in `fields` and in `read_operand`, and both have to list the same widths and entries in the same
order; a property test writes and reads every kind.

A reader refuses everything that a normal form cannot have (an empty prefix, an IN of one value, an unsorted list): then
one constraint has one byte form, and a broker can compare what others advertise by its bytes.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from postroad.errors import PostroadError
from postroad.matching.encoding.errors import EncodingError
from postroad.selectors import Selector
from postroad.selectors.constraints import Operator, Range
from postroad.selectors.like import EscapeMistake, parse_like
from postroad.selectors.limits import MAX_LIKE_LENGTH, MAX_NESTING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from postroad.selectors.constraints import Constraint
    from postroad.selectors.like import LikePattern

__all__ = ["Entry", "Source", "fields", "read_operand"]


class Entry(Enum):
    """The dictionaries."""

    NAME = "name"
    TEXT = "text"  # that an attribute equals
    PIECE = "piece"  # of a text, a LIKE pattern, or the text of a TEST: apart, so that indices of texts stay short
    PATTERN = "topic pattern"
    NUMBER = "number"


class Source(Protocol):
    """What operands are read from."""

    def bits(self, width: int) -> int:
        """The next plain number of this width."""

    def count(self, width: int, kind: Entry) -> int:
        """The next number of distinct entries of a dictionary."""

    def entry(self, kind: Entry) -> Any:
        """Read the next entry of a dictionary."""


# A field is a number of some width, or an entry of a dictionary.
Field = tuple[int | Entry, Any]

_NUMBER = frozenset({Operator.EQUAL_NUMBER, Operator.NOT_EQUAL_NUMBER})
_TEXT = frozenset({Operator.EQUAL_TEXT, Operator.NOT_EQUAL_TEXT})
_PIECE = frozenset({Operator.PREFIX, Operator.SUFFIX, Operator.SUBSTRING})
_SET = frozenset({Operator.IN_TEXT, Operator.NOT_IN_TEXT})
_LIKE = frozenset({Operator.LIKE, Operator.NOT_LIKE})

_SET_COUNT_BITS = 16  # values of one IN
_ESCAPE = "\\"  # of LIKE patterns in their canonical text
# The normal form makes NOT (a AND b) of (a AND b) = FALSE, which is one level deeper.
_TEST_NESTING = MAX_NESTING + 1
_BOUND_BITS, _NO_BOUND, _OPEN, _CLOSED = 2, 0, 1, 2  # the kind of a bound of a range


def fields(constraint: Constraint) -> Iterator[Field]:
    """The fields of a constraint after its operator."""
    name, operator, operand = constraint
    if operator == Operator.TEST:
        yield Entry.PIECE, str(operand)
        return
    yield Entry.NAME, name
    if operator in _NUMBER:
        yield Entry.NUMBER, operand
    elif operator in _TEXT:
        yield Entry.TEXT, operand
    elif operator in _PIECE:
        yield Entry.PIECE, operand
    elif operator in _SET:
        yield _SET_COUNT_BITS, len(operand)
        yield from ((Entry.TEXT, text) for text in operand)
    elif operator in _LIKE:
        pattern, escape = operand.literal()
        yield Entry.PIECE, pattern
        yield 1, int(bool(escape))
    elif operator == Operator.EQUAL_BOOLEAN:
        yield 1, int(operand)
    elif operator == Operator.RANGE:
        yield from _bound(operand.low, operand.low_open)
        yield from _bound(operand.high, operand.high_open)


def _bound(number: int | float | None, is_open: bool) -> Iterator[Field]:
    if number is None:
        yield _BOUND_BITS, _NO_BOUND
    else:
        yield _BOUND_BITS, _OPEN if is_open else _CLOSED
        yield Entry.NUMBER, number


def read_operand(operator: Operator, source: Source) -> Any:
    """The operand of a constraint after its name.

    Raises:
        EncodingError: it is not an operand that the normal form of a selector can have.
    """
    if operator in _NUMBER:
        return source.entry(Entry.NUMBER)
    if operator in _TEXT:
        return source.entry(Entry.TEXT)
    if operator in _PIECE:
        return _piece(source)
    if operator in _SET:
        return _set(source)
    if operator in _LIKE:
        return _like(source)
    if operator == Operator.EQUAL_BOOLEAN:
        return bool(source.bits(1))
    if operator == Operator.RANGE:
        return _range(source)
    return _test(source) if operator == Operator.TEST else None


def _piece(source: Source) -> str:
    text: str = source.entry(Entry.PIECE)
    if not text:
        raise EncodingError("an empty prefix, suffix or substring")
    return text


def _set(source: Source) -> tuple[str, ...]:
    # Bounded by the dictionary: an entry of a dictionary of one has no bits, so the bytes alone would not bound it.
    texts = tuple(source.entry(Entry.TEXT) for _ in range(source.count(_SET_COUNT_BITS, Entry.TEXT)))
    if len(texts) < 2 or list(texts) != sorted(set(texts)):
        raise EncodingError("the values of an IN are two or more, sorted and distinct")
    return texts


def _like(source: Source) -> LikePattern:
    text, escape = source.entry(Entry.PIECE), _ESCAPE if source.bits(1) else ""
    try:
        pattern = parse_like(text, escape)
    except EscapeMistake:
        raise EncodingError(f"LIKE pattern {text!r} escapes what needs no escape") from None
    if pattern.length > MAX_LIKE_LENGTH:
        raise EncodingError(
            f"a LIKE pattern of {pattern.length:,} characters; a selector has at most {MAX_LIKE_LENGTH:,}"
        )
    return pattern


def _range(source: Source) -> Range:
    low, low_open = _read_bound(source)
    high, high_open = _read_bound(source)
    if low is not None and high is not None and low >= high:
        raise EncodingError(f"a range from {low} to {high}")
    return Range(low, low_open, high, high_open)


def _read_bound(source: Source) -> tuple[int | float | None, bool]:
    kind = source.bits(_BOUND_BITS)
    if kind == _NO_BOUND:
        return None, False
    if kind not in (_OPEN, _CLOSED):
        raise EncodingError(f"bound of unknown kind {kind}")
    return source.entry(Entry.NUMBER), kind == _OPEN


def _test(source: Source) -> Any:
    text = source.entry(Entry.PIECE)
    try:
        return Selector.parse(text, _TEST_NESTING).condition
    except PostroadError as error:
        raise EncodingError(f"the text of a TEST is not a selector: {error}") from None
