"""Parts of kernels that read and write fields of messages. They trust the bytes, which `checks` has checked before.

A kernel walks the attributes of a row like this, for each of the two blocks:

    at = spans[row, ATTRIBUTES]
    while at < spans[row, ATTRIBUTES + 1]:
        tag, name, value, following = entry_at(buffer, at)  # name is buffer[name:value], value buffer[value:following]
        at = following
    at = spans[row, HEADERS]
    while at < spans[row, HEADERS + 1]:
        colon, newline, escaped = line_at(buffer, at)  # name is buffer[at:colon], value buffer[colon + 1:newline]
        at = newline + 1

Offsets are 64-bit integers: `span_at` widens them before anything is added, and the lengths have at most four bytes,
so no sum overflows. Every entry and every line ends within its block, which was checked, so no read leaves the buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import WINDOW, bytes_equal, device, inlined, lowest_bit

if TYPE_CHECKING:
    from postroad.messages.columns import Bytes, Spans

ENTRY_BYTES = 4
ID_TEXT_BYTES = 35

_SIGN = 2**31
_NEWLINE, _RETURN, _COLON, _BACKSLASH = ord("\n"), ord("\r"), ord(":"), ord("\\")
_LETTER_C, _LETTER_N, _LETTER_R = ord("c"), ord("n"), ord("r")
_ZERO, _LETTER_A, _DASH = ord("0"), ord("a"), ord("-")


@device
def span_at(spans: Spans, row: int, column: int) -> tuple[int, int]:
    """(start, end) of one part of one row, as 64-bit integers."""
    return int(np.int64(spans[row, column])), int(np.int64(spans[row, column + 1]))


@device
def u8_at(buffer: Bytes, at: int) -> int:
    """Return the byte at an offset, as a signed 64-bit integer: in a kernel, `int(x)` alone keeps the type of x."""
    return int(np.int64(buffer[at]))


@device
def u16_at(buffer: Bytes, at: int) -> int:
    """The little-endian unsigned 16-bit number at an offset."""
    return u8_at(buffer, at) | u8_at(buffer, at + 1) << 8


@device
def u32_at(buffer: Bytes, at: int) -> int:
    """The little-endian unsigned 32-bit number at an offset."""
    return u16_at(buffer, at) | u16_at(buffer, at + 2) << 16


@device
def integer_at(buffer: Bytes, at: int) -> int:
    """The value of an integer attribute."""
    high = u32_at(buffer, at + 4)
    if high >= _SIGN:
        high -= 2 * _SIGN
    return u32_at(buffer, at) | high << 32


@device
def float_at(buffer: Bytes, at: int) -> float:
    """The value of a float attribute."""
    return np.int64(integer_at(buffer, at)).view(np.float64)


@device
def entry_at(buffer: Bytes, at: int) -> tuple[int, int, int, int]:
    """An entry of an attribute block: (tag, start of the name, start of the value, start of the next entry)."""
    name = at + ENTRY_BYTES
    value = name + u8_at(buffer, at + 1)
    return u8_at(buffer, at), name, value, value + u16_at(buffer, at + 2)


@inlined
def line_at(buffer: Bytes, at: int) -> tuple[int, int, bool]:
    """A header line: (its first colon, its newline, whether there is an escape anywhere in it)."""
    if at + WINDOW <= len(buffer):
        newlines, colons = bytes_equal(buffer, at, _NEWLINE), bytes_equal(buffer, at, _COLON)
        if newlines != 0 and colons != 0:
            # The bits below the lowest newline: the line.
            line = (newlines - np.uint64(1)) & ~newlines
            escaped = bytes_equal(buffer, at, _BACKSLASH) & line != 0
            return at + lowest_bit(colons), at + lowest_bit(newlines), escaped
    escaped = False
    while buffer[at] != _COLON:
        escaped |= buffer[at] == _BACKSLASH
        at += 1
    colon = at
    while buffer[at] != _NEWLINE:
        escaped |= buffer[at] == _BACKSLASH
        at += 1
    return colon, at, escaped


@device
def unescape_into(buffer: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Write the unescaped form of a name or value to `out`, from `at` on; return the offset after it.

    It never writes more bytes than it reads.
    """
    while start < end:
        byte = buffer[start]
        if byte == _BACKSLASH:
            start += 1
            code = buffer[start]
            if code == _LETTER_C:
                byte = np.uint8(_COLON)
            elif code == _LETTER_N:
                byte = np.uint8(_NEWLINE)
            elif code == _LETTER_R:
                byte = np.uint8(_RETURN)
        out[at] = byte
        start += 1
        at += 1
    return at


@device
def put_u32(out: Bytes, at: int, value: int) -> None:
    """Write a little-endian unsigned 32-bit number."""
    out[at] = value & 0xFF
    out[at + 1] = value >> 8 & 0xFF
    out[at + 2] = value >> 16 & 0xFF
    out[at + 3] = value >> 24 & 0xFF


@device
def put_id_text(head: np.uint64, tail: np.uint64, out: Bytes, at: int) -> int:
    """Write the text form of an id (the value of JMSMessageID), `ID_TEXT_BYTES` long; return the offset after it."""
    for digit in range(32):
        if digit in (8, 16, 28):
            out[at] = _DASH
            at += 1
        half = head if digit < 16 else tail
        nibble = int(half >> np.uint64(60 - 4 * (digit % 16)) & np.uint64(15))
        out[at] = _ZERO + nibble if nibble < 10 else _LETTER_A + nibble - 10
        at += 1
    return at
