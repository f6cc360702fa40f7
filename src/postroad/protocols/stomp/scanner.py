"""The kernel that turns a socket read into rows of a batch and a list of control frames.

It reads a client's bytes once, front to back, and never beyond a limit. So the result, and which fault is found, do not
depend on how the bytes are split into reads. What a batch needs (topic, header lines, body, receipt) is copied to the
batch's buffer: the protocol's own headers are left out, the other lines become consecutive, and the read can be freed.

Indices are 64-bit integers from 0 on, and every read is before the end of the data or of a limit. At most 18 digits are
read, which fit in 64 bits, and compared with a limit before they are added. At most two bytes are written for each one
read, for which the caller has made room; a read has at most MAX_READ_BYTES, so that spans fit in 32 bits. Offsets of
own headers are -1 if the header is missing, and are compared with 0 before they are used. `state[LAST]` is an offset in
this data, or 0 with an empty span: `same_bytes` is false for that, so the first row never uses the row before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, Truth, copy_bytes, device, inlined, kernel, rare, word_at
from postroad.messages.checks import check_topic, check_utf8
from postroad.messages.columns import (
    BODY,
    BUFFER,
    EXPIRY,
    FLAGS,
    HEADERS,
    HOP_LIMIT,
    PRIORITY,
    QUEUED,
    SPAN_COLUMNS,
    TOPIC,
)
from postroad.messages.faults import TOPIC_LONG
from postroad.messages.fields import unescape_into
from postroad.messages.limits import DEFAULT_HOP_LIMIT, DEFAULT_PRIORITY, MAX_HEADER_BYTES, MAX_TOPIC_BYTES
from postroad.protocols.stomp import columns as c
from postroad.protocols.stomp import faults
from postroad.protocols.stomp.lines import (
    look_ahead,
    own_header,
    plain_line,
    put_line,
    read_line,
    same_bytes,
    value_start,
)
from postroad.protocols.stomp.versions import Version

if TYPE_CHECKING:
    from postroad.messages.columns import Bytes, Envelopes, Spans
    from postroad.protocols.stomp.columns import Columns, Numbers

_NEWLINE, _RETURN, _BLANK = ord("\n"), ord("\r"), ord(" ")
_ZERO, _NINE, _LETTER_A, _LETTER_Z = ord("0"), ord("9"), ord("A"), ord("Z")
_V1_0, _V1_1 = int(Version.V1_0), int(Version.V1_1)
_NONE, _ONE = np.uint64(0), np.uint64(1)

# More digits than this would not fit in 64 bits; they do not count as a number.
_MAX_DIGITS = 18

# Bytes per step of the search for the end of a body: enough for vector instructions, few enough for short bodies.
_STRIDE = 32

_COMMAND_WIDTH = 16
_COMMAND_LENGTH = np.array([len(name) for name in c.COMMANDS], dtype=np.int64)
_COMMAND_BYTES = np.zeros((len(c.COMMANDS), _COMMAND_WIDTH), dtype=np.uint8)
for _command, _name in enumerate(c.COMMANDS):
    _COMMAND_BYTES[_command, : len(_name)] = list(_name)
# The first line of nearly all frames, as the low bytes of a word.
_SEND_LINE, _SEND_MASK = np.uint64(int.from_bytes(b"SEND\n", "little")), np.uint64(0xFFFFFFFFFF)
_PREFIX = np.frombuffer(c.DESTINATION_PREFIX, dtype=np.uint8).copy()
_QUEUE_PREFIX = np.frombuffer(c.QUEUE_PREFIX, dtype=np.uint8).copy()
# The byte in which the two differ.
_KIND_AT, _QUEUE_KIND = 1, c.QUEUE_PREFIX[1]


@inlined
def _line_end(data: Bytes, at: Int, end: Int) -> Int:
    """Return the bytes of the line end at an offset: 1 or 2, 0 if there is none, -1 if the data ends within it."""
    if data[at] == _NEWLINE:
        return 1
    if data[at] != _RETURN:
        return 0
    if at + 1 == end:
        return -1
    return 2 if data[at + 1] == _NEWLINE else 0


@device
def _command_number(data: Bytes, start: Int, end: Int) -> Int:
    for number in range(len(_COMMAND_LENGTH)):
        if _COMMAND_LENGTH[number] == end - start:
            step = 0
            while step < end - start and data[start + step] == _COMMAND_BYTES[number, step]:
                step += 1
            if step == end - start:
                return number
    return -1


@inlined
def _read_command(data: Bytes, start: Int, settings: Numbers, frame: Numbers) -> tuple[Int, Int]:
    """Read the command: (fault, start of the header lines or of the fault)."""
    size = np.int64(len(data))
    if start + 8 <= size and word_at(data, start) & _SEND_MASK == _SEND_LINE and settings[c.COMMAND_LIMIT] >= 4:
        frame[c.F_COMMAND] = c.SEND
        return faults.FINE, start + 5
    limit = start + settings[c.COMMAND_LIMIT] + 1
    end = min(size, limit)
    at = start
    while at < end and _LETTER_A <= data[at] <= _LETTER_Z:
        at += 1
    if at == end:
        return (faults.COMMAND_LONG if end == limit else faults.UNFINISHED), at
    gap = _line_end(data, at, size)
    if gap < 0:
        return faults.UNFINISHED, at
    number = _command_number(data, start, at) if gap else -1
    if number < 0:
        return faults.COMMAND_UNKNOWN, at
    frame[c.F_COMMAND] = number
    return faults.FINE, at + gap


@inlined
def _note(data: Bytes, own: Int, colon: Int, stop: Int, mode: Int, frame: Numbers) -> None:
    """Set the span of an own header's value, at its first occurrence."""
    if frame[c.FOUND + 2 * own] < 0:
        frame[c.FOUND + 2 * own] = value_start(data, colon, stop, mode)
        frame[c.FOUND + 2 * own + 1] = stop


@device
def _is_judged(data: Bytes, at: Int, end: Int) -> Truth:
    """Whether the line of a fault can be refused: its end has arrived, or a NUL, which is part of no line.

    These two bytes also make the decoder scan an unfinished frame again. Without this rule, whether a fault in an
    unfinished line is found would depend on how the bytes are split into reads. `at` is a place in the line, so 0 <= at
    <= end, and `end` is within the data.
    """
    while at < end:
        if data[at] == _NEWLINE or data[at] == 0:
            return True
        at += 1
    return False


@inlined
def _read_lines(
    data: Bytes, start: Int, settings: Numbers, frame: Numbers, state: Numbers, out: Bytes
) -> tuple[Int, Int]:
    """Read header lines, and copy those of a SEND except own headers: (fault, start of the body or of the fault)."""
    mode = settings[c.MODE]
    limit = start + settings[c.HEADER_LIMIT]
    end = min(np.int64(len(data)), limit)
    state[c.NEEDED], state[c.AWAITED] = limit, _NEWLINE
    keeps = frame[c.F_COMMAND] == c.SEND and settings[c.TAKES_SENDS] != 0
    put, count, at, run = frame[c.F_PUT], 0, start, start
    base = at
    newlines, colons, strange = look_ahead(data, at, end)
    while at < end:
        gap = 1 if data[at] == _NEWLINE else (0 if mode == _V1_1 else _line_end(data, at, end))
        if gap > 0:
            if keeps:
                frame[c.F_PUT] = copy_bytes(data, run, at, out, put)
            frame[c.F_HEADERS_END] = at
            return faults.FINE, at + gap
        if gap < 0:
            break
        if newlines == 0:
            base = at
            newlines, colons, strange = look_ahead(data, at, end)
        colon, stop = plain_line(newlines, colons, strange)
        if rare(base + colon <= at):
            fault, colon, stop, following, verbatim = read_line(data, at, end, mode)
            if fault == faults.UNFINISHED or (fault and not _is_judged(data, colon, end)):
                break
            if fault:
                return fault, colon
            newlines = _NONE
        else:
            colon, stop, following = base + colon, base + stop, base + stop + 1
            verbatim = mode != _V1_0 or data[colon + 1] != _BLANK
            # The rest of the window: the bits above the lowest newline.
            rest = ~(newlines ^ (newlines - _ONE))
            newlines, colons, strange = newlines & rest, colons & rest, strange & rest
        count += 1
        if rare(count > settings[c.COUNT_LIMIT]):
            return faults.HEADER_COUNT, at
        own = own_header(data, at, colon)
        if own >= 0:
            _note(data, own, colon, stop, mode, frame)
        kept = own < 0 or own >= c.FIRST_KEPT
        if keeps and not (kept and verbatim):
            put = copy_bytes(data, run, at, out, put)
            run = following
            if kept:
                put = put_line(data, at, colon, stop, mode, out, put)
        at = following
    return (faults.HEADER_BYTES if end == limit else faults.UNFINISHED), end


@inlined
def _number(data: Bytes, start: Int, end: Int) -> Int:
    """Return the number of these digits, or -1."""
    if start < 0 or start == end or end - start > _MAX_DIGITS:
        return -1
    value: Int = 0
    for at in range(start, end):
        if data[at] < _ZERO or data[at] > _NINE:
            return -1
        value = 10 * value + np.int64(data[at]) - _ZERO
    return value


@inlined
def _find_nul(data: Bytes, start: Int, end: Int) -> Int:
    """Return the offset of the first NUL of a span, or `end`."""
    at, limit = np.uint64(start), np.uint64(end)
    stride = np.uint64(_STRIDE)
    while at + stride <= limit:
        zeros = np.uint8(0)
        for step in range(stride):
            zeros |= np.uint8(data[at + step] == 0)
        if zeros:
            break
        at += stride
    while at < limit and data[at] != 0:
        at += np.uint64(1)
    return np.int64(at)


@inlined
def _read_body(data: Bytes, start: Int, settings: Numbers, frame: Numbers, state: Numbers) -> Int:
    """Find the end of the body and of the frame.

    Only a SEND of an open connection has a body. Any other frame with a body is refused without waiting for the rest,
    so that no client can make the broker keep it.
    """
    size = np.int64(len(data))
    sends = frame[c.F_COMMAND] == c.SEND
    if sends and settings[c.TAKES_SENDS] == 0:
        frame[c.F_BODY], frame[c.F_BODY_END], frame[c.F_END] = start, start, start
        return faults.FINE
    digits, digits_end = frame[c.FOUND + 2 * c.OWN_CONTENT_LENGTH], frame[c.FOUND + 2 * c.OWN_CONTENT_LENGTH + 1]
    if digits >= 0:
        length = _number(data, digits, digits_end)
        if length < 0:
            return faults.LENGTH_NO_NUMBER
        if length > 0 and not sends:
            return faults.BODY_UNEXPECTED
        if length > settings[c.BODY_LIMIT]:
            return faults.BODY_BYTES
        end = start + length
        if end >= size:
            state[c.NEEDED], state[c.AWAITED] = end + 1, c.NOTHING
            return faults.UNFINISHED
        if data[end] != 0:
            return faults.BODY_NO_NUL
    else:
        limit = start + (settings[c.BODY_LIMIT] if sends else 0) + 1
        end = _find_nul(data, start, min(size, limit))
        if end == limit:
            return faults.BODY_BYTES if sends else faults.BODY_UNEXPECTED
        if end == size:
            state[c.NEEDED], state[c.AWAITED] = limit, 0
            return faults.UNFINISHED
    frame[c.F_BODY], frame[c.F_BODY_END], frame[c.F_END] = start, end, end + 1
    return faults.FINE


@inlined
def _read_frame(
    data: Bytes, start: Int, settings: Numbers, frame: Numbers, state: Numbers, out: Bytes
) -> tuple[Int, Int]:
    """Read one frame into `frame`: (fault, how far it was read)."""
    for slot in range(c.FOUND, c.FRAME):
        frame[slot] = -1
    state[c.NEEDED] = start
    fault, at = _read_command(data, start, settings, frame)
    if rare(fault != faults.FINE):
        return fault, at
    frame[c.F_HEADERS] = at
    frame[c.F_PUT] = state[c.FILLED]
    fault, at = _read_lines(data, at, settings, frame, state, out)
    if rare(fault != faults.FINE):
        return fault, at
    return _read_body(data, at, settings, frame, state), at


@inlined
def _put_topic(data: Bytes, frame: Numbers, mode: Int, out: Bytes, at: Int) -> tuple[Int, Int]:
    """Write the topic of a SEND's destination: (fault, offset after it)."""
    start, end = frame[c.FOUND], frame[c.FOUND + 1]
    if start < 0:
        return faults.NO_DESTINATION, at
    if end - start < len(_PREFIX):
        return faults.BAD_DESTINATION, at
    prefix = _QUEUE_PREFIX if data[start + _KIND_AT] == _QUEUE_KIND else _PREFIX
    for step in range(len(_PREFIX)):
        if data[start + step] != prefix[step]:
            return faults.BAD_DESTINATION, at
    start += len(_PREFIX)
    behind = unescape_into(data, start, end, out, at) if mode >= _V1_1 else copy_bytes(data, start, end, out, at)
    if behind - at > MAX_TOPIC_BYTES:
        return faults.TOPIC + TOPIC_LONG, at
    fault, _ = check_topic(out, at, behind)
    return (faults.TOPIC + fault if fault else faults.FINE), behind


@inlined
def _place_topic(
    data: Bytes, frame: Numbers, mode: Int, state: Numbers, out: Bytes, spans: Spans, at: Int
) -> tuple[Int, Int, Int, Int]:
    """Write the topic of a row, or share it: (fault, start of the topic, its end, offset after what was written).

    Publishers often repeat a topic: a row with the same destination as the row before shares its topic, which is
    checked.
    """
    start, end = frame[c.FOUND], frame[c.FOUND + 1]
    last, last_end = state[c.LAST], state[c.LAST_END]
    if end - start == last_end - last and start >= 0 and same_bytes(data, start, last, end - start):
        before = state[c.ROWS] - 1
        return faults.FINE, np.int64(spans[before, TOPIC]), np.int64(spans[before, TOPIC + 1]), at
    fault, behind = _put_topic(data, frame, mode, out, at)
    state[c.LAST], state[c.LAST_END] = start, end
    return fault, at, behind, behind


@inlined
def _put_value(
    data: Bytes, frame: Numbers, own: Int, out: Bytes, at: Int, extras: Columns, row: Int, column: Int
) -> Int:
    """Write the value of an own header as the client wrote it, and set its span; return the offset after it."""
    start, end = frame[c.FOUND + 2 * own], frame[c.FOUND + 2 * own + 1]
    if start < 0:
        extras[row, column], extras[row, column + 1] = -1, -1
        return at
    behind = copy_bytes(data, start, end, out, at)
    extras[row, column], extras[row, column + 1] = at, behind
    return behind


@inlined
def _put_envelope(data: Bytes, frame: Numbers, envelopes: Envelopes, row: Int) -> None:
    """Set the envelope to its defaults, with the priority and the expiry of the sender if they are valid."""
    for column in range(envelopes.shape[1]):
        envelopes[row, column] = 0
    envelopes[row, HOP_LIMIT] = DEFAULT_HOP_LIMIT
    # The destination is checked: it has one of the two prefixes.
    if data[frame[c.FOUND] + _KIND_AT] == _QUEUE_KIND:
        envelopes[row, FLAGS] = QUEUED
    start, end = frame[c.FOUND + 2 * c.OWN_PRIORITY], frame[c.FOUND + 2 * c.OWN_PRIORITY + 1]
    priority = _number(data, start, end) if end - start == 1 else -1
    envelopes[row, PRIORITY] = priority if priority >= 0 else DEFAULT_PRIORITY
    start, end = frame[c.FOUND + 2 * c.OWN_EXPIRES], frame[c.FOUND + 2 * c.OWN_EXPIRES + 1]
    envelopes[row, EXPIRY] = max(_number(data, start, end), 0)


@inlined
def _put_row(
    data: Bytes,
    frame: Numbers,
    mode: Int,
    state: Numbers,
    out: Bytes,
    spans: Spans,
    envelopes: Envelopes,
    extras: Columns,
) -> Int:
    """Make a row of a SEND whose lines are already in `out`; a fault changes nothing below `state[FILLED]`.

    In `out` a row has, in this order: its header lines, its topic (unless it shares that of the row before), its body,
    and the values of `receipt` and `message-id`. Rows below `state[ROWS]` and bytes below `state[FILLED]` are final; a
    row counts only after both are advanced.
    """
    row, start, lines_end = state[c.ROWS], state[c.FILLED], frame[c.F_PUT]
    if rare(lines_end - start > MAX_HEADER_BYTES):
        return faults.STORED_LONG
    if rare(check_utf8(out, start, lines_end) >= 0):
        return faults.NOT_UTF8
    fault, topic, topic_end, body = _place_topic(data, frame, mode, state, out, spans, lines_end)
    if fault:
        return fault
    body_end = copy_bytes(data, frame[c.F_BODY], frame[c.F_BODY_END], out, body)
    for column in range(SPAN_COLUMNS):
        spans[row, column] = body_end
    spans[row, TOPIC], spans[row, TOPIC + 1] = topic, topic_end
    spans[row, HEADERS], spans[row, HEADERS + 1] = start, lines_end
    spans[row, BODY], spans[row, BODY + 1] = body, body_end
    _put_envelope(data, frame, envelopes, row)
    at = _put_value(data, frame, c.OWN_RECEIPT, out, body_end, extras, row, c.RECEIPT)
    at = _put_value(data, frame, c.OWN_MESSAGE_ID, out, at, extras, row, c.MESSAGE_ID)
    state[c.FILLED] = at
    state[c.ROWS] = row + 1
    state[c.RECEIPTS] += extras[row, c.RECEIPT] >= 0
    state[c.NAMED] += extras[row, c.MESSAGE_ID] >= 0
    state[c.QUEUES] += envelopes[row, FLAGS] == QUEUED
    return faults.FINE


@inlined
def _is_row(frame: Numbers, settings: Numbers) -> Truth:
    """Whether a frame becomes a row, and not a control frame."""
    if frame[c.F_COMMAND] != c.SEND or settings[c.TAKES_SENDS] == 0:
        return False
    return frame[c.FOUND + 2 * c.OWN_TRANSACTION] < 0 or settings[c.TAKES_TRANSACTIONS] != 0


@inlined
def _put_control(frame: Numbers, start: Int, state: Numbers, controls: Columns) -> None:
    number = state[c.CONTROLS]
    controls[number, c.C_COMMAND] = frame[c.F_COMMAND]
    controls[number, c.C_START] = start
    controls[number, c.C_HEADERS], controls[number, c.C_HEADERS_END] = frame[c.F_HEADERS], frame[c.F_HEADERS_END]
    controls[number, c.C_END] = frame[c.F_END]
    controls[number, c.C_ROW] = state[c.ROWS]
    state[c.CONTROLS] = number + 1


@kernel(
    f"int64({BUFFER}, int64[::1], int64[::1], int64[::1], uint8[::1], int32[:, ::1], int64[:, ::1], int32[:, ::1], "
    "int32[:, ::1])",
    allocates=False,
)
def scan(
    data: Bytes,
    settings: Numbers,
    state: Numbers,
    frame: Numbers,
    out: Bytes,
    spans: Spans,
    envelopes: Envelopes,
    extras: Columns,
    controls: Columns,
) -> Int:
    """Read frames until the data ends, a control frame changes what comes next, or a fault is found.

    `state` has everything that lasts from call to call: where to continue in `data`, how much of `out` and of the
    columns is filled, and what was found. `frame` describes only the current frame. An unfinished frame is read again
    from its start when more has arrived; `state[NEEDED]` and `state[AWAITED]` say when that can get further.
    """
    size = np.int64(len(data))
    at = state[c.AT]
    while True:
        while at < size:
            gap = _line_end(data, at, size)
            if gap <= 0:
                break
            at += gap
            state[c.LINE_ENDS] += 1
        state[c.AT] = at
        if at == size:
            return c.DONE
        fault, reached = _read_frame(data, at, settings, frame, state, out)
        if fault == faults.FINE:
            is_row = _is_row(frame, settings)
            # A SEND in a transaction is checked like any other, so that its commit cannot fail.
            if frame[c.F_COMMAND] == c.SEND and settings[c.TAKES_SENDS] != 0:
                rows, filled, receipts, named = state[c.ROWS], state[c.FILLED], state[c.RECEIPTS], state[c.NAMED]
                fault = _put_row(data, frame, settings[c.MODE], state, out, spans, envelopes, extras)
                if not is_row:
                    state[c.ROWS], state[c.FILLED], state[c.RECEIPTS], state[c.NAMED] = rows, filled, receipts, named
                    state[c.LAST], state[c.LAST_END] = 0, 0
            if fault == faults.FINE and not is_row:
                _put_control(frame, at, state, controls)
        if rare(fault == faults.UNFINISHED):
            state[c.NEEDED] -= at
            return c.DONE
        if rare(fault != faults.FINE):
            state[c.FAULT], state[c.START], state[c.REACHED] = fault, at, reached
            return c.FAULTY
        at = frame[c.F_END]
        state[c.AT] = at
        if frame[c.F_COMMAND] >= c.CONNECT or state[c.CONTROLS] == len(controls) or not settings[c.TAKES_SENDS]:
            return c.PAUSED
