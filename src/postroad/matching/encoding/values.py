"""The categories of one value of a message: pieces of the kernel in `content`.

A category is one 64-bit word, mixed from its family, the hash of the attribute's name (`name`), and what the message
says: the hash of a text, a packed piece of it, or the place of a threshold that the number lies below. `families` makes
the words that predicates ask for in the same way, one by one in Python: a message has each word that a predicate which
holds for it asks for.

Each function appends to `out` and returns the new count. Beyond the end of `out` it only counts, so that the caller
learns how much room is needed. Spans lie in the buffer: they are those of a batch that was checked when it was decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.filters import mix64
from postroad.filters.hashes import derived_word, hash_span, mix_word
from postroad.kernels import device
from postroad.matching.encoding import families

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

__all__ = ["add_boolean", "add_bytes", "add_float", "add_integer", "add_text", "add_topic"]

_DOT = ord(".")
_LENGTH_SHIFT = np.uint64(56)
_SMALLEST, _LARGEST = -(2.0**63), 2.0**63


def _mixed(family: int) -> np.uint64:
    return np.uint64(mix64(family))


_EXISTS_TEXT, _EQUAL_TEXT = _mixed(families.EXISTS_TEXT), _mixed(families.EQUAL_TEXT)
_EXISTS_NUMBER = _mixed(families.EXISTS_NUMBER)
_EQUAL_INTEGER, _EQUAL_FLOAT = _mixed(families.EQUAL_INTEGER), _mixed(families.EQUAL_FLOAT)
_EXISTS_BOOLEAN, _EQUAL_BOOLEAN = _mixed(families.EXISTS_BOOLEAN), _mixed(families.EQUAL_BOOLEAN)
_EXISTS_BYTES = _mixed(families.EXISTS_BYTES)
_BELOW, _ABOVE = _mixed(families.BELOW), _mixed(families.ABOVE)
_PREFIX, _SUFFIX, _GRAM = _mixed(families.PREFIX), _mixed(families.SUFFIX), _mixed(families.GRAM)
_TOPIC, _LEVEL, _DEPTH = (
    np.uint64(families.topic_base(family)) for family in (families.TOPIC, families.LEVEL, families.DEPTH)
)
_MAX_LEVELS = families.MAX_LEVELS


@device
def _emit(out: Words, count: int, word: np.uint64) -> int:
    if count < len(out):
        out[count] = word
    return count + 1


@device
def add_topic(buffer: NDArray[np.uint8], start: int, end: int, out: Words, count: int) -> int:
    """The whole topic, each of its first levels, and how many levels it has."""
    count = _emit(out, count, derived_word(_TOPIC, hash_span(buffer, start, end)))
    depth, first = 0, start
    for at in range(start, end + 1):
        if at == end or buffer[at] == _DOT:
            if depth < _MAX_LEVELS:
                place = derived_word(_LEVEL, np.uint64(depth))
                count = _emit(out, count, derived_word(place, hash_span(buffer, first, at)))
            depth, first = depth + 1, at + 1
    return _emit(out, count, derived_word(_DEPTH, np.uint64(depth)))


@device
def _packed(buffer: NDArray[np.uint8], start: int, length: int) -> np.uint64:
    # A piece has MAX_GRAM bytes at most, below its length in the highest byte: different pieces are different words.
    word = np.uint64(length) << _LENGTH_SHIFT
    for index in range(length):
        word |= np.uint64(buffer[start + index]) << np.uint64(8 * index)
    return word


@device
def _add_pieces(
    buffer: NDArray[np.uint8], start: int, end: int, name: np.uint64, gram: int, out: Words, count: int
) -> int:
    prefix, suffix, inner = mix_word(name ^ _PREFIX), mix_word(name ^ _SUFFIX), mix_word(name ^ _GRAM)
    for length in range(1, min(gram, end - start) + 1):
        count = _emit(out, count, derived_word(prefix, _packed(buffer, start, length)))
        count = _emit(out, count, derived_word(suffix, _packed(buffer, end - length, length)))
    for at in range(start, end - gram + 1):
        count = _emit(out, count, derived_word(inner, _packed(buffer, at, gram)))
    return count


@device
def add_text(
    buffer: NDArray[np.uint8], start: int, end: int, name: np.uint64, gram: int, out: Words, count: int
) -> int:
    """A text under the name of this hash; pieces of it too when `gram` is not 0."""
    count = _emit(out, count, mix_word(name ^ _EXISTS_TEXT))
    count = _emit(out, count, derived_word(mix_word(name ^ _EQUAL_TEXT), hash_span(buffer, start, end)))
    return _add_pieces(buffer, start, end, name, gram, out, count) if gram > 0 else count


@device
def _add_ladder(value: float, name: np.uint64, thresholds: NDArray[np.float64], out: Words, count: int) -> int:
    below, above = mix_word(name ^ _BELOW), mix_word(name ^ _ABOVE)
    for place in range(len(thresholds)):
        if value < thresholds[place]:
            count = _emit(out, count, derived_word(below, np.uint64(place)))
        elif value > thresholds[place]:
            count = _emit(out, count, derived_word(above, np.uint64(place)))
    return count


@device
def add_integer(value: int | np.int64, name: np.uint64, thresholds: NDArray[np.float64], out: Words, count: int) -> int:
    """An integer, and the thresholds it lies below and above."""
    count = _emit(out, count, mix_word(name ^ _EXISTS_NUMBER))
    count = _emit(out, count, derived_word(mix_word(name ^ _EQUAL_INTEGER), np.uint64(value)))
    # Thresholds are below 2^53, so rounding a larger integer to a float cannot move it across one.
    return _add_ladder(np.float64(value), name, thresholds, out, count)


@device
def add_float(value: float, name: np.uint64, thresholds: NDArray[np.float64], out: Words, count: int) -> int:
    """A float; one that equals a 64-bit integer has the categories of that integer."""
    if value == np.floor(value) and _SMALLEST <= value < _LARGEST:
        return add_integer(np.int64(value), name, thresholds, out, count)
    count = _emit(out, count, mix_word(name ^ _EXISTS_NUMBER))
    bits = np.float64(value).view(np.uint64)
    count = _emit(out, count, derived_word(mix_word(name ^ _EQUAL_FLOAT), bits))
    return _add_ladder(value, name, thresholds, out, count)


@device
def add_boolean(value: np.uint8, name: np.uint64, out: Words, count: int) -> int:
    """A boolean, 0 or 1."""
    count = _emit(out, count, mix_word(name ^ _EXISTS_BOOLEAN))
    return _emit(out, count, derived_word(mix_word(name ^ _EQUAL_BOOLEAN), np.uint64(value)))


@device
def add_bytes(name: np.uint64, out: Words, count: int) -> int:
    """Bytes: selectors can only ask whether they are there."""
    return _emit(out, count, mix_word(name ^ _EXISTS_BYTES))
