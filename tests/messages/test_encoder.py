from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LimitError, PostroadError
from postroad.messages import (
    Batch,
    Draft,
    MessageError,
    MessageId,
    Untyped,
    Value,
    check_batch,
    decode_batch,
    decode_envelopes,
    encode,
    encode_batch,
    encode_envelopes,
    encode_metadata,
    limits,
)
from postroad.messages.columns import ATTRIBUTES, BODY, HEADERS, METADATA, TOPIC
from tests.messages.strategies import drafts, names, values

ROW = Draft("a.b", {"x": 1}, [("h", "v")], b"body", metadata={"m": "1"})


def typed(attributes: dict[str, Value]) -> dict[str, tuple[type, object]]:
    """Values with their types, floats by their bits: 1, 1.0 and True are equal in Python, and -0.0 is 0.0."""
    bits = {name: struct.pack("d", value) if isinstance(value, float) else value for name, value in attributes.items()}
    return {name: (type(value), bits[name]) for name, value in attributes.items()}


def expected(draft: Draft) -> dict[str, Value]:
    """All attributes of a draft, the first of each name."""
    found = dict(draft.attributes)
    for name, value in draft.headers:  # type: ignore[str-unpack]
        found.setdefault(str(name), Untyped(value))
    return found


def frame(batch: Batch) -> Batch:
    """Send a batch through all of its wire forms, in one buffer, and read it back."""
    envelopes, (metadata, _), (messages, lengths) = encode_envelopes(batch), encode_metadata(batch), encode_batch(batch)
    buffer = np.concatenate([np.full(3, 0xEE, np.uint8), envelopes, metadata, messages])
    ids, columns, sizes = decode_envelopes(buffer, len(batch), start=3)
    after = 3 + len(envelopes)
    start = after + len(metadata)
    return decode_batch(buffer, lengths, start=start, ids=ids, envelopes=columns, metadata=(after, sizes))


@given(st.lists(drafts, max_size=4))
def test_batch_survives_the_wire(rows: list[Draft]) -> None:
    batch = Batch.build(rows)
    check_batch(batch)
    received = frame(batch)
    assert len(received) == len(rows)
    for draft, message in zip(rows, received, strict=True):
        assert message.topic == draft.topic
        assert typed(message.attributes) == typed(expected(draft))
        assert list(message.attributes) == list(expected(draft))
        assert typed(message.metadata) == typed(dict(draft.metadata))
        assert message.body == draft.body
        assert message.id == draft.id
        assert (message.source, message.hop_limit, message.flags) == (draft.source, draft.hop_limit, draft.flags)
        assert (message.priority, message.expiry) == (draft.priority, draft.expiry)


@given(st.lists(drafts, max_size=4))
def test_encoding_many_equals_encoding_one_by_one(rows: list[Draft]) -> None:
    encoded, lengths = encode_batch(Batch.build(rows))
    one_by_one = [encode(row.topic, row.attributes, row.headers, row.body) for row in rows]
    assert encoded.tobytes() == b"".join(one_by_one)
    assert lengths.tolist() == [len(data) for data in one_by_one]


@given(names, values)
def test_every_type_survives_by_itself(name: str, value: Value) -> None:
    data = encode("a", {name: value})
    assert typed(decode_batch(data, [len(data)]).message(0).attributes) == typed({name: value})


def test_spans_may_point_anywhere_in_a_socket_read() -> None:
    read = b"SEND\nh:v\ndestination:a.b\n\nbody\0SEND..."
    spans = np.zeros((2, 10), dtype=np.int32)
    for column, part in ((TOPIC, b"a.b"), (HEADERS, b"h:v\n"), (BODY, b"body")):
        spans[:, column] = read.index(part)
        spans[:, column + 1] = read.index(part) + len(part)
    ids, envelopes = np.zeros((2, 2), dtype=np.uint64), np.zeros((2, 5), dtype=np.int64)
    batch = Batch(np.frombuffer(read, dtype=np.uint8), spans, ids, envelopes)
    check_batch(batch)
    encoded, _ = encode_batch(batch)
    assert encoded.tobytes() == encode("a.b", headers={"h": "v"}, body=b"body") * 2


@pytest.mark.parametrize(
    "attributes",
    [
        {"": 1},
        {"x" * 256: 1},
        {"\ud800": 1},
        {7: 1},
        {"x": float("nan")},
        {"x": 2**63},
        {"x": -(2**63) - 1},
        {"x": "\udfff"},
        {"x": None},
        {"x": [1]},
        {"x": np.int64(1)},
        {"x": "y" * 65_536},
        [("x", 1)],
    ],
)
def test_writer_refuses_what_is_no_attribute(attributes: dict[str, Value]) -> None:
    with pytest.raises(PostroadError, match="attribute"):
        encode("a", attributes)


@pytest.mark.parametrize(
    "headers", [{"": "x"}, {"x" * 256: ""}, {"x": "\0"}, {"x\0": ""}, {"x": "\ud800"}, {"x": 7}, {7: "x"}, ["x"], 7]
)
def test_writer_refuses_what_is_no_header(headers: dict[str, str]) -> None:
    with pytest.raises(MessageError, match="header"):
        encode("a", headers=headers)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "*",
        "a.*",
        "a.>",
        "a*b",
        "a b",
        "a\tb",
        "a\0",
        "a\x85",
        "a\u2003b",
        "\ud800",
        7,
        "x" * 1025,
    ],
)
def test_writer_refuses_what_is_no_topic(topic: str) -> None:
    with pytest.raises(PostroadError, match="topic"):
        encode(topic)


def test_writer_refuses_more_than_the_limits() -> None:
    many = {f"n{number}": number for number in range(limits.MAX_ATTRIBUTES)}
    encode("a", many)
    with pytest.raises(LimitError, match="1,025; the limit is 1,024"):
        encode("a", many, {"one": "more"})
    with pytest.raises(LimitError, match="attribute block"):
        encode("a", {f"n{number}": "x" * 60_000 for number in range(5)})
    with pytest.raises(LimitError, match="header lines"):
        encode("a", headers={"x": "y" * limits.MAX_HEADER_BYTES})
    with pytest.raises(LimitError, match="levels"):
        encode(".".join("a" * (limits.MAX_TOPIC_LEVELS + 1)))
    with pytest.raises(LimitError, match="body"):
        encode("a", body=bytes(limits.MAX_BODY_BYTES + 1))
    with pytest.raises(LimitError, match="attribute block"):
        Batch.build([Draft("a", metadata={"x": bytes(limits.MAX_METADATA_BYTES)})])


def test_largest_values_survive() -> None:
    topic = ".".join(["x" * 15] * 63 + ["y" * 16])
    attributes: dict[str, Value] = {"n" * 255: "v" * 65_535, "b": b"\xff" * 65_535}
    headers = {"h" * 255: "w" * 65_000}
    data = encode(topic, attributes, headers)
    message = decode_batch(data, [len(data)]).message(0)
    assert len(topic) == limits.MAX_TOPIC_BYTES
    assert (message.topic, message.attributes) == (topic, {**attributes, **headers})


@pytest.mark.parametrize(
    "fields",
    [
        {"source": -1},
        {"source": 2**32},
        {"hop_limit": 256},
        {"flags": 32},
        {"priority": 256},
        {"expiry": 2**63},
        {"priority": 1.5},
        {"id": "00000007-00000002-018bcfe56800-0001"},
        {"body": "text"},
    ],
)
def test_batch_refuses_fields_out_of_range(fields: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match=r"between|MessageId|bytes"):
        Batch.build([Draft("a", **fields)])


@pytest.mark.parametrize("row", ["topic", (), 7, ("a",) * 12])
def test_batch_refuses_what_is_no_row(row: tuple[str]) -> None:
    with pytest.raises(MessageError, match="a row is a Draft or a tuple"):
        Batch.build([row])


@pytest.mark.parametrize("column", [TOPIC, ATTRIBUTES, HEADERS, BODY, METADATA])
@pytest.mark.parametrize("span", [(-1, 2), (3, 2), (0, 10_000)])
def test_encoder_refuses_spans_outside_the_buffer(column: int, span: tuple[int, int]) -> None:
    batch = Batch.build([ROW, ROW])
    batch.spans[1, column : column + 2] = span
    with pytest.raises(MessageError, match=r"row 1: the span"):
        encode_metadata(batch) if column == METADATA else encode_batch(batch)


@pytest.mark.parametrize(
    ("column", "limit"), [(TOPIC, 1024), (HEADERS, 65_536), (ATTRIBUTES, 262_144), (BODY, 2**24), (METADATA, 16_384)]
)
def test_encoder_refuses_spans_over_the_limit(column: int, limit: int) -> None:
    batch = Batch.build([ROW, ROW])
    batch.buffer = np.zeros(2**24 + 1, dtype=np.uint8)
    batch.spans[1, column : column + 2] = (0, limit + 1)
    with pytest.raises(LimitError, match=rf"row 1: .*{limit + 1:,}; the limit is {limit:,}"):
        encode_metadata(batch) if column == METADATA else encode_batch(batch)


@pytest.mark.parametrize(("column", "value"), [(0, 2**32), (1, -1), (2, 32), (3, 256), (4, -1)])
def test_envelope_writer_refuses_what_does_not_fit(column: int, value: int) -> None:
    batch = Batch.build([ROW, ROW])
    batch.envelopes[1, column] = value
    with pytest.raises(MessageError, match="row 1: the envelope's"):
        encode_envelopes(batch)


def test_envelope_writer_refuses_too_much_metadata() -> None:
    batch = Batch.build([ROW])
    batch.spans[0, METADATA + 1] = batch.spans[0, METADATA] + limits.MAX_METADATA_BYTES + 1
    with pytest.raises(MessageError, match="metadata length"):
        encode_envelopes(batch)


class Word(str):
    """Text of a class of its own, as libraries make it."""

    __slots__ = ()


class UntypedWord(Untyped):
    __slots__ = ()


def test_subclasses_travel_as_what_they_are() -> None:
    attributes: dict[str, Value] = {
        "word": Word("x"),
        "untyped": UntypedWord("7"),
        "float": np.float64(0.5),
        "bytes": bytes(2),
    }
    data = encode("a", attributes)
    found = decode_batch(data, [len(data)]).message(0).attributes
    assert typed(found) == typed({"word": "x", "untyped": Untyped("7"), "float": 0.5, "bytes": bytes(2)})


def test_id_of_an_unidentified_message_is_zero() -> None:
    assert Batch.build([("a",)]).message(0).id == MessageId(0, 0, 0, 0)
