"""The kernel that decodes WebSocket frames of clients: any number of them costs one call.

A frame without content takes 6 bytes, so a read of 256 KiB has room for 43,000. A Python object for each of them would
take half a second.

Why no index leaves its array: a part of a frame is read only after its end was compared with the size of the data, and
no byte of the data is written to the output twice, which is as long as the data. A length is used only when it is known
to be at most the limit of a message, which is below 2^31; a length of 64 bits is refused unless its upper half is zero,
so no sum overflows. Each step of the loop goes on by 6 bytes or more, or ends it: the work is linear in the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, inlined, kernel, put_word, word_at
from postroad.messages.columns import BUFFER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.messages.columns import Bytes

__all__ = [
    "AT",
    "BINARY",
    "CLOSE_END",
    "CLOSING",
    "CUT_CONTROL",
    "FILLED",
    "FINE",
    "KIND",
    "LARGE_CONTROL",
    "LARGE_MESSAGE",
    "MAX_CONTROL_BYTES",
    "MESSAGE_UNFINISHED",
    "NOTHING_CONTINUED",
    "NOT_MASKED",
    "PING",
    "PING_END",
    "RESERVED_BITS",
    "STATE",
    "UNKNOWN_OPCODE",
    "decode_frames",
]

# A control frame carries no more (RFC 6455, 5.5).
MAX_CONTROL_BYTES = 125

# What `decode_frames` returns.
FINE, CLOSING = 0, 1
RESERVED_BITS, UNKNOWN_OPCODE, NOT_MASKED, LARGE_CONTROL, CUT_CONTROL = 2, 3, 4, 5, 6
NOTHING_CONTINUED, MESSAGE_UNFINISHED, LARGE_MESSAGE = 7, 8, 9

# The state of a connection, int64[STATE].
# From call to call: bytes of the current data frame that are still to come; the mask, its lowest byte for the next of
# them; whether a message is unfinished; its bytes so far, as its frames say; the opcode that the last message began
# with.
LEFT, MASK, IS_OPEN, SIZE, KIND = 0, 1, 2, 3, 4
# Results of a call: where decoding stopped; the bytes of the output; start and end of the last PING, both 0 for none;
# the end of a CLOSE that begins where decoding stopped.
AT, FILLED, PING, PING_END, CLOSE_END = 5, 6, 7, 8, 9
STATE = 10

# Opcodes.
_CONTINUATION, BINARY, _CLOSE, _PING, _PONG = 0, 2, 8, 9, 10
# Bits of the first two bytes of a frame.
_FINAL, _RESERVED, _OPCODE, _MASKED, _LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F
# Lengths that say that the length follows, in 2 or 8 bytes; and bytes of a header with its mask.
_IN_TWO_BYTES, _IN_EIGHT_BYTES = 126, 127
_HEADER, _HEADER_2, _HEADER_8 = 6, 8, 14


@inlined
def _big_endian(data: Bytes, start: Int, end: Int) -> Int:
    value = np.int64(0)
    for place in range(np.uint64(start), np.uint64(end)):
        value = value << 8 | np.int64(data[place])
    return value


@inlined
def _mask_at(data: Bytes, at: Int) -> Int:
    return (
        np.int64(data[at]) | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2]) << 16 | np.int64(data[at + 3]) << 24
    )


@inlined
def _unmask(data: Bytes, start: Int, end: Int, mask: Int, out: Bytes, to: Int) -> Int:
    """Write a part of a payload to `to`; return the mask for the byte after it."""
    word = np.uint64(mask) | np.uint64(mask) << np.uint64(32)
    while start + 8 <= end:
        put_word(out, to, word_at(data, start) ^ word)
        start += 8
        to += 8
    while start < end:
        out[to] = data[start] ^ np.uint8(word & np.uint64(0xFF))
        word = word >> np.uint64(8) | word << np.uint64(56)
        start += 1
        to += 1
    return np.int64(word & np.uint64(0xFFFFFFFF))


@inlined
def _length_at(data: Bytes, at: Int, short: Int) -> Int:
    """Return the length of a data frame whose header is whole; -1 for one of more than 32 bits."""
    if short == _IN_TWO_BYTES:
        return _big_endian(data, at + 2, at + 4)
    if short == _IN_EIGHT_BYTES:
        return np.int64(-1) if _big_endian(data, at + 2, at + 6) != 0 else _big_endian(data, at + 6, at + 10)
    return np.int64(short)


@inlined
def _control_fault(first: Int, short: Int) -> Int:
    """Return what is wrong with a control frame."""
    if (first & _OPCODE) > _PONG:
        return UNKNOWN_OPCODE
    if (first & _FINAL) == 0:
        return CUT_CONTROL
    return LARGE_CONTROL if short > MAX_CONTROL_BYTES else FINE


@inlined
def _data_fault(opcode: Int, is_open: Int) -> Int:
    """Return what is wrong with a data frame, besides its length."""
    if opcode > BINARY:
        return UNKNOWN_OPCODE
    if opcode == _CONTINUATION:
        return FINE if is_open else NOTHING_CONTINUED
    return MESSAGE_UNFINISHED if is_open else FINE


@kernel(f"int64({BUFFER}, int64[::1], int64, uint8[::1])", allocates=False)
def decode_frames(data: Bytes, state: NDArray[np.int64], limit: int, out: Bytes) -> int:
    """Write the payloads of data frames to `out`, up to the end of the data, a CLOSE frame, or a fault.

    Args:
        data: frames, from where the last call stopped (`AT`).
        state: of the connection; the offsets in it are into `data` and `out`.
        limit: of the bytes of one message.
        out: as long as `data`.

    Returns:
        FINE, CLOSING, or a fault.
    """
    size = len(data)
    at, filled = np.int64(0), np.int64(0)
    state[PING], state[PING_END] = 0, 0
    status = FINE
    while True:
        if state[LEFT] > 0:
            count = min(state[LEFT], size - at)
            state[MASK] = _unmask(data, at, at + count, state[MASK], out, filled)
            at += count
            filled += count
            state[LEFT] -= count
        if at + 2 > size:
            break
        first, second = np.int64(data[at]), np.int64(data[at + 1])
        opcode, short = first & _OPCODE, second & _LENGTH
        is_control = opcode >= _CLOSE
        status = _control_fault(first, short) if is_control else _data_fault(opcode, state[IS_OPEN])
        if first & _RESERVED:
            status = RESERVED_BITS
        elif (second & _MASKED) == 0:
            status = NOT_MASKED
        if status != FINE:
            break
        if is_control:
            end = at + _HEADER + short
            if end > size:
                break
            if opcode == _CLOSE:
                state[CLOSE_END] = end
                status = CLOSING
                break
            if opcode == _PING:
                state[PING], state[PING_END] = at, end
            at = end
            continue
        header = _HEADER_8 if short == _IN_EIGHT_BYTES else _HEADER_2 if short == _IN_TWO_BYTES else _HEADER
        if at + header > size:
            break
        length = _length_at(data, at, short)
        before = state[SIZE] if opcode == _CONTINUATION else np.int64(0)
        if length < 0 or before + length > limit:
            status = LARGE_MESSAGE
            break
        if opcode != _CONTINUATION:
            state[KIND] = opcode
        state[SIZE] = before + length
        state[IS_OPEN] = (first & _FINAL) == 0
        state[LEFT] = length
        state[MASK] = _mask_at(data, at + header - 4)
        at += header
    state[AT], state[FILLED] = at, filled
    return status
