"""`attribute_texts`: the values of one attribute in all rows of a batch, as one column of text.

For attributes that name messages, such as the id of another system: one text for each, whether the sender used a header
line, a typed text or a number.

No index can leave its array: the rows were checked when they were decoded, and the first kernel returns, in 64 bits, an
upper bound of what the second writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.kernels import Int, Truth, device, kernel
from postroad.messages.columns import ATTRIBUTES, BUFFER, HEADERS
from postroad.messages.errors import MessageError
from postroad.messages.fields import entry_at, integer_at, line_at, span_at, unescape_into
from postroad.messages.headers import escape
from postroad.messages.limits import MAX_NAME_BYTES
from postroad.messages.values import Tag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.messages.batch import Batch
    from postroad.messages.columns import Bytes, Spans

    Offsets = NDArray[np.int64]

__all__ = ["AttributeTexts", "attribute_texts"]

# How a value is written: not at all, as it is, unescaped, in decimal, in hexadecimal.
_MISSING, _PLAIN, _ESCAPED, _INTEGER, _BYTES = 0, 1, 2, 3, 4

# The largest 64-bit integer with its sign.
_INTEGER_DIGITS = 20

_TEXT, _UNTYPED, _INTEGER_TAG, _BYTES_TAG = Tag.TEXT, Tag.UNTYPED, Tag.INTEGER, Tag.BYTES
_ZERO, _LETTER_A, _MINUS = ord("0"), ord("a"), ord("-")
_TEN = np.uint64(10)


class AttributeTexts(NamedTuple):
    """A column of texts: row r has `data[offsets[r]:offsets[r + 1]]` if `present[r]`.

    Attributes:
        data: uint8[:]; the texts one after the other, UTF-8.
        offsets: int64[n + 1]; a row without a text has an empty one.
        present: bool[n]; whether the row has the attribute.
    """

    data: Bytes
    offsets: Offsets
    present: NDArray[np.bool_]


@device
def _is_name(buffer: Bytes, start: Int, end: Int, name: Bytes) -> Truth:
    if end - start != len(name):
        return False
    for step in range(len(name)):
        if buffer[start + step] != name[step]:
            return False
    return True


@device
def _find(buffer: Bytes, spans: Spans, row: Int, name: Bytes, written: Bytes) -> tuple[Int, Int, Int]:
    """Return (kind, start, end) of the first value with this name; `written` is the name as in a header line."""
    at, end = span_at(spans, row, ATTRIBUTES)
    while at < end:
        tag, key, value, following = entry_at(buffer, at)
        if _is_name(buffer, key, value, name):
            if tag in (_TEXT, _UNTYPED):
                return _PLAIN, value, following
            if tag == _INTEGER_TAG:
                return _INTEGER, value, following
            if tag == _BYTES_TAG:
                return _BYTES, value, following
            return _MISSING, 0, 0
        at = following
    at, end = span_at(spans, row, HEADERS)
    while at < end:
        colon, newline, escaped = line_at(buffer, at)
        if _is_name(buffer, at, colon, written):
            return (_ESCAPED if escaped else _PLAIN), colon + 1, newline
        at = newline + 1
    return _MISSING, 0, 0


@kernel(f"int64({BUFFER}, int32[:, ::1], {BUFFER}, {BUFFER}, int64[:, ::1])", allocates=False)
def _locate(buffer: Bytes, spans: Spans, name: Bytes, written: Bytes, found: Offsets) -> Int:
    """Fill `found` with (kind, start, end) of each row; return an upper bound of the bytes of all texts."""
    total = 0
    for row in range(len(spans)):
        kind, start, end = _find(buffer, spans, row, name, written)
        found[row, 0], found[row, 1], found[row, 2] = kind, start, end
        if kind == _INTEGER:
            total += _INTEGER_DIGITS
        else:
            total += (end - start) * (2 if kind == _BYTES else 1)
    return total


@device
def _put_integer(value: Int, out: Bytes, at: Int) -> Int:
    rest = np.uint64(value)
    if value < 0:
        # Unsigned, because the smallest integer has no positive counterpart.
        rest = np.uint64(0) - rest
        out[at] = _MINUS
        at += 1
    size, power = 1, rest
    while power >= _TEN:
        power //= _TEN
        size += 1
    for step in range(size):
        out[at + size - 1 - step] = _ZERO + np.int64(rest % _TEN)
        rest //= _TEN
    return at + size


@device
def _put_hexadecimal(buffer: Bytes, start: Int, end: Int, out: Bytes, at: Int) -> Int:
    for place in range(start, end):
        for shift in (4, 0):
            nibble = np.int64(buffer[place]) >> shift & 15
            out[at] = _ZERO + nibble if nibble < 10 else _LETTER_A + nibble - 10
            at += 1
    return at


@kernel(f"int64({BUFFER}, int64[:, ::1], uint8[::1], int64[::1])", allocates=False)
def _gather(buffer: Bytes, found: Offsets, out: Bytes, offsets: Offsets) -> Int:
    """Write the texts one after the other, and where each begins; return where the last one ends."""
    at = 0
    for row in range(len(found)):
        offsets[row] = at
        kind, start, end = found[row, 0], found[row, 1], found[row, 2]
        if kind == _PLAIN:
            for place in range(start, end):
                out[at + place - start] = buffer[place]
            at += end - start
        elif kind == _ESCAPED:
            at = unescape_into(buffer, start, end, out, at)
        elif kind == _INTEGER:
            at = _put_integer(np.int64(integer_at(buffer, start)), out, at)
        elif kind == _BYTES:
            at = _put_hexadecimal(buffer, start, end, out, at)
    offsets[len(found)] = at
    return at


def attribute_texts(batch: Batch, name: str) -> AttributeTexts:
    """Return the first value with this name in each row, from the attributes or the headers.

    Texts are unescaped, integers are in decimal, bytes in lower-case hexadecimal. Floats and booleans do not name
    anything, and count as missing.

    Raises:
        MessageError: no attribute can have this name.
    """
    plain = name.encode("utf-8", "surrogatepass")
    if not 1 <= len(plain) <= MAX_NAME_BYTES:
        raise MessageError(f"an attribute's name has 1 to {MAX_NAME_BYTES} bytes, {name[:40]!r} has {len(plain)}")
    written = escape(name).encode("utf-8", "surrogatepass")
    found = np.empty((len(batch), 3), dtype=np.int64)
    most = _locate(batch.buffer, batch.spans, np.frombuffer(plain, np.uint8), np.frombuffer(written, np.uint8), found)
    data = np.empty(most, dtype=np.uint8)
    offsets = np.zeros(len(batch) + 1, dtype=np.int64)
    filled = _gather(batch.buffer, found, data, offsets)
    return AttributeTexts(data[:filled], offsets, found[:, 0] != _MISSING)
