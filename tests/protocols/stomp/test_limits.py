"""Each limit of a frame is held, at the byte, and named in the error."""

from __future__ import annotations

import pytest

from postroad.errors import LimitError, PostroadError
from postroad.messages.limits import MAX_HEADER_BYTES, MAX_NAME_BYTES, MAX_TOPIC_BYTES, MAX_TOPIC_LEVELS
from postroad.protocols.stomp import Connect, ProtocolError, StompDecoder, StompLimits
from postroad.protocols.stomp.decoder import MAX_READ_BYTES, MAX_SHOWN_BYTES
from postroad.protocols.stomp.limits import MAX_CONNECT_HEADER_BYTES, MAX_CONNECT_HEADERS
from tests.protocols.stomp.outcomes import connected, outcome

SMALL = StompLimits(command_bytes=11, header_bytes=256, headers=8, body_bytes=10)
DESTINATION = b"destination:/topic/a\n"


def error_of(stream: bytes, version: str = "1.2", limits: StompLimits | None = None) -> ProtocolError:
    """The one error of a stream, which is the same when its bytes come one by one."""
    found = outcome(connected(version, limits), [stream])
    assert outcome(connected(version, limits), [stream[at : at + 1] for at in range(len(stream))]) == found
    assert len(found) == 1
    assert isinstance(found[0], ProtocolError)
    return found[0]


def accepted(stream: bytes, version: str = "1.2", limits: StompLimits | None = None) -> bool:
    found = outcome(connected(version, limits), [stream])
    return len(found) == 1 and isinstance(found[0], tuple)


def test_command_limit() -> None:
    assert "MAX_COMMAND_BYTES" in error_of(b"A" * 12, limits=SMALL).text
    assert outcome(connected(limits=SMALL), [b"UNSUBSCRIBE"]) == []


def test_header_bytes_limit() -> None:
    room = SMALL.header_bytes - len(DESTINATION) - len(b"x:\n\n")
    assert accepted(b"SEND\n" + DESTINATION + b"x:" + b"v" * room + b"\n\n\0", limits=SMALL)
    text = error_of(b"SEND\n" + DESTINATION + b"x:" + b"v" * (room + 1) + b"\n\n\0", limits=SMALL).text
    assert "the header lines have more than 256 bytes (setting frames.header_bytes)" in text


def test_header_count_limit() -> None:
    assert accepted(b"SEND\n" + DESTINATION + b"a:\n" * 7 + b"\n\0", limits=SMALL)
    text = error_of(b"SEND\n" + DESTINATION + b"a:\n" * 8 + b"\n\0", limits=SMALL).text
    assert f"more than {SMALL.headers} header lines (setting frames.headers)" in text


def test_body_limit_with_a_length() -> None:
    assert accepted(b"SEND\n" + DESTINATION + b"content-length:10\n\n" + b"b" * 10 + b"\0", limits=SMALL)
    # It is refused before the body comes.
    text = error_of(b"SEND\n" + DESTINATION + b"content-length:11\n\n", limits=SMALL).text
    assert "the body has more than 10 bytes (setting frames.body_bytes)" in text


def test_body_limit_without_a_length() -> None:
    assert accepted(b"SEND\n" + DESTINATION + b"\n" + b"b" * 10 + b"\0", limits=SMALL)
    assert "(setting frames.body_bytes)" in error_of(b"SEND\n" + DESTINATION + b"\n" + b"b" * 11, limits=SMALL).text


def test_limit_that_no_setting_lowers_is_named_as_the_constant() -> None:
    longest = b"SEND\n" + DESTINATION + b"content-length:16777217\n\n"
    assert "more than 16,777,216 bytes (limit MAX_BODY_BYTES)" in error_of(longest).text
    assert "(limit MAX_HEADERS)" in error_of(b"SEND\n" + DESTINATION + b"a:\n" * 1_024 + b"\n\0").text
    many = b"SEND\n" + DESTINATION + b"x:" + b"v" * MAX_HEADER_BYTES + b"\n\n\0"
    assert "(limit MAX_HEADER_BYTES)" in error_of(many).text


def test_first_frame_beyond_a_lower_setting_names_the_setting() -> None:
    for stream, name in (
        (b"CONNECT\npasscode:" + b"p" * 300, "header_bytes"),
        (b"CONNECT\n" + b"a:b\n" * 9, "headers"),
    ):
        (error,) = outcome(StompDecoder(SMALL), [stream])
        assert isinstance(error, ProtocolError)
        assert f"(setting frames.{name})" in error.text


def test_name_limit() -> None:
    name = b"n" * (MAX_NAME_BYTES - 2) + b"\\c\\n"
    assert accepted(b"SEND\n" + DESTINATION + name + b":v\n\n\0")
    assert "MAX_NAME_BYTES" in error_of(b"SEND\n" + DESTINATION + name + b"n:v\n\n\0").text


def test_topic_limits() -> None:
    assert accepted(b"SEND\ndestination:/topic/" + b"t" * MAX_TOPIC_BYTES + b"\n\n\0")
    assert "1,024" in error_of(b"SEND\ndestination:/topic/" + b"t" * (MAX_TOPIC_BYTES + 1) + b"\n\n\0").text
    levels = b".".join([b"a"] * (MAX_TOPIC_LEVELS + 1))
    assert "64 levels" in error_of(b"SEND\ndestination:/topic/" + levels + b"\n\n\0").text


def test_header_lines_that_grow_beyond_a_message_are_refused() -> None:
    value = b"\\" * (MAX_HEADER_BYTES // 2)
    found = outcome(connected("1.0"), [b"SEND\n" + DESTINATION + b"x:" + value + b"\n\n\0"])
    assert isinstance(found[0], ProtocolError)
    assert "MAX_HEADER_BYTES" in found[0].text
    assert accepted(b"SEND\n" + DESTINATION + b"x:" + value[:-3] + b"\n\n\0", "1.0")


def test_unfinished_frame_keeps_no_more_than_its_limits() -> None:
    decoder = connected(limits=SMALL)
    decoder.receive(b"SEND\n" + DESTINATION + b"content-length:10\n\n")
    for _ in range(10):
        decoder.receive(b"x")
    assert 0 < decoder.pending <= SMALL.frame_bytes
    decoder.receive(b"x")
    assert decoder.pending == 0


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"CONNECT\nhost:h\ncontent-length:16777216\n\n", "only SEND has a body"),
        (b"CONNECT\nhost:h\n\nx", "only SEND has a body"),
        (b"SEND\ndestination:/topic/a\ncontent-length:16777216\n\n", "the first frame of a connection is CONNECT"),
        (b"SEND\ndestination:/topic/a\n\n", "the first frame of a connection is CONNECT"),
        (b"CONNECT\npasscode:" + b"p" * MAX_CONNECT_HEADER_BYTES, "MAX_CONNECT_HEADER_BYTES"),
        (b"CONNECT\n" + b"a:b\n" * (MAX_CONNECT_HEADERS + 1), "MAX_CONNECT_HEADERS"),
    ],
)
def test_a_stranger_is_refused_before_it_can_make_the_broker_keep_much(stream: bytes, reason: str) -> None:
    for pieces in ([stream], [stream[at : at + 1] for at in range(len(stream))]):
        decoder = StompDecoder()
        (error,) = outcome(decoder, pieces)
        assert isinstance(error, ProtocolError)
        assert reason in error.text
        assert decoder.pending == 0


def test_a_connect_of_the_size_of_its_limit_is_taken_and_frames_behind_it_have_the_usual_limits() -> None:
    room = MAX_CONNECT_HEADER_BYTES - len(b"accept-version:1.2\nhost:h\npasscode:\n\n")
    connect = b"CONNECT\naccept-version:1.2\nhost:h\npasscode:" + b"p" * room + b"\n\n\0"
    decoder = StompDecoder()
    large = b"SEND\n" + DESTINATION + b"x:" + b"v" * (2 * MAX_CONNECT_HEADER_BYTES) + b"\n\n" + b"b" * 100_000 + b"\0"
    hello, row = outcome(decoder, [connect + large])
    assert isinstance(hello, Connect)
    assert len(row[2]) == 100_000


@pytest.mark.parametrize(
    "frame", [b"SUBSCRIBE\nid:1\ndestination:/topic/a\n", b"BEGIN\ntransaction:t\n", b"DISCONNECT\n"]
)
def test_a_body_where_none_belongs_is_refused_before_it_comes(frame: bytes) -> None:
    assert "only SEND has a body" in error_of(frame + b"content-length:1000\n\n").text
    assert "only SEND has a body" in error_of(frame + b"\nb").text


def test_error_shows_the_beginning_of_the_frame_only() -> None:
    error = error_of(b"SEND\n" + DESTINATION + b"x:" + b"v" * 2000 + b"\nbroken\n\n\0")
    assert len(error.frame) == MAX_SHOWN_BYTES
    assert error.frame.startswith(b"SEND\ndestination")


def test_error_never_shows_a_passcode() -> None:
    decoder = StompDecoder()
    found = outcome(decoder, [b"CONNECT\naccept-version:9\npasscode:secret\nlogin:ann\n\n\0"])
    assert isinstance(found[0], ProtocolError)
    assert b"secret" not in found[0].frame
    assert b"login:ann" in found[0].frame


def test_read_limit() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return MAX_READ_BYTES + 1

    with pytest.raises(LimitError, match="one read"):
        connected().receive(Huge())


@pytest.mark.parametrize("name", ["command_bytes", "header_bytes", "headers", "body_bytes"])
def test_limits_can_be_lowered_within_reason_only(name: str) -> None:
    largest = {"command_bytes": 256}.get(name, getattr(StompLimits(), name))
    with pytest.raises(LimitError, match=name):
        StompLimits(**{name: largest + 1})
    with pytest.raises(PostroadError, match=name):
        StompLimits(**{name: -1})
