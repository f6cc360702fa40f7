"""Frames to bytes and back, whole and in pieces, right and wrong."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroad.errors import LimitError, PostroadError
from postroad.messages import Batch, Draft
from postroad.protocols.link import (
    HEART_BEAT,
    Bye,
    Control,
    Data,
    HeartBeat,
    LinkDecoder,
    LinkError,
    decode_data,
    encode_bye,
    encode_control,
    encode_data,
    encode_hello,
    encode_progress,
    encode_welcome,
)
from postroad.protocols.link.limits import MAX_HANDSHAKE_FRAME_BYTES, MAX_LINK_FRAME_BYTES
from tests.messages.strategies import mutations
from tests.protocols.link.reference import contents, data_frame, frame
from tests.protocols.link.strategies import frames, hellos, parcels, progress, texts, welcomes

if TYPE_CHECKING:
    from postroad.protocols.link.decoder import Frame


def open_decoder() -> LinkDecoder:
    decoder = LinkDecoder()
    decoder.open()
    return decoder


def shown(found: Frame) -> object:
    """A frame in a form that can be compared: arrays do not compare as a whole."""
    return (found.number, found.epoch, contents(found)) if isinstance(found, Data) else found


def one(data: bytes) -> Frame:
    (found,) = open_decoder().receive(data)
    return found


@given(parcels())
def test_data_frame_is_what_the_document_says(parcel: Any) -> None:
    batch, rows, sets, lines, epoch, number = parcel
    if len(sets) > len(rows):  # sets nobody uses do not travel
        sets, lines = sets[lines], np.arange(len(rows))
    messages = [batch.message(row) for row in rows]
    expected = data_frame(messages, sets.tolist(), lines.tolist(), epoch, number)
    assert bytes(encode_data(*parcel)) == expected
    found = decode_data(expected)
    assert (found.number, found.epoch) == (number, epoch)
    assert found.sets.tolist() == sets.tolist()
    assert found.lines.tolist() == lines.tolist()
    assert contents(found) == contents(Data(number, epoch, batch.take(rows), sets, lines))
    assert found.batch.envelopes.tolist() == batch.envelopes[rows].tolist()


@given(parcels())
def test_frame_of_a_decoded_frame_is_the_same(parcel: Any) -> None:
    """Transit: the messages of a received batch lie in one piece, and are copied in one."""
    data = bytes(encode_data(*parcel))
    found = decode_data(data)
    rows = np.arange(len(found.batch))
    assert bytes(encode_data(found.batch, rows, found.sets, found.lines, found.epoch, found.number)) == data


@given(parcels(), st.permutations(range(5)))
def test_parts_of_a_message_may_lie_anywhere(parcel: Any, order: list[int]) -> None:
    """As after a STOMP read: topic, attributes, headers, body and metadata in any order, with other bytes between."""
    batch, *rest = parcel
    buffer, spans = bytearray(b"#"), batch.spans.copy()
    for row in range(len(batch)):
        for part in order:
            start, end = batch.spans[row, 2 * part : 2 * part + 2].tolist()
            spans[row, 2 * part : 2 * part + 2] = len(buffer), len(buffer) + end - start
            buffer += batch.buffer[start:end].tobytes() + b"#"
    scattered = Batch(np.frombuffer(bytes(buffer), np.uint8), spans, batch.ids, batch.envelopes)
    assert bytes(encode_data(scattered, *rest)) == bytes(encode_data(*parcel))


@given(hellos)
def test_hello_comes_back(hello: Any) -> None:
    assert one(encode_hello(hello)) == hello


@given(welcomes, progress)
def test_welcome_and_progress_come_back(welcome: Any, told: Any) -> None:
    assert one(encode_welcome(welcome)) == welcome
    assert one(encode_progress(told)) == told


@given(st.integers(0, 255), st.binary(max_size=99), texts)
def test_control_and_bye_come_back(kind: int, payload: bytes, text: str) -> None:
    assert one(encode_control(kind, payload)) == Control(kind, payload)
    assert one(encode_bye(kind, text)) == Bye(kind, text)
    assert one(HEART_BEAT) == HeartBeat()


def test_long_text_of_a_bye_is_cut_between_characters() -> None:
    found = one(encode_bye(1, "é" * 300 + "x"))
    assert isinstance(found, Bye)
    assert found.text == "é" * 256
    assert one(encode_bye(1, "x" + "é" * 300)) == Bye(1, "x" + "é" * 255)


@given(st.lists(frames, max_size=5), st.lists(st.integers(0, 2_000), max_size=12))
def test_decoder_finds_the_same_frames_wherever_reads_are_cut(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(sent)
    expected = [shown(one(data)) for data in sent]
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    decoder = open_decoder()
    found = []
    for start, end in itertools.pairwise(places):
        found += decoder.receive(stream[start:end])
        assert decoder.kept <= max(map(len, sent))
    assert [shown(each) for each in found] == expected
    assert decoder.kept == 0


@settings(max_examples=20)
@given(st.lists(frames, min_size=1, max_size=3))
def test_decoder_reads_a_byte_at_a_time(sent: list[bytes]) -> None:
    decoder = open_decoder()
    found = [shown(each) for byte in b"".join(sent) for each in decoder.receive(bytes([byte]))]
    assert found == [shown(one(data)) for data in sent]


def test_decoder_copies_what_its_owner_may_write_to() -> None:
    batch = Batch.build([Draft("a.b", body=b"body")])
    read = bytearray(encode_data(batch, np.array([0]), np.ones((1, 1), np.uint64), np.array([0]), 1, 1))
    (found,) = open_decoder().receive(read)
    read[:] = bytes(len(read))
    assert isinstance(found, Data)
    assert found.batch.message(0).body == b"body"


def test_large_frame_over_many_reads_comes_whole() -> None:
    payload = np.random.default_rng(7).bytes(3_000_000)
    data = encode_control(9, payload)
    decoder = open_decoder()
    found: list[Frame] = []
    for at in range(0, len(data), 1_000):
        found += decoder.receive(data[at : at + 1_000])
    assert found == [Control(9, payload)]


def outcome(data: bytes, cut: int) -> object:
    """Frames or the text of a `LinkError`; anything else is a failure of the test."""
    decoder = open_decoder()
    try:
        return [shown(each) for each in (*decoder.receive(data[:cut]), *decoder.receive(data[cut:]))]
    except LinkError as error:
        return str(error)


@settings(max_examples=400)
@given(st.data())
def test_decoder_takes_or_refuses_mutated_frames(data: st.DataObject) -> None:
    stream = data.draw(frames.flatmap(mutations)) + data.draw(st.sampled_from([b"", HEART_BEAT]))
    cut = data.draw(st.integers(0, len(stream)))
    whole = outcome(stream, len(stream))
    assert outcome(stream, cut) == whole


@given(st.integers(1, 9), st.binary(max_size=200), st.integers(0, 200))
@example(3, bytes(32), 40)
def test_decoder_takes_or_refuses_random_bodies(kind: int, body: bytes, cut: int) -> None:
    outcome(frame(kind, body), cut)


@given(st.binary(max_size=60))
def test_decoder_takes_or_refuses_random_bytes(data: bytes) -> None:
    outcome(data, len(data) // 2)


def data_head(number: int = 1, epoch: int = 1, rows: int = 1, sets: int = 1, words: int = 1, zero: int = 0) -> bytes:
    return struct.pack("<QQIIII", number, epoch, rows, sets, words, zero)


@pytest.mark.parametrize(
    ("data", "because"),
    [
        (frame(0, b""), "no frame begins with"),
        (frame(8, b""), "no frame begins with"),
        (struct.pack("<IBBBB", 8, 6, 0, 0, 1), "no frame begins with"),
        (struct.pack("<IBBBB", 7, 6, 0, 0, 0), "header alone"),
        (struct.pack("<IBBBB", MAX_LINK_FRAME_BYTES + 1, 3, 0, 0, 0), "the limit is"),
        (frame(1, b"GET / HTTP/1.1\r\n" * 9), "not a link of Postroad"),
        (frame(2, bytes(71)), "72 bytes are expected"),
        (frame(3, bytes(31)), "too few for its head"),
        (frame(3, data_head(zero=1) + bytes(99)), "reserved"),
        (frame(3, data_head(number=0) + bytes(99)), "out of range"),
        (frame(3, data_head(rows=0) + bytes(99)), "0 rows"),
        (frame(3, data_head(rows=65_536) + bytes(99)), "65,536 rows"),
        (frame(3, data_head(sets=0) + bytes(99)), "0 sets"),
        (frame(3, data_head(sets=2) + bytes(99)), "2 sets"),
        (frame(3, data_head(words=0) + bytes(99)), "of 0 words"),
        (frame(3, data_head(words=1_025) + bytes(99)), "of 1,025 words"),
        (frame(3, data_head(words=2) + bytes(61)), "too few for"),
        (frame(3, data_head() + bytes(8) + b"\1\0" + bytes(44)), "outside the 1 sets"),
        (frame(3, data_head() + bytes(8) + bytes(45) + b"\1"), "do not add up"),
        (frame(3, data_head() + bytes(8) + bytes(46)), "16 bytes of its prefix"),
        (frame(4, bytes(3)), "4 bytes are expected"),
        (frame(4, b"\0\0\0\1"), "reserved"),
        (frame(5, struct.pack("<QQ", 1, 2)), "settled 2 but received only 1"),
        (frame(6, b"x"), "0 bytes are expected"),
        (frame(7, b"\1\0\0\0\xff"), "not UTF-8"),
        (frame(7, b"\1\0\1\0"), "reserved"),
        (frame(7, bytes(517)), "up to 512 bytes"),
    ],
)
def test_decoder_says_why_it_refuses(data: bytes, because: str) -> None:
    decoder = open_decoder()
    with pytest.raises(LinkError, match=because):
        decoder.receive(HEART_BEAT + data)
    with pytest.raises(LinkError, match="open a new connection"):
        decoder.receive(HEART_BEAT)
    assert decoder.kept == 0


def test_decoder_keeps_little_before_the_handshake() -> None:
    with pytest.raises(LinkError, match="before the handshake"):
        LinkDecoder().receive(frame(4, bytes(MAX_HANDSHAKE_FRAME_BYTES))[:8])
    assert LinkDecoder().receive(frame(4, bytes(4))) == [Control(0, b"")]


ONE = Batch.build([Draft("a.b")])
SET = np.ones((1, 1), np.uint64)
NONE = np.zeros(1, np.int64)


@pytest.mark.parametrize(
    ("rows", "sets", "lines", "because"),
    [
        ([1], SET, [0], "row 1 of a batch of 1"),
        ([-1], SET, [0], "row -1"),
        ([0], SET, [1], "outside the 1 sets"),
        ([0], SET, [-1], "outside"),
        ([0], SET, [0, 0], "2 lines"),
        ([0], np.ones((1, 0), np.uint64), [0], "shape"),
        ([0], np.ones((1, 1_025), np.uint64), [0], "shape"),
        ([], SET, [], "1 at least"),
        ([0] * 65_536, SET, [0] * 65_536, "65,536"),
    ],
)
def test_encoder_refuses_destinations_that_do_not_fit(rows: Any, sets: Any, lines: Any, because: str) -> None:
    with pytest.raises(PostroadError, match=because):
        encode_data(ONE, np.array(rows, np.int64), sets, np.array(lines, np.int64), 1, 1)


def test_encoder_refuses_rows_that_are_no_messages() -> None:
    batch = Batch.build([Draft("a.b"), Draft("a.c")])
    batch.envelopes[1, 0] = -1
    with pytest.raises(PostroadError, match="source"):
        encode_data(batch, np.array([0, 1]), SET, np.zeros(2, np.int64), 1, 1)
    batch = Batch.build([Draft("a.b")])
    batch.spans[0, 7] = 99
    with pytest.raises(PostroadError, match="does not lie in a buffer"):
        encode_data(batch, NONE, SET, NONE, 1, 1)


def test_encoder_refuses_frames_over_the_limit() -> None:
    batch = Batch.build([Draft("a.b", body=bytes(16 * 1024 * 1024))])
    assert len(encode_data(batch, NONE, SET, NONE, 1, 1)) < MAX_LINK_FRAME_BYTES
    with pytest.raises(LimitError, match="DATA frame"):
        encode_data(batch, np.zeros(2, np.int64), SET, np.zeros(2, np.int64), 1, 1)
    with pytest.raises(LimitError, match="CONTROL frame"):
        encode_control(1, bytes(MAX_LINK_FRAME_BYTES))
