"""Parts of kernels that check untrusted bytes: UTF-8, topics, attribute entries, header lines.

Each returns (fault, offset), and `faults.FINE` for valid bytes. Offsets are signed and start at 0; every read lies
before an `end` that the caller has checked against the buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import device
from postroad.messages import faults
from postroad.messages.characters import is_invisible
from postroad.messages.fields import ENTRY_BYTES, u8_at, u16_at, u32_at
from postroad.messages.limits import MAX_ATTRIBUTES, MAX_NAME_BYTES, MAX_TOPIC_LEVELS
from postroad.messages.values import Tag

if TYPE_CHECKING:
    from postroad.messages.columns import Bytes

_BLANK, _DELETE, _DOT, _STAR, _GREATER = ord(" "), 0x7F, ord("."), ord("*"), ord(">")
_NEWLINE, _RETURN, _COLON, _BACKSLASH = ord("\n"), ord("\r"), ord(":"), ord("\\")
_LETTER_C, _LETTER_N, _LETTER_R = ord("c"), ord("n"), ord("r")

_ONE = np.uint64(1)


def byte_marks(special: bytes) -> Bytes:
    """Return a table of all 256 bytes that has 1 for each of these."""
    table = np.zeros(256, dtype=np.uint8)
    table[list(special)] = 1
    return table


# Bytes at which a scan stops: in a topic everything except ordinary ASCII characters; in a header line what ends the
# name or value, begins an escape, or is not allowed.
_TOPIC_STOPS = byte_marks(bytes(range(_BLANK + 1)) + b".*>" + bytes(range(_DELETE, 256)))
_VALUE_STOPS = byte_marks(b"\n\r\0\\")
_NAME_STOPS = byte_marks(b"\n\r\0\\:")

# Kernels need the tags as plain integers.
_TEXT, _UNTYPED, _INTEGER, _FLOAT, _BOOLEAN, _BYTES, _RESERVED = (
    Tag.TEXT,
    Tag.UNTYPED,
    Tag.INTEGER,
    Tag.FLOAT,
    Tag.BOOLEAN,
    Tag.BYTES,
    Tag.RESERVED,
)


@device
def is_ascii(buffer: Bytes, start: int, end: int) -> bool:
    """Whether a span is ASCII. No early exit and unsigned indices let the compiler read many bytes at a time."""
    seen = np.uint8(0)
    for at in range(np.uint64(start), np.uint64(end)):
        seen |= buffer[at]
    return bool(seen < 0x80)


@device
def code_point(buffer: Bytes, at: int, end: int) -> tuple[int, int]:
    """(code point, size) at an offset before `end`, or (-1, 0) where the bytes are not UTF-8 (Unicode, table 3-7)."""
    lead = u8_at(buffer, at)
    if lead < 0x80:
        return lead, 1
    if lead < 0xC2 or lead > 0xF4:
        return -1, 0
    size = 2 if lead < 0xE0 else (3 if lead < 0xF0 else 4)
    if at + size > end:
        return -1, 0
    point = lead & (0x7F >> size)
    for follower in range(at + 1, at + size):
        byte = u8_at(buffer, follower)
        if byte & 0xC0 != 0x80:
            return -1, 0
        point = point << 6 | byte & 0x3F
    # Overlong forms, surrogates, and what lies beyond Unicode.
    if size == 3 and (point < 0x800 or 0xD800 <= point <= 0xDFFF):
        return -1, 0
    if size == 4 and (point < 0x10000 or point > 0x10FFFF):
        return -1, 0
    return point, size


@device
def check_utf8(buffer: Bytes, start: int, end: int) -> int:
    """The offset of the first byte that is not part of valid UTF-8, or -1."""
    if is_ascii(buffer, start, end):
        return -1
    at = start
    while at < end:
        point, size = code_point(buffer, at, end)
        if point < 0:
            return at
        at += size
    return -1


@device
def _skip(buffer: Bytes, at: int, end: int, stops: Bytes) -> int:
    """Return the first offset from `at` on whose byte has a mark in `stops`, or `end`.

    A table and unsigned indices leave one branch per byte; most bytes of topics and header lines go by here.
    """
    place, limit = np.uint64(at), np.uint64(end)
    while place < limit and stops[buffer[place]] == 0:
        place += _ONE
    return np.int64(place)  # type: ignore[return-value]


@device
def check_topic(buffer: Bytes, start: int, end: int) -> tuple[int, int]:
    """Check that a span is a topic that messages may have: (fault, offset).

    `_skip` jumps over plain bytes, so only dots, wildcards, blanks, control bytes and bytes of other characters are
    checked one by one. `level` is where the current level begins: a level is empty if a dot, or the end, is there.
    """
    level, levels = start, 1
    at = _skip(buffer, start, end, _TOPIC_STOPS)
    while at < end:
        byte = buffer[at]
        size = 1
        if byte == _DOT:
            if at == level:
                return faults.TOPIC_EMPTY_LEVEL, at
            level = at + 1
            levels += 1
        elif byte >= 0x80:
            point, size = code_point(buffer, at, end)
            if point < 0:
                return faults.NOT_UTF8, at
            if is_invisible(point):
                return faults.TOPIC_BLANK, at
        elif byte in (_STAR, _GREATER):
            return faults.TOPIC_WILDCARD, at
        else:
            return faults.TOPIC_BLANK, at
        at = _skip(buffer, at + size, end, _TOPIC_STOPS)
    if level == end:
        return faults.TOPIC_EMPTY_LEVEL, end
    if levels > MAX_TOPIC_LEVELS:
        return faults.TOPIC_LEVELS, start
    return faults.FINE, 0


@device
def check_entries(buffer: Bytes, start: int, end: int) -> tuple[int, int, int]:
    """Check an attribute block: (fault, offset, number of entries)."""
    at, count = start, 0
    while at < end:
        if at + ENTRY_BYTES > end:
            return faults.ENTRY_CUT, at, count
        name = at + ENTRY_BYTES
        value = name + u8_at(buffer, at + 1)
        following = value + u16_at(buffer, at + 2)
        if following > end:
            return faults.ENTRY_CUT, at, count
        if value == name:
            return faults.NAME_EMPTY, at, count
        bad = check_utf8(buffer, name, value)
        if bad >= 0:
            return faults.NOT_UTF8, bad, count
        fault, place = _check_value(buffer, u8_at(buffer, at), value, following)
        if fault:
            return fault, at if place < 0 else place, count
        at = following
        count += 1
        if count > MAX_ATTRIBUTES:
            return faults.TOO_MANY, at, count
    return faults.FINE, 0, count


@device
def _check_value(buffer: Bytes, tag: int, start: int, end: int) -> tuple[int, int]:
    """Return (fault, offset); offset -1 means that the fault is in the head of the entry."""
    if tag in (_TEXT, _UNTYPED):
        bad = check_utf8(buffer, start, end)
        return (faults.NOT_UTF8 if bad >= 0 else faults.FINE), bad
    if tag == _BYTES:
        return faults.FINE, 0
    if tag in (_INTEGER, _FLOAT):
        if end - start != 8:
            return faults.VALUE_SIZE, -1
        return (faults.FLOAT_NAN if tag == _FLOAT and _is_nan(buffer, start) else faults.FINE), start
    if tag == _BOOLEAN:
        if end - start != 1:
            return faults.VALUE_SIZE, -1
        return (faults.BOOLEAN_BYTE if buffer[start] > 1 else faults.FINE), start
    return (faults.TAG_RESERVED if tag >= _RESERVED else faults.TAG_UNKNOWN), -1


@device
def _is_nan(buffer: Bytes, at: int) -> bool:
    """Whether a float is NaN: all exponent bits are set, and the fraction is not 0."""
    if buffer[at + 7] & 0x7F != 0x7F or buffer[at + 6] & 0xF0 != 0xF0:
        return False
    return u32_at(buffer, at) != 0 or u16_at(buffer, at + 4) != 0 or buffer[at + 6] & 0x0F != 0


@device
def check_lines(buffer: Bytes, start: int, end: int, count: int) -> tuple[int, int]:
    """Check header lines, which come after `count` attributes: (fault, offset)."""
    if start == end:
        return faults.FINE, 0
    if buffer[end - 1] != _NEWLINE:
        return faults.LINE_END, end - 1
    at = start
    while at < end:
        fault, place, at = _check_line(buffer, at, end)
        if fault:
            return fault, place
        count += 1
        if count > MAX_ATTRIBUTES:
            return faults.TOO_MANY, at
    # A newline or a colon is never part of a longer UTF-8 sequence, so one check covers all lines.
    bad = check_utf8(buffer, start, end)
    return (faults.NOT_UTF8 if bad >= 0 else faults.FINE), bad


@device
def _check_line(buffer: Bytes, start: int, end: int) -> tuple[int, int, int]:
    """Check one line: (fault, offset, start of the next line). The block ends in a newline, so every line does."""
    fault, colon, escapes = _check_part(buffer, start, end, _NAME_STOPS)
    if fault:
        return fault, colon, end
    if buffer[colon] != _COLON:
        return faults.LINE_COLON, start, end
    name_bytes = colon - start - escapes
    if name_bytes == 0:
        return faults.NAME_EMPTY, start, end
    if name_bytes > MAX_NAME_BYTES:
        return faults.NAME_LONG, start, end
    fault, newline, _ = _check_part(buffer, colon + 1, end, _VALUE_STOPS)
    if fault:
        return fault, newline, end
    return faults.FINE, 0, newline + 1


@device
def _check_part(buffer: Bytes, start: int, end: int, stops: Bytes) -> tuple[int, int, int]:
    """Check a name up to its colon, or a value up to its newline: (fault, offset, escapes).

    The offset is that of the byte that ends it, or of the fault.

    The newline at the end of the block is one of `stops`, so `at` stays within it. A backslash is not that newline, so
    there is a byte after it.
    """
    escapes = 0
    at = _skip(buffer, start, end, stops)
    while buffer[at] == _BACKSLASH:
        code = buffer[at + 1]
        if code not in (_BACKSLASH, _LETTER_C, _LETTER_N, _LETTER_R):
            return faults.LINE_ESCAPE, at, escapes
        escapes += 1
        at = _skip(buffer, at + 2, end, stops)
    if buffer[at] == _RETURN or buffer[at] == 0:
        return faults.LINE_BYTE, at, escapes
    return faults.FINE, at, escapes
