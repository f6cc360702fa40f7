"""Categories: what a message has, and what a conjunction asks for, each as one 64-bit word.

A category is a family (what kind of statement), a name and for most families a value. It is never written out as text,
so no separator needs escaping: the name is hashed, then the family is mixed in, then the value:

    base(family, name)            = mix64(hash(name) xor mix64(family))
    category(family, name, word)  = mix64(base xor mix64(word))

Two categories that happen to get the same word only make a message match once too often.
"""

from __future__ import annotations

import struct

from postroad.filters import derived_key, hash_bytes

__all__ = [
    "ABOVE",
    "ANY_TYPE",
    "BELOW",
    "DEPTH",
    "EQUAL_BOOLEAN",
    "EQUAL_FLOAT",
    "EQUAL_INTEGER",
    "EQUAL_TEXT",
    "EXISTS_BOOLEAN",
    "EXISTS_BYTES",
    "EXISTS_NUMBER",
    "EXISTS_TEXT",
    "GRAM",
    "LEVEL",
    "MAX_LEVELS",
    "PREFIX",
    "PRIORITY_NAME",
    "SUFFIX",
    "TOPIC",
    "base",
    "category",
    "equal_number",
    "packed",
    "topic_base",
]

# The paper's two kinds, for each of our types. The families without a value are categories by themselves.
EXISTS_TEXT, EQUAL_TEXT = 1, 2  # value: hash of the UTF-8 bytes
EXISTS_NUMBER, EQUAL_INTEGER, EQUAL_FLOAT = 3, 4, 5  # value: the integer in two's complement; the float's bits
EXISTS_BOOLEAN, EQUAL_BOOLEAN = 6, 7  # value: 0 or 1
EXISTS_BYTES = 8
ANY_TYPE = (EXISTS_TEXT, EXISTS_NUMBER, EXISTS_BOOLEAN, EXISTS_BYTES)
# The sharp scheme.
BELOW, ABOVE = 9, 10  # value: the threshold's place in the ladder
PREFIX, SUFFIX, GRAM = 11, 12, 13  # value: the bytes, packed
# Topics: these have no name, and the word 0 is in the place of its hash.
TOPIC = 14  # value: hash of the whole topic
LEVEL = 15  # value: hash of the level, mixed with its place
DEPTH = 16  # value: the number of levels

MAX_LEVELS = 8  # deeper levels have no category: they would fill the vectors of deep topics for few subscriptions
PRIORITY_NAME = hash_bytes(b"JMSPriority")

_MASK = 2**64 - 1
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def base(family: int, name: bytes | str) -> int:
    """The word of a family and a name: the category itself in families without a value."""
    raw = name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name
    return derived_key(hash_bytes(raw), family)


def category(family: int, name: bytes | str, word: int) -> int:
    """The category of a family, a name and a value's word."""
    return derived_key(base(family, name), word)


def topic_base(family: int) -> int:
    """The word of a family of topics."""
    return derived_key(0, family)


def packed(piece: bytes) -> int:
    """A prefix, suffix or gram as a word: its bytes, little-endian, and its length in the top byte."""
    return int.from_bytes(piece, "little") | len(piece) << 56


def equal_number(value: int | float) -> tuple[int, int] | None:
    """Family and word of a number, the same for equal numbers of either type; None when no message can hold it."""
    if isinstance(value, float):
        if not value.is_integer() or not _SMALLEST <= value <= _LARGEST:
            return EQUAL_FLOAT, int.from_bytes(struct.pack("<d", value), "little")
        value = int(value)
    if _SMALLEST <= value <= _LARGEST:
        return EQUAL_INTEGER, value & _MASK
    try:
        near = float(value)
    except OverflowError:
        return None
    return equal_number(near) if near == value else None
