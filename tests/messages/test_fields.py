"""The pieces that kernels of other rooms are made of, against the lazy message."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from hypothesis import given

from postroad.kernels import kernel
from postroad.messages import Batch, Draft, MessageId, Tag
from postroad.messages.columns import ATTRIBUTES, BUFFER, HEADERS
from postroad.messages.fields import (
    ID_TEXT_BYTES,
    entry_at,
    float_at,
    integer_at,
    line_at,
    put_id_text,
    unescape_into,
)
from tests.messages.strategies import drafts, ids

WIDTH = 64


@kernel(f"int64({BUFFER}, int32[:, ::1], uint8[:, ::1], int64[:, ::1])")
def walk(buffer: Any, spans: Any, out: Any, sizes: Any) -> int:
    """Write name and value of each attribute of row 0 to `out`: name, value; sizes: tag, name, value."""
    count = 0
    at: Any = np.int64(spans[0, ATTRIBUTES])
    end = np.int64(spans[0, ATTRIBUTES + 1])
    while at < end:
        tag, name, value, following = entry_at(buffer, at)
        sizes[count, 0], sizes[count, 1], sizes[count, 2] = tag, value - name, following - value
        out[count, : value - name] = buffer[name:value]
        out[count, WIDTH : WIDTH + following - value] = buffer[value:following]
        at = following
        count += 1
    at, end = np.int64(spans[0, HEADERS]), np.int64(spans[0, HEADERS + 1])
    while at < end:
        colon, newline, escaped = line_at(buffer, at)
        sizes[count, 0], sizes[count, 3] = 2, escaped
        sizes[count, 1] = unescape_into(buffer, at, colon, out[count], 0)
        sizes[count, 2] = unescape_into(buffer, colon + 1, newline, out[count], WIDTH) - WIDTH
        at = newline + 1
        count += 1
    return count


@kernel(f"Tuple((int64, float64))({BUFFER}, int64)")
def load(buffer: Any, at: int) -> tuple[int, float]:
    return integer_at(buffer, at), float_at(buffer, at)


@kernel("int64(uint64[::1], uint8[::1])")
def id_text(identity: Any, out: Any) -> int:
    return put_id_text(identity[0], identity[1], out, 1)


@given(drafts)
def test_walk_finds_all_attributes(draft: Draft) -> None:
    batch = Batch.build([draft])
    out, sizes = np.zeros((10, 2 * WIDTH), np.uint8), np.zeros((10, 4), np.int64)
    count = walk(batch.buffer, batch.spans, out, sizes)
    found: dict[Any, Any] = {}
    for data, (tag, name_size, value_size, _) in zip(out[:count], sizes.tolist(), strict=False):
        value = data[WIDTH : WIDTH + value_size].tobytes()
        found.setdefault(data[:name_size].tobytes().decode(), (tag, value))
    assert found == {name: written(value) for name, value in batch.message(0).attributes.items()}


def written(value: object) -> tuple[int, bytes]:
    if isinstance(value, str):
        return Tag.TEXT if type(value) is str else Tag.UNTYPED, value.encode()
    if isinstance(value, bytes):
        return Tag.BYTES, value
    if isinstance(value, bool):
        return Tag.BOOLEAN, bytes([value])
    return (Tag.INTEGER, struct.pack("<q", value)) if isinstance(value, int) else (Tag.FLOAT, struct.pack("<d", value))


def test_walk_tells_whether_a_line_has_escapes() -> None:
    batch = Batch.build([("a", {}, [("a", "b"), ("a:", "b"), ("a", "\n\r\\:")])])
    out, sizes = np.zeros((10, 2 * WIDTH), np.uint8), np.zeros((10, 4), np.int64)
    walk(batch.buffer, batch.spans, out, sizes)
    assert sizes[:3, 3].tolist() == [0, 1, 1]
    assert out[2, WIDTH : WIDTH + 5].tobytes() == b"\n\r\\:\0"


def test_numbers_are_loaded_from_any_offset() -> None:
    data = np.frombuffer(b"x" + struct.pack("<d", -0.1) + struct.pack("<q", -2), np.uint8)
    assert load(data, 1)[1] == -0.1
    assert load(data, 9)[0] == -2


@given(ids)
def test_id_text_is_the_text_form(identity: MessageId) -> None:
    out = np.zeros(1 + ID_TEXT_BYTES, np.uint8)
    assert id_text(np.array([identity.head, identity.tail], np.uint64), out) == len(out)
    assert out[1:].tobytes().decode() == str(identity)
