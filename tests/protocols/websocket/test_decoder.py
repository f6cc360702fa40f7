"""What the frames of a client carry, however the socket cuts them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.protocols.websocket import WebSocketDecoder
from postroad.protocols.websocket.decoder import LONGEST_CONTROL
from tests.protocols.websocket.reference import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Outcome,
    frame,
    masked,
    outcome,
)

LIMIT = 1_000


def carried(control: bytes) -> bytes:
    return masked(control[6:], control[2:6])


def decoded(reads: list[bytes]) -> Outcome:
    """What the decoder makes of some reads; of the PINGs of a read only the last."""
    decoder = WebSocketDecoder(LIMIT)
    payload = b""
    pings: list[bytes] = []
    for read in reads:
        found = decoder.receive(read)
        payload += found.payload.tobytes()
        if found.ping:
            pings.append(carried(found.ping))
        if found.close:
            return Outcome(payload, pings, carried(found.close), 0, 0)
        if found.fault is not None:
            return Outcome(payload, pings, None, found.fault.code, 0)
        assert decoder.pending < LONGEST_CONTROL
    return Outcome(payload, pings, None, 0, decoder.pending)


def in_bytes(stream: bytes) -> list[bytes]:
    return [stream[place : place + 1] for place in range(len(stream))]


masks = st.binary(min_size=4, max_size=4)
frames = st.one_of(
    st.builds(
        frame,
        st.sampled_from([TEXT, BINARY, CONTINUATION, PING, PONG]),
        st.binary(max_size=140),
        final=st.booleans(),
        mask=masks,
    ),
    st.builds(frame, st.sampled_from([TEXT, BINARY]), st.binary(max_size=20), mask=masks),
    st.builds(frame, st.sampled_from([PING, CLOSE]), st.binary(max_size=10), mask=masks),
    st.builds(lambda size: frame(BINARY, bytes(size)), st.sampled_from([125, 126, 990, LIMIT, LIMIT + 1, 70_000])),
    st.binary(max_size=6),
)


@given(st.lists(frames, max_size=8).map(b"".join), st.lists(st.integers(0, 2_000), max_size=8))
def test_decoder_agrees_with_the_rules_wherever_a_stream_is_cut(stream: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reads = [stream[start:end] for start, end in itertools.pairwise(places)]
    expected, found = outcome(stream, LIMIT), decoded(reads)
    assert found._replace(pings=[], rest=0) == expected._replace(pings=[], rest=0)
    # Each read answers its last PING: the answers are some of the PINGs, in order, and the last of all is among them.
    assert found.pings[-1:] == expected.pings[-1:]
    left = iter(expected.pings)
    assert all(ping in left for ping in found.pings)


@given(st.lists(frames, max_size=4).map(b"".join))
def test_decoder_fed_byte_by_byte_answers_every_ping_and_keeps_what_the_rules_keep(stream: bytes) -> None:
    expected, found = outcome(stream, LIMIT), decoded(in_bytes(stream))
    assert found == expected._replace(rest=found.rest)


def test_a_read_full_of_frames_without_content_leaves_nothing_behind() -> None:
    decoder = WebSocketDecoder(LIMIT)
    found = decoder.receive(frame(BINARY, final=False) + frame(CONTINUATION, final=False) * 43_000)
    assert len(found.payload) == 0
    assert found.fault is None
    assert decoder.pending == 0


def test_a_payload_is_passed_on_before_its_frame_is_whole() -> None:
    decoder = WebSocketDecoder(LIMIT)
    whole = frame(TEXT, b"hello world")
    assert decoder.receive(whole[:11]).payload.tobytes() == b"hello"
    assert decoder.pending == 0
    assert decoder.receive(whole[11:]).payload.tobytes() == b" world"


def test_the_last_message_says_whether_the_client_speaks_binary() -> None:
    decoder = WebSocketDecoder(LIMIT)
    assert not decoder.is_binary
    decoder.receive(frame(BINARY, b"a", final=False) + frame(PING) + frame(CONTINUATION, b"b"))
    assert decoder.is_binary
    decoder.receive(frame(TEXT, b"a"))
    assert not decoder.is_binary


@pytest.mark.parametrize(
    ("stream", "code", "text"),
    [
        (b"\xc1\x80\0\0\0\0", 1002, "reserved bits"),
        (b"\x83\x80\0\0\0\0", 1002, "unknown opcode"),
        (b"\x8b\x80\0\0\0\0", 1002, "unknown opcode"),
        (b"\x81\x00", 1002, "not masked"),
        (b"\x89\xfe", 1002, "carries more than 125 bytes"),
        (b"\x09\x80", 1002, "is a fragment"),
        (frame(CONTINUATION), 1002, "none was begun"),
        (frame(TEXT, final=False) + frame(TEXT), 1002, "before the last fragment"),
        (frame(TEXT, bytes(LIMIT + 1)), 1009, "larger than 1,000 bytes"),
        (frame(TEXT, bytes(LIMIT), final=False) + frame(CONTINUATION, b"a"), 1009, "larger than 1,000 bytes"),
        (b"\x81\xff\x00\x00\x00\x01\x00\x00\x00\x00abcd", 1009, "larger than 1,000 bytes"),
        (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xffabcd", 1009, "larger than 1,000 bytes"),
        (b"\x81\xff\x00\x00\x00\x00\x7f\xff\xff\xffabcd", 1009, "larger than 1,000 bytes"),
    ],
)
def test_a_fault_says_what_is_wrong_and_fits_into_a_close_frame(stream: bytes, code: int, text: str) -> None:
    found = WebSocketDecoder(LIMIT).receive(frame(BINARY, b"before") + stream)
    assert found.payload.tobytes().rstrip(b"\0") == b"before"
    assert found.fault is not None
    assert found.fault.code == code
    assert text in found.fault.text
    assert len(found.fault.text.encode()) <= 123
