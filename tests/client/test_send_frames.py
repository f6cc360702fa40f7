"""What a SEND says, read back by the broker's own decoder; and how addresses are written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.client import ClientError, connect
from postroad.client.address import parse_address
from postroad.client.send_frames import OWN_HEADERS, header_text, send_frame
from postroad.errors import PostroadError
from postroad.messages import Draft, number_of
from postroad.protocols.stomp import Version, decode_frames

# The frame goes in as it came over a socket, without the line end behind it.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NAMES = TEXT.filter(lambda name: 0 < len(name.encode()) <= 255 and name not in OWN_HEADERS | {"priority", "expires"})
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(NAMES, TEXT | NUMBERS | st.booleans(), max_size=5), st.binary(max_size=50))
def test_broker_reads_the_attributes_and_body_that_were_sent(attributes: dict[str, Any], body: bytes) -> None:
    frame = send_frame(Draft("a.b", attributes, body=body, priority=7), transaction="t")
    found = decode_frames([frame.removesuffix(b"\n")], Version.V1_2)
    assert found.batch is not None
    message = found.batch.message(0)
    assert (message.topic, message.body, message.priority) == ("a.b", body, 7)
    texts = {name: header_text(name, value) for name, value in attributes.items()}
    assert message.attributes == {**texts, "priority": "7"}


@given(NUMBERS)
def test_numbers_are_written_as_a_selector_reads_them(number: float) -> None:
    back = number_of(header_text("n", number))
    assert back == number
    assert type(back) is type(number)


@pytest.mark.parametrize(
    ("draft", "told"),
    [
        (Draft("a", {"x": b"1"}), "bytes are none"),
        (Draft("a", {"x": float("inf")}), "infinity"),
        (Draft("a", {"x": float("nan")}), "NaN"),
        (Draft("a", {"x": 2**63}), "64 bits"),
        (Draft("a", {"x": "1"}, {"x": "2"}), "given twice"),
        (Draft("a", {"priority": "1"}, priority=5), "given twice"),
        (Draft("a", {"destination": "1"}), "header of the protocol"),
        (Draft("a", {"": "1"}), "1 to 255 bytes"),
        (Draft("a", {"x": "\0"}), "NUL"),
        (Draft("a", {"x": "y" * 70_000}), "limit is 65,536"),
        (Draft("a", body="text"), "encode it first"),  # type: ignore[arg-type]
        (Draft("a", body=bytes(16 * 1024 * 1024 + 1)), "limit is 16,777,216"),
        (Draft("a", metadata={"x": 1}), "no way to send a message's metadata"),
        (Draft("a.*"), "wildcards"),
        (Draft("/topic/a"), "write a alone; the client adds /topic/ itself"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_broker_would_refuse_is_refused_here(draft: Draft, told: str) -> None:
    with pytest.raises(PostroadError, match=told):
        send_frame(draft)


@pytest.mark.parametrize(
    ("text", "host", "port", "tls", "shown"),
    [
        ("stomp://broker", "broker", 61613, False, "stomp://broker:61613"),
        ("stomps://broker/", "broker", 61614, True, "stomps://broker:61614"),
        ("STOMP://127.0.0.1:0", "127.0.0.1", 0, False, "stomp://127.0.0.1:0"),
        ("stomp://[::1]:5", "::1", 5, False, "stomp://[::1]:5"),
    ],
)
def test_addresses(text: str, host: str, port: int, tls: bool, shown: str) -> None:
    address = parse_address(text)
    assert (address.host, address.port, address.tls, str(address)) == (host, port, tls, shown)


@pytest.mark.parametrize(
    "text", ["", "broker", "broker:61613", "http://broker", "stomp://", "stomp://b:x", "stomp://b:99999", "stomp://b/q"]
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ClientError, match=r"stomp://127\.0\.0\.1:61613"):
        parse_address(text)


def test_address_with_a_passcode_is_refused_without_showing_it() -> None:
    with pytest.raises(ClientError, match="no login and passcode") as caught:
        parse_address("stomp://ann:secret@broker")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("settings", [{"timeout": 0}, {"heart_beat": (-1, 0)}])
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match="heart_beat is 0 or more"):
        connect("stomp://b", **settings)
