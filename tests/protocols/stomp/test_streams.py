"""Any stream of bytes: what is right is read right, what is not is refused, however it is split."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroad.protocols.stomp import (
    Disconnect,
    ProtocolError,
    State,
    StompDecoder,
    TransactionSend,
    Version,
    decode_frames,
)
from tests.protocols.stomp.outcomes import connected, outcome, rows_of
from tests.protocols.stomp.reference import Parsed, allowed_frames, read_stream, unescape
from tests.protocols.stomp.strategies import RESERVED, VERSIONS, Send, junk, mutated, sends, splits, streams

every_version = pytest.mark.parametrize("version", VERSIONS)
BY_TEXT = {str(version): version for version in Version}


@every_version
@given(data=st.data())
def test_decoder_gives_back_what_was_sent(version: str, data: st.DataObject) -> None:
    sent: list[Send] = data.draw(st.lists(sends(version), max_size=6))
    pieces = data.draw(splits(b"".join(send.data + b"\n" for send in sent)))
    expected = [(send.topic, send.headers, send.body, send.receipt, send.priority, send.expiry) for send in sent]
    assert outcome(connected(version), pieces) == expected


@every_version
@given(data=st.data())
def test_transaction_gives_the_same_rows_when_it_is_committed(version: str, data: st.DataObject) -> None:
    sent: list[Send] = data.draw(st.lists(sends(version, "t"), min_size=1, max_size=4))
    events = outcome(connected(version), [b"".join(send.data for send in sent)])
    assert all(isinstance(event, TransactionSend) for event in events)
    rows = rows_of(decode_frames([event.frame for event in events], BY_TEXT[version]))
    assert rows == [(send.topic, send.headers, send.body, send.receipt, send.priority, send.expiry) for send in sent]


@every_version
@given(data=st.data())
def test_splits_make_no_difference(version: str, data: st.DataObject) -> None:
    stream = b"".join(data.draw(streams(version)))
    whole = outcome(connected(version), [stream])
    assert not [item for item in whole if isinstance(item, ProtocolError)]
    assert outcome(connected(version), data.draw(splits(stream))) == whole
    assert outcome(connected(version), [stream[at : at + 1] for at in range(len(stream))]) == whole


def compare_with_reference(version: str, stream: bytes, found: list[Any]) -> None:
    """Frames up to the first fault are those of the reference, and there is a fault exactly when it finds one."""
    parsed, ending = read_stream(stream, version)
    allowed = allowed_frames(parsed, version)
    errors = [item for item in found if isinstance(item, ProtocolError)]
    good = [item for item in found if not isinstance(item, ProtocolError)]
    assert len(errors) <= 1
    assert not errors or found[-1] is errors[0]
    assert len(good) == len(allowed)
    for frame, item in zip(allowed, good, strict=True):
        assert_same(frame, item, version)
    if len(allowed) < len(parsed) or ending == "broken":
        assert errors
    elif ending == "whole":
        assert not errors


def assert_same(frame: Parsed, item: Any, version: str) -> None:
    if isinstance(item, tuple):
        topic, headers, body, receipt, _, _ = item
        assert frame.command == "SEND"
        assert frame.first("destination") == f"/topic/{topic}"
        assert headers == [pair for pair in frame.headers if pair[0] not in RESERVED - {"priority", "expires"}]
        assert body == frame.body
    else:
        assert frame.command == ("SEND" if isinstance(item, TransactionSend) else type(item).__name__.upper())
        receipt = item.receipt
    plain = None if receipt is None else unescape(receipt, version, version != "1.0").decode()
    assert plain == frame.first("receipt")


@every_version
@given(data=st.data())
def test_mutated_streams_are_read_as_the_reference_reads_them(version: str, data: st.DataObject) -> None:
    stream = data.draw(mutated(version))
    compare_with_reference(version, stream, outcome(connected(version), [stream]))


@every_version
@given(stream=junk())
@example(stream=b"SEND\ndestination:/topic/a\ncontent-length:3\n\nabc\0ACK\n\n\0")
@example(stream=b"\r")
@example(stream=b"SEND\r\r\n")
@example(stream=b"DISCONNECT\n\n\0SEND\ndestination:/topic/a\n\n\0")
def test_junk_is_read_as_the_reference_reads_it(version: str, stream: bytes) -> None:
    compare_with_reference(version, stream, outcome(connected(version), [stream]))


@every_version
@given(data=st.data())
def test_faults_are_the_same_however_the_stream_is_split(version: str, data: st.DataObject) -> None:
    stream = data.draw(st.one_of(mutated(version), junk()))
    whole = outcome(connected(version), [stream])
    assert outcome(connected(version), data.draw(splits(stream))) == whole
    assert outcome(connected(version), [stream[at : at + 1] for at in range(len(stream))]) == whole


@every_version
@given(data=st.data())
def test_a_stream_that_is_read_in_parts_says_the_same(version: str, data: st.DataObject) -> None:
    stream = b"".join(data.draw(streams(version))) + data.draw(st.one_of(mutated(version), junk()))
    whole = outcome(connected(version), [stream])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("postroad.protocols.stomp.decoder._CONTROL_BUDGET", data.draw(st.integers(1, 300)))
        assert outcome(connected(version, in_parts=True), [stream]) == whole
        assert outcome(connected(version, in_parts=True), data.draw(splits(stream))) == whole


@pytest.mark.parametrize("bridge", [0, 10, 5_000])
def test_one_call_reads_a_bounded_part_of_many_control_frames_and_keeps_the_rest_as_it_came(bridge: int) -> None:
    frame = b"BEGIN\ntransaction:a\n\n\0"
    stream = frame * 5_000
    reader = connected(in_parts=True)
    reader.receive(stream[:bridge])
    events = 0
    received = reader.receive(stream[bridge:])
    while reader.has_more:
        assert 0 < len(received.events) <= 400
        events += len(received.events)
        assert reader.pending == len(stream) - len(frame) * (events + bridge // len(frame))
        received = reader.receive(b"")
    assert events + len(received.events) == 5_000 - bridge // len(frame)
    many = b"UNSUBSCRIBE\nid:1\n" + b"a:\n" * 1_000 + b"\n\0"
    received = connected(in_parts=True).receive(many * 80)
    assert len(received.events) <= 10


@every_version
@pytest.mark.parametrize(
    "stream",
    [
        b"SEND\ndestination:/topic/a\nfoo\0",
        b"SEND\ndestination:/topic/a\nfoo:bar\0",
        b"SEND\ndestination:/topic/a\nfoo:\\q\0",
        b"SEND\ndestination:/topic/a\nfoo:\\q",
        b"SEND\ndestination:/topic/a\n:",
        b"SEND\ndestination:/topic/a\nfoo:\rbar",
        b"UNSUBSCRIBE\nid:1\n\nx",
        b"UNSUBSCRIBE\nid:1\ncontent-length:5\n\n",
    ],
)
def test_every_prefix_of_a_stream_gets_the_same_verdict_in_one_read_and_byte_by_byte(
    version: str, stream: bytes
) -> None:
    for end in range(len(stream) + 1):
        bytewise = [stream[at : at + 1] for at in range(end)]
        assert outcome(connected(version), bytewise) == outcome(connected(version), [stream[:end]]), stream[:end]


@given(stream=junk().map(lambda end: b"CONNECT\nhost:h\n" + end), data=st.data())
@example(stream=b"CONNECT\nhost\0", data=None)
def test_first_frames_get_the_same_verdict_however_they_are_split(stream: bytes, data: st.DataObject | None) -> None:
    whole = outcome(StompDecoder(), [stream])
    assert outcome(StompDecoder(), [stream[at : at + 1] for at in range(len(stream))]) == whole
    if data is not None:
        assert outcome(StompDecoder(), data.draw(splits(stream))) == whole


@given(stream=st.one_of(st.binary(max_size=60), junk()), data=st.data())
def test_first_bytes_of_a_connection_never_raise(stream: bytes, data: st.DataObject) -> None:
    decoder = StompDecoder()
    found = outcome(decoder, data.draw(splits(stream)))
    errors = [item for item in found if isinstance(item, ProtocolError)]
    assert (decoder.state is State.CLOSED) == bool(errors)
    assert not errors or found[-1] is errors[0]


def test_nothing_may_follow_a_disconnect_but_line_ends() -> None:
    found = outcome(connected(), [b"DISCONNECT\nreceipt:7\n\n\0\n\n", b"\n"])
    assert found == [Disconnect(row=0, receipt=b"7")]
    decoder = connected()
    found = outcome(decoder, [b"DISCONNECT\n\n\0", b"SEND\ndestination:/topic/a\n\n\0"])
    assert isinstance(found[1], ProtocolError)
    assert "DISCONNECT" in found[1].text
