"""Byte streams that are almost STOMP, the same in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.protocols.stomp import encode_frame

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

HELLO = encode_frame("CONNECT", {"accept-version": "1.0,1.1,1.2", "host": "here", "heart-beat": "0,0"})

# Right in any order behind a HELLO, so that many streams come as far as the core.
FINE = [
    encode_frame("SEND", {"destination": "/topic/fuzz.a", "price": "7", "receipt": "r"}, b"body"),
    encode_frame("SEND", {"destination": "/topic/fuzz.b", "expires": "1", "priority": "9"}, b"\0\n\xff"),
    encode_frame("SEND", {"destination": "/topic/fuzz.a"}, b"x" * 30_000),
    b"\n\r\n\n",
]

# Right by itself, each of them; together and in any order they often are not. Or wrong.
OTHERS = [
    HELLO,
    encode_frame("STOMP", {"accept-version": "1.1", "host": "here", "heart-beat": "9,9"}),
    encode_frame("SEND", {"destination": "/topic/fuzz.a", "transaction": "t"}, b"later"),
    encode_frame("SEND", {"destination": "/exchange/elsewhere"}, b"x"),
    encode_frame("SUBSCRIBE", {"id": "1", "destination": "/topic/fuzz.>", "selector": "price > 3 OR x IS NULL"}),
    encode_frame("SUBSCRIBE", {"id": "2", "destination": "/topic/fuzz.a", "ack": "client", "overflow": "push-back"}),
    encode_frame("SUBSCRIBE", {"id": "3", "destination": "/topic/fuzz.*", "overflow": "disconnect"}),
    encode_frame("SUBSCRIBE", {"id": "4", "destination": "/topic/fuzz.a", "selector": "(((price + '7'"}),
    encode_frame("UNSUBSCRIBE", {"id": "1"}),
    encode_frame("ACK", {"id": "00000001-00000001-000000000001-0001-00000001"}),
    encode_frame("NACK", {"id": "nonsense", "message-id": "x", "subscription": "2"}),
    encode_frame("BEGIN", {"transaction": "t"}),
    encode_frame("COMMIT", {"transaction": "t", "receipt": "r"}),
    encode_frame("ABORT", {"transaction": "t"}),
    encode_frame("DISCONNECT", {"receipt": "bye"}),
    b"SEND\ndestination:/topic/fuzz.a\ncontent-length:99999999999999\n\nx\0",
    b"SEND\ndestination:/topic/fuzz.a\ncontent-length:-1\n\nx\0",
    b"SEND\r\ndestination:/topic/fuzz.a\r\nbad\\escape:\\q\r\n\r\n\0",
    b"SEND\n" + b"h:v\n" * 2_000 + b"\n\0",
    b"SEND\n" + b"h" * 70_000,
]


def _flip(data: bytearray, random: random.Random) -> None:
    data[random.randrange(len(data))] = random.randrange(256)


def _cut(data: bytearray, random: random.Random) -> None:
    at = random.randrange(len(data))
    del data[at : at + random.randrange(1, 40)]


def _repeat(data: bytearray, random: random.Random) -> None:
    at = random.randrange(len(data))
    data[at:at] = data[at : at + random.randrange(1, 40)]


def _insert(data: bytearray, random: random.Random) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.choice([b"\0", b"\n", b":", b"\\", b"\r\n", b"\xc3", b"content-length:3\n", b"\0\0\0\n"])


def _end(data: bytearray, random: random.Random) -> None:
    del data[random.randrange(len(data)) + 1 :]


CHANGES: list[Callable[[bytearray, random.Random], None]] = [_flip, _cut, _repeat, _insert, _end]


def stream(random: random.Random) -> bytes:
    """One stream: noise, or frames in any order, most of them changed somewhere."""
    if random.random() < 0.05:
        return random.randbytes(random.randrange(1, 300))
    data = bytearray(HELLO if random.random() < 0.8 else b"")
    for _ in range(random.randrange(1, 8)):
        data += random.choice(FINE if random.random() < 0.7 else OTHERS)
    for _ in range(random.choice([0, 0, 1, 1, 2, 5])):
        if data:
            random.choice(CHANGES)(data, random)
    return bytes(data)
