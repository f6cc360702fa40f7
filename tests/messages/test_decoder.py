"""Every decoder takes any bytes: it accepts them or raises `DecodeError`, and what it accepts it gives back."""

from __future__ import annotations

import struct
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.errors import PostroadError
from postroad.messages import (
    Batch,
    DecodeError,
    Draft,
    MessageError,
    check_batch,
    decode_batch,
    decode_envelopes,
    encode,
    encode_batch,
    encode_envelopes,
    encode_metadata,
)
from postroad.messages.characters import INVISIBLE
from postroad.messages.columns import BODY, HEADERS, METADATA, SPAN_COLUMNS
from postroad.messages.headers import escape, unescape
from postroad.selectors import TopicPattern, check_topic
from tests.messages import reference
from tests.messages.strategies import drafts, entry, loose_entries, loose_lines, mutations, topics


def message(topic: bytes = b"a", attributes: bytes = b"", headers: bytes = b"", body: bytes = b"") -> bytes:
    """Encoded from parts that may be wrong."""
    parts = (topic, attributes, headers, body)
    return struct.pack("<BBHIII", 1, 0, *map(len, parts)) + b"".join(parts)


def encoded(draft: Draft) -> bytes:
    return encode(draft.topic, draft.attributes, draft.headers, draft.body)


def accepted(data: bytes) -> Batch | None:
    try:
        return decode_batch(data, [len(data)])
    except DecodeError as error:
        refused = error
    assert refused.row == 0
    assert 0 <= refused.offset <= len(data)
    return None


def assert_decoder_is_right(data: bytes) -> None:
    batch = accepted(data)
    assert (batch is not None) == reference.is_message(data)
    if batch is not None:
        assert encode_batch(batch)[0].tobytes() == data
        assert_readers_agree(data, batch)


def assert_readers_agree(data: bytes, batch: Batch) -> None:
    """The message's own reader finds what the reference finds in the same bytes."""
    topic, attributes, headers = struct.unpack("<HII", data[2:12])
    start = 16 + topic
    entries = reference.read_block(data[start : start + attributes])
    lines = reference.read_lines(data[start + attributes : start + attributes + headers])
    assert entries is not None
    assert lines is not None
    first_of_each = dict(reversed([*entries, *lines]))
    assert repr(sorted(batch.message(0).attributes.items())) == repr(sorted(first_of_each.items()))


@given(st.binary(max_size=60) | st.binary(min_size=14, max_size=60).map(lambda data: b"\1\0" + data))
@settings(max_examples=300)
def test_decoder_stands_random_bytes(data: bytes) -> None:
    assert_decoder_is_right(data)


@given(st.data())
@settings(max_examples=400)
def test_decoder_stands_mutated_messages(data: st.DataObject) -> None:
    assert_decoder_is_right(data.draw(mutations(encoded(data.draw(drafts)))))


@given(loose_entries, loose_lines)
@settings(max_examples=500)
def test_decoder_stands_loose_parts(attributes: bytes, headers: bytes) -> None:
    assert_decoder_is_right(message(attributes=attributes, headers=b""))
    assert_decoder_is_right(message(attributes=b"", headers=headers))


@given(st.lists(st.sampled_from([*(bytes([n]) for n in range(0x80, 0x100)), b"a", b"."]), max_size=4).map(b"".join))
@settings(max_examples=500)
def test_decoder_knows_utf8(data: bytes) -> None:
    assert_decoder_is_right(message(attributes=entry(1, b"n", data)))
    assert_decoder_is_right(message(topic=data))
    assert_decoder_is_right(message(headers=b"a:" + data + b"\n"))


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1\xbf",
        b"\xc2\x80",
        b"\xdf\xbf",
        b"\xe0\x9f\xbf",
        b"\xe0\xa0\x80",
        b"\xed\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xee\x80\x80",
        b"\xef\xbf\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xf0\x90\x80\x80",
        b"\xf4\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xf0\x90\x80",
        b"\xf0\x90\x80a",
    ],
    ids=bytes.hex,
)
def test_decoder_knows_the_edges_of_utf8(data: bytes) -> None:
    assert_decoder_is_right(message(attributes=entry(1, b"n", data)))
    # The value must not borrow the missing byte of the name, nor the topic that of the block behind it.
    assert_decoder_is_right(message(attributes=entry(1, data[:-1], data[-1:])))
    assert_decoder_is_right(message(topic=data[:-1], headers=data[-1:]))


@given(st.characters(exclude_categories=["Cs"]) | st.sampled_from(".*> \x7f\x80\x9f\xa0\u1680\u2000\u200b\u2028\u3000"))
@settings(max_examples=300)
def test_decoder_and_writer_agree_on_topics(character: str) -> None:
    for topic in (character, f"a{character}", f"{character}.a", f"a.{character}.b"):
        assert_decoder_is_right(message(topic=topic.encode()))
        try:
            encode(topic)
        except MessageError:
            assert not reference.is_topic(topic.encode())
        else:
            assert reference.is_topic(topic.encode())


def test_decoder_and_writer_agree_on_every_blank() -> None:
    for point in range(0x3100):
        topic = chr(point)
        assert (accepted(message(topic=topic.encode())) is not None) == reference.is_topic(topic.encode()), hex(point)


@pytest.mark.parametrize("point", sorted({point for a, b in INVISIBLE for point in (a - 1, a, b, b + 1)}))
def test_all_who_read_topics_agree_on_characters_that_nobody_can_see(point: int) -> None:
    topic = f"a.{chr(point)}b"
    seen = not reference.is_unseen(chr(point))
    assert (accepted(message(topic=topic.encode())) is not None) == seen
    for refuse in (encode, check_topic, TopicPattern.parse):
        if seen:
            refuse(topic)
        else:
            with pytest.raises(PostroadError, match=f"U\\+{point:04X}"):
                refuse(topic)


def test_every_blank_control_and_format_character_of_this_python_is_in_the_table() -> None:
    for point in range(0x80, 0x110000):
        if unicodedata.category(chr(point)) in ("Cc", "Cf", "Zs", "Zl", "Zp"):
            assert any(first <= point <= last for first, last in INVISIBLE), hex(point)


@pytest.mark.parametrize(
    "data",
    [
        message(topic=b"x" * 1025),
        message(topic=b".".join([b"a"] * 65)),
        message(attributes=entry(1, b"n", b"x" * 60_000) * 5),
        message(attributes=entry(1, b"n", b"") * 1025),
        message(attributes=entry(1, b"n", b"") * 1000, headers=b"a:\n" * 25),
        message(headers=b"a:\n" * 1025),
        message(headers=b"a:" + b"x" * 65_535 + b"\n"),
        message(headers=b"x" * 256 + b":\n"),
        message(headers=b"\\c" * 256 + b":\n"),
        message(body=bytes(2**24 + 1)),
    ],
)
def test_decoder_refuses_more_than_the_limits(data: bytes) -> None:
    with pytest.raises(DecodeError, match="more than"):
        decode_batch(data, [len(data)])


@pytest.mark.parametrize(
    "data",
    [
        message(topic=b"x" * 1024),
        message(topic=b".".join([b"a"] * 64)),
        message(attributes=entry(1, b"n", b"") * 1000, headers=b"a:\n" * 24),
        message(headers=b"a:" + b"x" * 65_533 + b"\n"),
        message(headers=b"\\c" * 255 + b":\n"),
    ],
)
def test_decoder_accepts_what_is_just_within_the_limits(data: bytes) -> None:
    assert accepted(data) is not None


def test_decoder_names_row_and_offset() -> None:
    good, bad = message(b"a"), message(b"a", body=b"x" * 5, attributes=entry(5, b"n", b"\2"))
    with pytest.raises(DecodeError, match="message 1, byte 39: a boolean is neither 0 nor 1") as caught:
        decode_batch(good + bad, [len(good), len(bad)])
    assert (caught.value.row, caught.value.offset) == (1, 39)


@pytest.mark.parametrize("lengths", [[-1], [0], [15], [18], [2**31], [2**63 - 1], [17, 17], [17, -17]])
def test_decoder_refuses_wrong_lengths(lengths: list[int]) -> None:
    with pytest.raises(DecodeError):
        decode_batch(message(b"a"), lengths)


def test_decoder_reads_no_messages_from_no_lengths() -> None:
    assert len(decode_batch(b"anything", [])) == 0


@pytest.mark.parametrize("lengths", ["17", [1.5], [[17]], [[1], [2, 3]], [None], 17])
def test_decoder_refuses_lengths_that_are_none(lengths: list[int]) -> None:
    with pytest.raises(MessageError, match="lengths"):
        decode_batch(message(b"a"), lengths)


@pytest.mark.parametrize(
    "buffer", ["text", 7, np.zeros(4, np.int32), np.zeros((2, 2), np.uint8), np.zeros(8, np.uint8)[::2]]
)
def test_decoder_refuses_buffers_that_are_none(buffer: bytes) -> None:
    with pytest.raises(MessageError, match=r"buffer|bytes"):
        decode_batch(buffer, [17])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint8])
def test_decoder_takes_any_buffer_and_any_integers(kind: type, dtype: type) -> None:
    data = message(b"a")
    assert decode_batch(kind(data * 2), np.array([17, 17], dtype=dtype)).message(1).topic == "a"


@pytest.mark.parametrize("start", [-1, 1, 18, 2**70])
def test_decoder_refuses_a_wrong_start(start: int) -> None:
    with pytest.raises(DecodeError):
        decode_batch(message(b"a"), [17], start=start)


def test_decoder_refuses_columns_of_another_length() -> None:
    with pytest.raises(MessageError, match="as many ids"):
        decode_batch(message(b"a"), [17], ids=np.zeros((2, 2), dtype=np.uint64))
    with pytest.raises(MessageError, match="as many metadata lengths"):
        decode_batch(message(b"a"), [17], metadata=(0, [0, 0]))


@pytest.mark.parametrize("metadata", [(0, [-1]), (0, [2**31]), (17, [1]), (-1, [0]), (18, [0]), (2**70, [0]), (0, [5])])
def test_decoder_refuses_wrong_metadata(metadata: tuple[int, list[int]]) -> None:
    with pytest.raises(DecodeError):
        decode_batch(message(b"a"), [17], metadata=metadata)


@given(loose_entries)
def test_metadata_is_checked_like_attributes(block: bytes) -> None:
    data = message(b"a") + block
    try:
        batch = decode_batch(data, [17], metadata=(17, [len(block)]))
    except DecodeError:
        assert reference.read_block(block) is None
    else:
        assert encode_metadata(batch)[0].tobytes() == block
        check_batch(batch)


def test_decoder_and_checker_refuse_too_much_metadata() -> None:
    block = entry(6, b"n", bytes(2**14 - 5)) + entry(6, b"n", b"")
    data = message(b"a") + block
    with pytest.raises(DecodeError, match="metadata has more than 16,384 bytes"):
        decode_batch(data, [17], metadata=(17, [len(block)]))
    batch = decode_batch(data, [17])
    batch.spans[0, METADATA : METADATA + 2] = (17, len(data))
    with pytest.raises(DecodeError, match="metadata has more than 16,384 bytes"):
        check_batch(batch)


@given(st.binary(min_size=38, max_size=90), st.integers(0, 2), st.integers(0, 12))
def test_envelope_decoder_stands_random_bytes(data: bytes, count: int, start: int) -> None:
    try:
        ids, envelopes, lengths = decode_envelopes(data, count, start)
    except DecodeError:
        return
    assert len(ids) == len(envelopes) == len(lengths) == count


@given(st.data(), st.lists(drafts, min_size=1, max_size=3))
@settings(max_examples=200)
def test_envelope_decoder_gives_back_what_it_accepts(data: st.DataObject, rows: list[Draft]) -> None:
    original = encode_envelopes(Batch.build(rows)).tobytes()
    changed = data.draw(st.just(original) | mutations(original))
    try:
        ids, envelopes, lengths = decode_envelopes(changed, len(rows))
    except DecodeError:
        assert changed != original
        return
    spans = np.zeros((len(rows), SPAN_COLUMNS), dtype=np.int32)
    spans[:, METADATA + 1] = lengths
    batch = Batch(np.zeros(2**15, np.uint8), spans, ids, envelopes)
    assert encode_envelopes(batch).tobytes() == changed[: 40 * len(rows)]


@pytest.mark.parametrize(
    ("offset", "fault"),
    [(21, "flag"), (23, "reserved"), (31, "expiry"), (34, "metadata"), (36, "reserved"), (39, "reserved")],
)
def test_envelope_decoder_refuses(offset: int, fault: str) -> None:
    data = bytearray(encode_envelopes(Batch.build([("a",), ("a",)])).tobytes())
    data[40 + offset] = 0x80
    with pytest.raises(DecodeError, match=f"message 1, byte .*{fault}"):
        decode_envelopes(data, 2)


def test_envelope_decoder_refuses_less_than_none() -> None:
    with pytest.raises(MessageError, match="-1 envelopes"):
        decode_envelopes(b"", -1)


@given(st.lists(st.integers(-5, 80), min_size=10, max_size=10))
def test_checker_stands_any_spans(spans: list[int]) -> None:
    data = message(b"a.b", entry(3, b"n", bytes(8)), b"x:y\n", b"body")
    batch = Batch.build([("a",)])
    batch.buffer = np.frombuffer(data, np.uint8)
    batch.spans[0] = spans
    try:
        check_batch(batch)
    except DecodeError:
        return
    start, end = spans[HEADERS : HEADERS + 2]
    assert reference.read_lines(data[start:end]) is not None
    assert 0 <= spans[BODY] <= spans[BODY + 1] <= len(data)


@given(loose_entries | loose_entries.flatmap(mutations), loose_lines, topics)
@settings(max_examples=400)
def test_lazy_message_and_checker_agree(attributes: bytes, headers: bytes, topic: str) -> None:
    """A message over spans that nobody has checked refuses exactly what the checker refuses."""
    batch = unchecked(topic.encode(), attributes, headers)
    try:
        check_batch(batch)
    except DecodeError:
        with pytest.raises(DecodeError):
            dict(batch.message(0).attributes)
    else:
        assert isinstance(batch.message(0).attributes, dict)


def unchecked(*parts: bytes) -> Batch:
    """A batch of one over topic, attribute block and header lines that may be wrong."""
    batch = Batch.build([("a",)])
    batch.buffer = np.frombuffer(b"".join(parts), np.uint8)
    bounds = np.cumsum([0, *map(len, parts)])
    batch.spans[0, :6] = np.stack([bounds[:-1], bounds[1:]], axis=1).ravel()
    batch.spans[0, 6:] = 0
    return batch


@pytest.mark.parametrize(
    ("attributes", "headers", "fault"),
    [
        (b"\1\1\0", b"", "byte 1: an attribute entry is cut short"),
        (entry(1, b"n", b"x")[:-1], b"", "byte 1: an attribute entry goes beyond its block"),
        (entry(1, b"n", b"") + entry(1, b"", b"x"), b"", "byte 6: an attribute has no name"),
        (entry(1, b"n", b"\xff"), b"", "byte 1: an attribute's name or text is not UTF-8"),
        (entry(4, b"n", b"\0" * 6 + b"\xf8\x7f"), b"", "byte 1: a float attribute is NaN"),
        (entry(3, b"n", b"\0"), b"", "byte 1: a fixed-size attribute has another size"),
        (entry(0x80, b"n", b""), b"", "byte 1: attribute tag 0x80 is unknown to this version"),
        (b"", b"a:b", "byte 1: the last header line does not end in a newline"),
        (b"", b"a:b\nab\n", "byte 5: a header line has no colon"),
        (b"", b"a:\r\n", "byte 1: a header line holds a bare carriage return or NUL"),
        (b"", b"a:\xff\n", "byte 1: a header line is not UTF-8"),
        (b"", b"a:\\t\n", "byte 1: in a header line, .* is not an escape"),
        (b"", b":x\n", "byte 1: a header's name has 1 to 255 bytes, this has 0"),
    ],
)
def test_lazy_message_names_the_fault(attributes: bytes, headers: bytes, fault: str) -> None:
    message = unchecked(b"a", attributes, headers).message(0)
    with pytest.raises(DecodeError, match=f"message 0, {fault}"):
        dict(message.attributes)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_unescaping_undoes_escaping(text: str) -> None:
    escaped = escape(text)
    assert not set(escaped) & set(":\n\r")
    assert unescape(escaped.encode()).decode() == text
    assert reference.unescape(escaped.replace("\0", "")) == text.replace("\0", "")


@pytest.mark.parametrize("data", [b"\\t", b"\\", b"a\\\\\\", b"\\C", b"\\\n"])
def test_unescaping_refuses_unknown_escapes(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an escape"):
        unescape(data)
