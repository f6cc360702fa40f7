"""What headers of SUBSCRIBE and UNSUBSCRIBE ask for, in the spellings of other brokers."""

from __future__ import annotations

import pytest

from postroad.broker import AckMode, BrokerError, ConsumerTerms
from postroad.sessions.stomp.durable_headers import deletes_durable, durable_name
from postroad.sessions.stomp.queue_headers import consumer_terms
from postroad.sessions.stomp.renderers import MESSAGE_BYTES, WEBSOCKET


@pytest.mark.parametrize(
    "header", ["activemq.subscriptionName", "durable-subscription-name", "durable-subscriber-name"]
)
def test_a_durable_subscription_is_named_by_a_header_and_its_client(header: str) -> None:
    assert durable_name({header: "orders"}, "ann", "1") == ("ann", "orders")
    assert durable_name({header: "orders", "client-id": "bob"}, "", None) == ("bob", "orders")
    with pytest.raises(BrokerError, match="needs a client-id in CONNECT"):
        durable_name({header: "orders"}, "", "1")
    assert deletes_durable({header: "orders"})


@pytest.mark.parametrize("header", ["durable", "persistent"])
def test_a_durable_subscription_of_rabbitmq_is_named_by_its_id(header: str) -> None:
    asked = {header: "true"}
    assert durable_name(asked, "", "1") == ("-", "1")
    assert durable_name({**asked, "auto-delete": "false"}, "ann", "1") == ("ann", "1")
    with pytest.raises(BrokerError, match="contradict each other"):
        durable_name({**asked, "auto-delete": "true"}, "ann", "1")
    with pytest.raises(BrokerError, match="named by its id"):
        durable_name(asked, "ann", None)
    assert deletes_durable(asked)


def test_other_frames_ask_for_no_durable_subscription() -> None:
    for headers in ({}, {"durable": "false"}, {"persistent": "yes"}, {"auto-delete": "true"}):
        assert durable_name(headers, "ann", "1") is None
        assert not deletes_durable(headers)


def test_a_consumer_of_a_queue_asks_for_its_terms() -> None:
    assert consumer_terms({}, None, "client") == ConsumerTerms("", AckMode.CLIENT, None, False)
    asked = {"prefetch-count": "30", "activemq.prefetchSize": "40", "exclusive": "true"}
    assert consumer_terms(asked, "a = 1", "auto") == ConsumerTerms("a = 1", AckMode.AUTO, 30, True)
    asked = {"activemq.prefetchSize": "0", "activemq.exclusive": "true", "exclusive": "false"}
    assert consumer_terms(asked, "", "client-individual") == ConsumerTerms("", AckMode.INDIVIDUAL, 0, True)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "many", "1_000", "٣", "1" * 10])
def test_a_prefetch_that_is_not_a_number_is_refused(text: str) -> None:
    with pytest.raises(BrokerError, match=r"the header prefetch-count is .* such as 100"):
        consumer_terms({"prefetch-count": text}, None, "client")


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"a\n\n\0\n"],
        [b"x" * 100 + b"\0\n"] * 2_000,
        # One frame is larger than a message; it goes as it is.
        [b"a\0\n", b"y" * (3 * MESSAGE_BYTES) + b"\0\n", b"b\0\n"],
        [b"z" * (MESSAGE_BYTES - 2) + b"\0\n"] * 3,
        [b"z" * (MESSAGE_BYTES - 1) + b"\0\n"] * 3,
    ],
)
def test_websocket_messages_are_cut_between_frames(frames: list[bytes]) -> None:
    data = b"".join(frames)
    pieces = list(WEBSOCKET.pieces(data))
    assert b"".join(pieces) == data
    ends = {sum(map(len, frames[:count])) for count in range(len(frames) + 1)}
    at = 0
    for piece in pieces:
        assert len(piece) <= max(MESSAGE_BYTES, *map(len, frames))
        at += len(piece)
        assert at in ends


def test_what_has_no_end_of_a_frame_goes_in_one_websocket_message() -> None:
    data = b"w" * (2 * MESSAGE_BYTES)
    assert list(WEBSOCKET.pieces(data)) == [data]
