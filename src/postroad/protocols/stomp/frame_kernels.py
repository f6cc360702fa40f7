"""Kernels that write frames of the server: MESSAGE in two steps, and RECEIPT for rows of a batch.

A MESSAGE begins with what only its subscription gets: command, `subscription`, and `ack` if the client acknowledges.
The rest, from `message-id` on, is the shared part, the same for all subscriptions of one version. Kernels whose names
begin with `measure` check that each row is in its array and return an upper bound of the bytes; the callers allocate
that much, so the `put` kernels need no checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, copy_bytes, device, inlined, kernel, put_word
from postroad.messages.columns import ATTRIBUTES, BODY, BUFFER, FLAGS, HEADERS, QUEUED, TOPIC
from postroad.messages.fields import ID_TEXT_BYTES, span_at
from postroad.protocols.stomp.versions import Version

if TYPE_CHECKING:
    from postroad.messages.columns import Bytes, Envelopes, Ids, Spans
    from postroad.protocols.stomp.columns import Columns, Numbers

_NEWLINE, _RETURN, _COLON, _BACKSLASH, _BLANK, _DASH = ord("\n"), ord("\r"), ord(":"), ord("\\"), ord(" "), ord("-")
_LETTER_C, _LETTER_R, _LETTER_N, _ZERO = ord("c"), ord("r"), ord("n"), ord("0")
_V1_0, _V1_1, _V1_2 = int(Version.V1_0), int(Version.V1_1), int(Version.V1_2)


def _literal(text: bytes) -> Bytes:
    return np.frombuffer(text, dtype=np.uint8).copy()


_ID = _literal(b"message-id:")
_DESTINATION = _literal(b"\ndestination:/topic/")
# As long as the prefix of topics, so that both take the same room.
_QUEUE_DESTINATION = _literal(b"\ndestination:/queue/")
_LENGTH = _literal(b"\ncontent-length:")
_ACK = _literal(b"ack:")
_RECEIPT = _literal(b"RECEIPT\nreceipt-id:")
_RECEIPT_ID = _literal(b"\nmessage-id:")
_RECEIPT_END = _literal(b"\n\n\0\n")
_LOW_HALF = np.uint64(0xFFFFFFFF)

# The largest number of digits of a content-length: a span's length has 31 bits.
_LENGTH_DIGITS = 10
# Bytes of the shared part of a MESSAGE besides topic, lines and body. The 4 are the line end of the length, the empty
# line, NUL, and the line end after the frame.
_COMMON_BYTES = len(_ID) + ID_TEXT_BYTES + len(_DESTINATION) + len(_LENGTH) + _LENGTH_DIGITS + 4
_RECEIPT_BYTES = len(_RECEIPT) + len(_RECEIPT_ID) + ID_TEXT_BYTES + len(_RECEIPT_END)


@inlined
def _put(text: Bytes, out: Bytes, at: Int) -> Int:
    return copy_bytes(text, 0, np.int64(len(text)), out, at)


@inlined
def _hex_word(value: Int) -> Int:
    """Return the eight hexadecimal digits of a 32-bit number as a word; its first byte in memory is the first digit."""
    word = np.uint64(value)
    # Halves, then bytes, then nibbles are swapped and moved apart, until each byte has one nibble.
    word = (word & np.uint64(0xFFFF)) << np.uint64(32) | word >> np.uint64(16)
    word = (word & np.uint64(0xFF000000FF)) << np.uint64(16) | (word & np.uint64(0xFF000000FF00)) >> np.uint64(8)
    word = (word & np.uint64(0xF000F000F000F)) << np.uint64(8) | (word & np.uint64(0xF000F000F000F0)) >> np.uint64(4)
    # Adding 6 carries into bit 4 for nibbles from 10 on: these become letters, which are 39 above the digits.
    letters = (word + np.uint64(0x0606060606060606)) >> np.uint64(4) & np.uint64(0x0101010101010101)
    return word + np.uint64(0x3030303030303030) + letters * np.uint64(39)


@inlined
def _put_id(ids: Ids, row: Int, out: Bytes, at: Int) -> Int:
    """Write the text form of an id: 8-8-12-4 digits."""
    head, tail = ids[row, 0], ids[row, 1]
    put_word(out, at, _hex_word(head >> np.uint64(32)))
    out[at + 8] = _DASH
    put_word(out, at + 9, _hex_word(head & _LOW_HALF))
    out[at + 17] = _DASH
    put_word(out, at + 18, _hex_word(tail >> np.uint64(32)))
    last = _hex_word(tail & _LOW_HALF)
    # The word with the last four digits goes to their place; its first four bytes are overwritten next.
    put_word(out, at + 27, last)
    for step in range(np.uint64(4)):
        out[np.uint64(at + 26) + step] = np.uint8(last >> (step << np.uint64(3)) & np.uint64(0xFF))
    out[at + 30] = _DASH
    return at + ID_TEXT_BYTES


@inlined
def _put_ack_end(number: Int, out: Bytes, at: Int) -> Int:
    """Write what follows the id in an `ack` header: the subscription's number."""
    out[at] = _DASH
    put_word(out, at + 1, _hex_word(number))
    out[at + 9] = _NEWLINE
    return at + 10


@inlined
def _put_decimal(value: Int, out: Bytes, at: Int) -> Int:
    digits, rest = 1, value // 10
    while rest:
        digits += 1
        rest //= 10
    for step in range(digits):
        out[at + digits - 1 - step] = _ZERO + value % 10
        value //= 10
    return at + digits


@inlined
def _put_topic(buffer: Bytes, start: Int, end: Int, version: Int, out: Bytes, at: Int) -> Int:
    """Write a topic. It has no line ends; it can contain a colon and a backslash, which STOMP escapes."""
    for place in range(np.uint64(start), np.uint64(end)):
        byte = buffer[place]
        if version >= _V1_1 and byte in (_COLON, _BACKSLASH):
            out[at] = _BACKSLASH
            out[at + 1] = _LETTER_C if byte == _COLON else _BACKSLASH
            at += 2
        else:
            out[at] = byte
            at += 1
    return at


@device
def _put_older(buffer: Bytes, start: Int, end: Int, version: Int, out: Bytes, at: Int) -> Int:
    """Write header lines for versions before 1.2; they never get longer.

    1.1 has no escape for CR, which stays as it is. 1.0 has no escapes: what would end a line becomes a blank, and so
    does a colon in a name.
    """
    named = False
    while start < end:
        byte: Int = buffer[start]
        if byte == _NEWLINE:
            named = False
        elif byte == _COLON:
            named = True
        elif byte == _BACKSLASH:
            start += 1
            code = buffer[start]
            if version == _V1_1:
                if code == _LETTER_R:
                    byte = np.uint8(_RETURN)
                else:
                    out[at] = byte
                    at += 1
                    byte = code
            elif code in (_LETTER_R, _LETTER_N):
                byte = np.uint8(_BLANK)
            elif code == _LETTER_C:
                byte = np.uint8(_COLON) if named else np.uint8(_BLANK)
        out[at] = byte
        start += 1
        at += 1
    return at


@kernel("UniTuple(int64, 2)(int32[:, ::1], int64[::1])", allocates=False)
def measure_common(spans: Spans, rows: Numbers) -> tuple[Int, Int]:
    """Return (upper bound of the bytes of the rows without typed attributes, number of rows with typed attributes).

    For a row that is not in the batch, returns (-1, its place among the rows).
    """
    total, typed = np.int64(0), np.int64(0)
    for place in range(len(rows)):
        row = rows[place]
        if row < 0 or row >= len(spans):
            return np.int64(-1), np.int64(place)
        topic, topic_end = span_at(spans, row, TOPIC)
        headers, headers_end = span_at(spans, row, HEADERS)
        body, body_end = span_at(spans, row, BODY)
        total += _COMMON_BYTES + 2 * (topic_end - topic) + headers_end - headers + body_end - body
        typed += spans[row, ATTRIBUTES + 1] > spans[row, ATTRIBUTES]
    return total, typed


@kernel(
    f"int64({BUFFER}, int32[:, ::1], uint64[:, ::1], int64[:, ::1], int64[::1], int64, {BUFFER}, int64[:, ::1], "
    f"{BUFFER}, int64, uint8[::1], int64[:, ::1])",
    allocates=False,
    packs_words=True,
)
def put_common(
    buffer: Bytes,
    spans: Spans,
    ids: Ids,
    envelopes: Envelopes,
    rows: Numbers,
    version: Int,
    blocks: Bytes,
    block_spans: Numbers,
    prefix: Bytes,
    number: Int,
    out: Bytes,
    places: Numbers,
) -> Int:
    """Write the shared part of each row's MESSAGE and set its place; return the number of bytes written.

    `block_spans` has a line for each of the rows, or no lines; if a line starts at 0 or more, the header lines of its
    row are those in `blocks`. The places of other rows become -1; `places` may be empty. With a prefix, and a number
    that is not negative, it writes the whole MESSAGE of one subscription. `ids` and `envelopes` have a line for each
    line of `spans`, so the rows that `measure_common` checked are in all three.
    """
    for row in range(len(places)):
        places[row, 0], places[row, 1] = -1, -1
    at: Int = np.int64(0)
    last: Int = np.int64(-1)
    last_end, same, same_end = last, at, at
    for place in range(len(rows)):
        row, begin = rows[place], at
        at = _put(prefix, out, at)
        if number >= 0:
            at = _put_ack_end(number, out, _put_id(ids, row, out, _put(_ACK, out, at)))
        at = _put_id(ids, row, out, _put(_ID, out, at))
        topic, topic_end = span_at(spans, row, TOPIC)
        if topic == last and topic_end == last_end:
            # Rows that share the bytes of a topic share these lines: they are all for a queue, or all for a topic
            # (`Batch.envelopes`). So the envelope is not read here, which would touch another cache line for each row.
            at = copy_bytes(out, same, same_end, out, at)
        else:
            last, last_end, same = topic, topic_end, at
            is_queue = envelopes[row, FLAGS] & QUEUED
            at = _put(_QUEUE_DESTINATION, out, at) if is_queue else _put(_DESTINATION, out, at)
            at = _put_topic(buffer, topic, topic_end, version, out, at)
            at = same_end = _put(_LENGTH, out, at)
        body, body_end = span_at(spans, row, BODY)
        at = _put_decimal(body_end - body, out, at)
        out[at] = _NEWLINE
        at += 1
        if len(block_spans) and block_spans[place, 0] >= 0:
            start, end = block_spans[place, 0], block_spans[place, 1]
            at = (
                copy_bytes(blocks, start, end, out, at)
                if version == _V1_2
                else _put_older(blocks, start, end, version, out, at)
            )
        else:
            start, end = span_at(spans, row, HEADERS)
            at = (
                copy_bytes(buffer, start, end, out, at)
                if version == _V1_2
                else _put_older(buffer, start, end, version, out, at)
            )
        out[at] = _NEWLINE
        at = copy_bytes(buffer, body, body_end, out, at + 1)
        out[at], out[at + 1] = 0, _NEWLINE
        at += 2
        if len(places):
            places[row, 0], places[row, 1] = begin, at
    return at


@kernel("UniTuple(int64, 2)(int64[:, ::1], int64[::1])", allocates=False)
def measure_rows(places: Numbers, rows: Numbers) -> tuple[Int, Int]:
    """Return (bytes of the shared parts of the rows, 0), or (-1, the place of the first row that has none)."""
    total = np.int64(0)
    for place in range(len(rows)):
        row = rows[place]
        if row < 0 or row >= len(places) or places[row, 0] < 0:
            return np.int64(-1), np.int64(place)
        total += places[row, 1] - places[row, 0]
    return total, np.int64(0)


@kernel(f"void({BUFFER}, int64[:, ::1], int64[::1], {BUFFER}, int64, uint8[::1])", allocates=False)
def put_rows(common: Bytes, places: Numbers, rows: Numbers, prefix: Bytes, number: Int, out: Bytes) -> None:
    """Write MESSAGE frames of one subscription: prefix, `ack` unless the number is negative, and the shared part."""
    at = np.int64(0)
    for place in range(len(rows)):
        start, end = places[rows[place], 0], places[rows[place], 1]
        at = _put(prefix, out, at)
        if number >= 0:
            at = _put(_ACK, out, at)
            at = copy_bytes(common, start + len(_ID), start + len(_ID) + ID_TEXT_BYTES, out, at)
            at = _put_ack_end(number, out, at)
        at = copy_bytes(common, start, end, out, at)


@kernel("int64(int32[:, :], int64[::1])", allocates=False)
def measure_receipts(receipts: Columns, rows: Numbers) -> Int:
    """Return the bytes of the RECEIPT frames of the rows that ask for one, or -1 if a row does not exist."""
    total = np.int64(0)
    for place in range(len(rows)):
        row = rows[place]
        if row < 0 or row >= len(receipts):
            return np.int64(-1)
        start, end = span_at(receipts, row, 0)
        if start >= 0:
            total += _RECEIPT_BYTES + end - start
    return total


@kernel(f"void({BUFFER}, int32[:, :], uint64[:, ::1], int64[::1], uint8[::1])", allocates=False, packs_words=True)
def put_receipts(buffer: Bytes, receipts: Columns, ids: Ids, rows: Numbers, out: Bytes) -> None:
    """Write RECEIPT frames: the receipt id, as the sender wrote it, and the id of the message."""
    at = np.int64(0)
    for place in range(len(rows)):
        row = rows[place]
        start, end = span_at(receipts, row, 0)
        if start >= 0:
            at = copy_bytes(buffer, start, end, out, _put(_RECEIPT, out, at))
            at = _put_id(ids, row, out, _put(_RECEIPT_ID, out, at))
            at = _put(_RECEIPT_END, out, at)
