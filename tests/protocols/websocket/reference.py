"""RFC 6455 read frame by frame: the slow twin of the decoder, and an encoder of a client's frames."""

from __future__ import annotations

from typing import NamedTuple

TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0


def masked(payload: bytes, mask: bytes) -> bytes:
    return bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


def frame(opcode: int, payload: bytes = b"", *, final: bool = True, mask: bytes = b"\x11\xa2\x00\xff") -> bytes:
    """One frame, as a client writes it."""
    if len(payload) < 126:
        length = bytes([0x80 | len(payload)])
    elif len(payload) < 1 << 16:
        length = b"\xfe" + len(payload).to_bytes(2, "big")
    else:
        length = b"\xff" + len(payload).to_bytes(8, "big")
    return bytes([opcode | (0x80 if final else 0)]) + length + mask + masked(payload, mask)


class Outcome(NamedTuple):
    """What a stream of frames comes to.

    Attributes:
        payload: of all data frames until the end.
        pings: what each PING carries.
        close: what the CLOSE carries; None without.
        code: of the fault; 0 for none.
        rest: bytes of an unfinished frame, without a payload that has begun.
    """

    payload: bytes
    pings: list[bytes]
    close: bytes | None
    code: int
    rest: int


def outcome(stream: bytes, limit: int) -> Outcome:
    """Read a whole stream."""
    at, size = 0, None
    payload = b""
    pings: list[bytes] = []
    while len(stream) - at >= 2:
        first, second = stream[at], stream[at + 1]
        opcode, short = first & 15, second & 127
        is_control = opcode >= 8
        wrong = first & 0x70 or not second & 0x80 or opcode not in (0, 1, 2, 8, 9, 10)
        if is_control:
            wrong = wrong or not first & 0x80 or short > 125
        else:
            wrong = wrong or (opcode == CONTINUATION) == (size is None)
        if wrong:
            return Outcome(payload, pings, None, 1002, 0)
        extra = {126: 2, 127: 8}.get(short, 0)
        if len(stream) - at < 6 + extra:
            break
        length = int.from_bytes(stream[at + 2 : at + 2 + extra], "big") if extra else short
        start = at + 6 + extra
        part = masked(stream[start : start + length], stream[start - 4 : start])
        if is_control:
            if len(part) < length:
                break
            if opcode == CLOSE:
                return Outcome(payload, pings, part, 0, 0)
            if opcode == PING:
                pings.append(part)
        else:
            before = 0 if size is None else size
            if before + length > limit:
                return Outcome(payload, pings, None, 1009, 0)
            payload += part
            size = None if first & 0x80 else before + length
        at = start + length
    return Outcome(payload, pings, None, 0, max(0, len(stream) - at))
