"""The client's side: frames out, frames in."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LimitError
from postroad.protocols.stomp import (
    Frame,
    FrameReader,
    StompError,
    StompLimits,
    Version,
    connected_frame,
    encode_frame,
    error_frame,
)
from tests.protocols.stomp.reference import read_stream, write_frame
from tests.protocols.stomp.strategies import bodies, names, splits, values


@pytest.mark.parametrize("version", Version)
@given(data=st.data())
def test_frames_are_written_as_the_reference_reads_them(version: Version, data: st.DataObject) -> None:
    headers = data.draw(st.lists(st.tuples(names(str(version)), values(str(version))), max_size=4))
    body = data.draw(bodies)
    frames, ending = read_stream(encode_frame("SEND", headers, body, version), str(version))
    assert ending == "whole"
    (frame,) = frames
    length = [("content-length", str(len(body)))] if body else []
    assert (frame.command, frame.headers, frame.body) == ("SEND", headers + length, body)


@pytest.mark.parametrize("version", Version)
@given(data=st.data())
def test_frames_are_read_as_the_reference_writes_them(version: Version, data: st.DataObject) -> None:
    text = str(version)
    sent = data.draw(
        st.lists(st.tuples(st.lists(st.tuples(names(text), values(text)), max_size=3), bodies), max_size=4)
    )
    stream, expected = b"", []
    for headers, body in sent:
        own = [("content-length", str(len(body)))] if b"\0" in body else []
        stream += write_frame("MESSAGE", own + headers, body, text) + b"\n"
        found: dict[str, str] = {}
        for name, value in own + headers:
            found.setdefault(name, value)
        expected.append(Frame("MESSAGE", found, body))
    reader = FrameReader(version)
    assert [frame for piece in data.draw(splits(stream)) for frame in reader.receive(piece)] == expected


def test_reader_takes_its_version_from_connected() -> None:
    reader = FrameReader()
    (frame,) = reader.receive(b"\n" + connected_frame(Version.V1_1, server="a\\b"))
    assert (frame.command, frame.headers["server"], reader.version) == ("CONNECTED", "a\\b", Version.V1_1)
    (frame,) = reader.receive(error_frame("a:b", Version.V1_1, details="why"))
    assert (frame.headers["message"], frame.body) == ("a:b", b"why")


def test_content_length_of_the_caller_is_kept() -> None:
    data = encode_frame("SEND", {"content-length": "1"}, b"x")
    assert data == b"SEND\ncontent-length:1\n\nx\0\n"


@pytest.mark.parametrize(
    ("command", "headers", "version"),
    [
        ("SEND", {"a": "nul\0"}, Version.V1_2),
        ("SEND", {"a": "line\n"}, Version.V1_0),
        ("SEND", {"a:b": "c"}, Version.V1_0),
        ("CONNECT", {"passcode": "line\n"}, Version.V1_2),
    ],
)
def test_what_a_version_cannot_say_is_refused(command: str, headers: dict[str, str], version: Version) -> None:
    with pytest.raises(StompError, match="cannot say"):
        encode_frame(command, headers, version=version)


@pytest.mark.parametrize(
    "stream",
    [
        b"MESSAGE\nno colon\n\n\0",
        b"MESSAGE\na:\\z\n\n\0",
        b"MESSAGE\na:\xff\n\n\0",
        b"MESSAGE\ncontent-length:x\n\n\0",
        b"MESSAGE\ncontent-length:1\n\nab\0",
    ],
)
def test_broken_frames_are_refused(stream: bytes) -> None:
    with pytest.raises(StompError):
        FrameReader(Version.V1_2).receive(stream)


@pytest.mark.parametrize(
    "stream",
    [b"MESSAGE\nx:" + b"v" * 400, b"MESSAGE\ncontent-length:11\n\n", b"MESSAGE\n\n" + b"b" * 11],
)
def test_frames_over_a_limit_are_refused(stream: bytes) -> None:
    with pytest.raises(LimitError):
        FrameReader(Version.V1_2, StompLimits(header_bytes=256, body_bytes=10)).receive(stream)


@given(st.binary(max_size=60))
def test_reader_never_raises_anything_else(stream: bytes) -> None:
    with suppress(StompError, LimitError):
        FrameReader(Version.V1_2).receive(stream)
