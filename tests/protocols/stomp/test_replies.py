"""The server's other frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.protocols.stomp import (
    HEART_BEAT,
    Version,
    connected_frame,
    error_frame,
    message_prefix,
    receipt_frame,
)
from tests.protocols.stomp.reference import Parsed, read_stream


def read(data: bytes, version: Version | None) -> Parsed:
    frames, ending = read_stream(data, str(version or Version.V1_2))
    assert ending == "whole"
    (frame,) = frames
    return frame


def test_connected_tells_version_and_heart_beat() -> None:
    frame = read(
        connected_frame(Version.V1_2, server="postroad/1", session="s1", heart_beat=(5, 6), headers={"x": "y"}),
        Version.V1_2,
    )
    assert frame.command == "CONNECTED"
    assert frame.headers == [
        ("version", "1.2"),
        ("heart-beat", "5,6"),
        ("server", "postroad/1"),
        ("session", "s1"),
        ("x", "y"),
    ]


def test_connected_of_1_0_has_no_heart_beat() -> None:
    assert read(connected_frame(Version.V1_0), Version.V1_0).headers == [("version", "1.0")]


@pytest.mark.parametrize("version", Version)
def test_receipt_carries_more_headers(version: Version) -> None:
    frame = read(receipt_frame(b"77", version, {"message-id": "m", "messages": "3"}), version)
    assert frame.headers == [("receipt-id", "77"), ("message-id", "m"), ("messages", "3")]


@pytest.mark.parametrize("version", [None, *Version])
@given(text=st.text(max_size=20), details=st.text(max_size=20))
def test_error_can_hold_any_text(version: Version | None, text: str, details: str) -> None:
    frame = read(error_frame(text, version, details=details, receipt=b"9", headers={"version": "1.2"}), version)
    assert frame.command == "ERROR"
    assert frame.first("receipt-id") == "9"
    assert frame.first("version") == "1.2"
    assert frame.body == details.encode()
    if version in (Version.V1_1, Version.V1_2):
        assert frame.first("message") == text.replace("\0", " ")


def test_error_without_details_has_an_empty_body() -> None:
    frame = read(error_frame("no", Version.V1_2), Version.V1_2)
    assert (frame.first("message"), frame.first("receipt-id"), frame.body) == ("no", None, b"")


def test_long_error_goes_on_in_the_body() -> None:
    frame = read(error_frame("x" * 2000, Version.V1_2, details="more"), Version.V1_2)
    assert len(frame.first("message") or "") == 500
    assert frame.body == b"x" * 2000 + b"\nmore"


def test_prefix_names_the_subscription_as_the_version_writes_it() -> None:
    assert message_prefix("a:b\n", Version.V1_2) == b"MESSAGE\nsubscription:a\\cb\\n\n"
    assert message_prefix("a\rb", Version.V1_1) == b"MESSAGE\nsubscription:a\rb\n"
    assert message_prefix("a:b\n", Version.V1_0) == b"MESSAGE\nsubscription:a:b \n"
    assert message_prefix(None, Version.V1_0) == b"MESSAGE\n"


def test_heart_beat_is_a_line_end() -> None:
    assert HEART_BEAT == b"\n"
