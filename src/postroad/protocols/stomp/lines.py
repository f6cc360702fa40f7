r"""Parts of kernels that read a client's header lines, and turn them into the lines of a message.

A message keeps its header lines as STOMP 1.2 escapes them, whichever version its sender speaks:

    version   a backslash          a carriage return
    1.2       begins an escape     ends the line with the LF after it; elsewhere a fault
    1.1       begins an escape     an ordinary byte, kept as \r
    1.0       an ordinary byte,    ends the line with the LF after it; elsewhere
              kept as \\           an ordinary byte, kept as \r

Each function reads only between the offsets that it gets, which `scanner` keeps inside the data. A window of 64 bytes
is read only if 64 are left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import WINDOW, Int, Truth, bytes_equal, device, inlined, lowest_bit, word_at
from postroad.messages.checks import byte_marks
from postroad.messages.limits import MAX_NAME_BYTES
from postroad.protocols.stomp import faults
from postroad.protocols.stomp.columns import OWN_HEADERS
from postroad.protocols.stomp.versions import Version

if TYPE_CHECKING:
    from postroad.messages.columns import Bytes

_NEWLINE, _RETURN, _COLON, _BACKSLASH, _BLANK = ord("\n"), ord("\r"), ord(":"), ord("\\"), ord(" ")
_LETTER_C, _LETTER_N, _LETTER_R = ord("c"), ord("n"), ord("r")
_V1_0, _V1_1, _V1_2 = int(Version.V1_0), int(Version.V1_1), int(Version.V1_2)
_NONE, _ONE = np.uint64(0), np.uint64(1)


_NAME_STOPS = byte_marks(b"\n\r\0\\:")
_VALUE_STOPS = byte_marks(b"\n\r\0\\")

# Own headers: their number by first letter, their lengths, their bytes in rows of 16, and masks of these bytes; names
# and masks also as words.
_OWN_WIDTH = 16
_OWN_BY_LETTER = np.full(256, -1, dtype=np.int64)
_OWN_LENGTH = np.array([len(name) for name in OWN_HEADERS], dtype=np.int64)
_OWN_BYTES = np.zeros((len(OWN_HEADERS), _OWN_WIDTH), dtype=np.uint8)
for _own, _name in enumerate(OWN_HEADERS):
    _OWN_BY_LETTER[_name[0]] = _own
    _OWN_BYTES[_own, : len(_name)] = list(_name)
_OWN_WORDS = _OWN_BYTES.view("<u8").astype(np.uint64)
_OWN_MASKS = np.where(_OWN_BYTES > 0, np.uint8(0xFF), np.uint8(0)).view("<u8").astype(np.uint64)


@inlined
def skip(data: Bytes, at: Int, end: Int, stops: Bytes) -> Int:
    """Return the first offset from `at` on whose byte has a mark in `stops`, or `end`."""
    place, limit = np.uint64(at), np.uint64(end)
    while place < limit and stops[data[place]] == 0:
        place += _ONE
    return np.int64(place)


@device
def read_part(data: Bytes, at: Int, end: Int, stops: Bytes, mode: Int) -> tuple[Int, Int, Int, Int]:
    """Read a name up to its colon, or a value up to its line end.

    Returns (fault, offset of that byte or of the fault, escapes, bytes that need an escape in a message).
    """
    escapes, grows = 0, 0
    at = skip(data, at, end, stops)
    while at < end:
        byte = data[at]
        if byte == _BACKSLASH and mode >= _V1_1:
            if at + 1 == end:
                return faults.UNFINISHED, at, 0, 0
            code = data[at + 1]
            if code not in (_BACKSLASH, _LETTER_C, _LETTER_N) and (code != _LETTER_R or mode != _V1_2):
                return faults.BAD_ESCAPE, at, 0, 0
            escapes += 1
            at += 1
        elif byte == _BACKSLASH:
            grows += 1
        elif byte == _RETURN:
            if mode != _V1_1:
                if at + 1 == end:
                    return faults.UNFINISHED, at, 0, 0
                if data[at + 1] == _NEWLINE:
                    return faults.FINE, at, escapes, grows
                if mode == _V1_2:
                    return faults.BARE_RETURN, at, 0, 0
            grows += 1
        elif byte == 0:
            return faults.NUL_IN_HEADERS, at, 0, 0
        else:
            return faults.FINE, at, escapes, grows
        at = skip(data, at + 1, end, stops)
    return faults.UNFINISHED, at, 0, 0


@inlined
def look_ahead(data: Bytes, at: Int, end: Int) -> tuple[Int, Int, Int]:
    """Find special bytes in the window at an offset: bits of (newlines, colons, bytes to check); zeros near the end.

    A window usually has several lines, so that no byte of them is read alone.
    """
    if end - at < WINDOW:
        return _NONE, _NONE, _NONE
    strange = bytes_equal(data, at, _BACKSLASH) | bytes_equal(data, at, _RETURN) | bytes_equal(data, at, 0)
    return bytes_equal(data, at, _NEWLINE), bytes_equal(data, at, _COLON), strange


@inlined
def plain_line(newlines: Int, colons: Int, strange: Int) -> tuple[Int, Int]:
    """Return (colon, newline) of the next line of a window if it is complete and plain; else (-1, -1)."""
    # Below the lowest newline there has to be a colon, and no byte that needs a check.
    line = (newlines - _ONE) & ~newlines
    if newlines == 0 or colons & line == 0 or strange & line:
        return -1, -1
    return lowest_bit(colons), lowest_bit(newlines)


@device
def read_line(data: Bytes, start: Int, end: Int, mode: Int) -> tuple[Int, Int, Int, Int, Truth]:
    """Read a line: (fault, colon or offset of the fault, end of the value, next line, whether it needs no escapes)."""
    fault, colon, escapes, name_grows = read_part(data, start, end, _NAME_STOPS, mode)
    if fault:
        return fault, colon, 0, 0, False
    if data[colon] != _COLON:
        return faults.NO_COLON, start, 0, 0, False
    name_bytes = colon - start - escapes
    if name_bytes == 0:
        return faults.NAME_EMPTY, start, 0, 0, False
    if name_bytes > MAX_NAME_BYTES:
        return faults.NAME_LONG, start, 0, 0, False
    fault, stop, _, value_grows = read_part(data, colon + 1, end, _VALUE_STOPS, mode)
    if fault:
        return fault, stop, 0, 0, False
    returns = data[stop] == _RETURN
    verbatim = not returns and name_grows + value_grows == 0
    if mode == _V1_0 and data[colon + 1] == _BLANK:
        verbatim = False
    return faults.FINE, colon, stop, stop + (2 if returns else 1), verbatim


@inlined
def value_start(data: Bytes, colon: Int, stop: Int, mode: Int) -> Int:
    """Return where a value starts: in 1.0, whose examples have `login: <username>`, after blanks."""
    at = colon + 1
    if mode == _V1_0:
        while at < stop and data[at] == _BLANK:
            at += 1
    return at


@device
def _put_escaped(data: Bytes, start: Int, end: Int, mode: Int, out: Bytes, at: Int) -> Int:
    """Write a name or a value, escaped as in 1.2; return the offset after it."""
    while start < end:
        byte: Int = data[start]
        if byte == _RETURN or (byte == _BACKSLASH and mode < _V1_1):
            out[at] = _BACKSLASH
            at += 1
            if byte == _RETURN:
                byte = np.uint8(_LETTER_R)
        out[at] = byte
        start += 1
        at += 1
    return at


@device
def put_line(data: Bytes, start: Int, colon: Int, stop: Int, mode: Int, out: Bytes, at: Int) -> Int:
    """Write a header line of a message; return the offset after it. It writes at most two bytes for each one read."""
    at = _put_escaped(data, start, colon, mode, out, at)
    out[at] = _COLON
    at = _put_escaped(data, value_start(data, colon, stop, mode), stop, mode, out, at + 1)
    out[at] = _NEWLINE
    return at + 1


@inlined
def same_bytes(data: Bytes, one: Int, other: Int, size: Int) -> Truth:
    """Whether two parts of the same size are equal; never true for fewer than eight bytes."""
    if size < 8:
        return False
    step = np.int64(0)
    while step + 8 < size:
        if word_at(data, one + step) != word_at(data, other + step):
            return False
        step += 8
    return word_at(data, one + size - 8) == word_at(data, other + size - 8)


@inlined
def own_header(data: Bytes, start: Int, colon: Int) -> Int:
    """Return the number of the own header with this name, or -1."""
    number = _OWN_BY_LETTER[data[start]]
    if number < 0 or _OWN_LENGTH[number] != colon - start:
        return -1
    if start + _OWN_WIDTH <= len(data):
        first = (word_at(data, start) ^ _OWN_WORDS[number, 0]) & _OWN_MASKS[number, 0]
        second = (word_at(data, start + 8) ^ _OWN_WORDS[number, 1]) & _OWN_MASKS[number, 1]
        return number if first | second == 0 else -1
    for step in range(1, colon - start):
        if data[start + step] != _OWN_BYTES[number, step]:
            return -1
    return number
