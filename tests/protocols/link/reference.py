"""A DATA frame once more, written straight from `docs/formats.md`, slowly: what the room's code is held against."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.messages import Message
    from postroad.protocols.link import Data


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack("<IBBBB", 8 + len(body), kind, 0, 0, 0) + body


def envelope(message: Message, metadata: bytes) -> bytes:
    fields = message.source, message.hop_limit, message.flags, message.priority, 0, message.expiry, len(metadata), 0
    return bytes(message.id) + struct.pack("<IBBBBQII", *fields)


def data_frame(
    messages: Sequence[Message], sets: Sequence[Sequence[int]], lines: Sequence[int], epoch: int, number: int
) -> bytes:
    """A frame, a message at a time."""
    parts = [encoded(message) for message in messages]
    metadata = [metadata_of(message) for message in messages]
    body = struct.pack("<QQIIII", number, epoch, len(messages), len(sets), len(sets[0]), 0)
    body += b"".join(struct.pack("<Q", word) for one in sets for word in one)
    body += b"".join(struct.pack("<H", line) for line in lines)
    body += b"".join(envelope(message, block) for message, block in zip(messages, metadata, strict=True))
    body += b"".join(struct.pack("<I", len(part)) for part in parts)
    return frame(3, body + b"".join(metadata) + b"".join(parts))


def part(message: Message, column: int) -> bytes:
    start, end = message.batch.spans[message.row, column : column + 2].tolist()
    return message.batch.buffer[start:end].tobytes()


def metadata_of(message: Message) -> bytes:
    return part(message, 8)


def encoded(message: Message) -> bytes:
    topic, attributes, headers, body = (part(message, column) for column in (0, 2, 4, 6))
    prefix = struct.pack("<BBHIII", 1, 0, len(topic), len(attributes), len(headers), len(body))
    return prefix + topic + attributes + headers + body


def contents(data: Data) -> list[tuple[object, ...]]:
    """What a frame says about each row, for comparing."""
    return [
        (encoded(message), metadata_of(message), bytes(message.id), message.flags, data.sets[line].tolist())
        for message, line in zip(data.batch, data.lines, strict=True)
    ]
