"""Control frames become events, or are refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from postroad.errors import PostroadError
from postroad.messages import MessageId
from postroad.protocols.stomp import (
    Abort,
    Ack,
    Begin,
    Commit,
    Disconnect,
    Nack,
    ProtocolError,
    State,
    StompDecoder,
    Subscribe,
    Unsubscribe,
    parse_ack,
)
from postroad.protocols.stomp import columns as c
from postroad.protocols.stomp.limits import MAX_SUBSCRIPTION_ID_BYTES
from postroad.protocols.stomp.states import TRANSITIONS, next_state, refusal
from tests.protocols.stomp.outcomes import connected, outcome
from tests.protocols.stomp.reference import ack_text

ID = MessageId(1, 2, 1700000000000, 3)


def event(frame: str, version: str = "1.2") -> Any:
    (found,) = outcome(connected(version), [frame.encode() + b"\0"])
    return found


@pytest.mark.parametrize(("name", "point"), [("\u200b", "U+200B"), ("\u202e", "U+202E"), ("\t", "U+0009")])
def test_names_that_people_read_hold_nothing_that_nobody_can_see(name: str, point: str) -> None:
    for frame in (f"SUBSCRIBE\nid:a{name}\ndestination:/topic/a\n\n", f"SEND\ndestination:/topic/a{name}\n\n"):
        found = event(frame)
        assert isinstance(found, ProtocolError)
    assert point in event(f"SUBSCRIBE\nid:a{name}\ndestination:/topic/a\n\n").text
    (refused,) = outcome(StompDecoder(), [f"CONNECT\naccept-version:1.2\nlogin:ann{name}\n\n\0".encode()])
    assert isinstance(refused, ProtocolError)
    assert f"the header login has an invisible control or format character ({point}" in refused.text
    assert isinstance(event("SUBSCRIBE\nid:my list\ndestination:/topic/a\n\n"), Subscribe)


def test_subscribe_says_what_it_wants() -> None:
    found = event("SUBSCRIBE\nid:s\\c1\ndestination:/topic/a.>\nack:client\nselector:a \\c b\nreceipt:r\nmore:1\n\n")
    assert isinstance(found, Subscribe)
    assert (found.id, found.topic, found.destination) == ("s:1", "a.>", "/topic/a.>")
    assert (found.ack, found.selector, found.receipt) == ("client", "a : b", b"r")
    assert found.headers["more"] == "1"


def test_subscribe_defaults() -> None:
    found = event("SUBSCRIBE\nid:1\ndestination:/topic/a\n\n")
    assert (found.ack, found.selector, found.receipt) == ("auto", None, None)
    assert event("SUBSCRIBE\ndestination: /topic/a\n\n", "1.0").id is None


def test_unsubscribe_by_id_and_in_1_0_by_destination() -> None:
    found = event("UNSUBSCRIBE\nid:1\n\n")
    assert isinstance(found, Unsubscribe)
    assert (found.id, found.destination) == ("1", None)
    found = event("UNSUBSCRIBE\ndestination:/topic/a\n\n", "1.0")
    assert (found.id, found.destination) == (None, "/topic/a")


def test_ack_of_1_2_gives_back_message_and_subscription() -> None:
    found = event(f"ACK\nid:{ack_text(ID, 77)}\ntransaction:t\nreceipt:r\n\n")
    assert isinstance(found, Ack)
    assert (found.message_id, found.number, found.subscription) == (ID, 77, None)
    assert (found.transaction, found.receipt) == ("t", b"r")


def test_ack_of_older_versions_names_message_and_subscription() -> None:
    found = event(f"NACK\nmessage-id:{ID}\nsubscription:s\n\n", "1.1")
    assert isinstance(found, Nack)
    assert (found.message_id, found.number, found.subscription) == (ID, None, "s")
    found = event(f"ACK\nmessage-id:{ID}\n\n", "1.0")
    assert (found.message_id, found.subscription, found.transaction) == (ID, None, None)


@pytest.mark.parametrize(("command", "kind"), [("BEGIN", Begin), ("COMMIT", Commit), ("ABORT", Abort)])
def test_transaction_frames_name_their_transaction(command: str, kind: type[Begin | Commit | Abort]) -> None:
    found = event(f"{command}\ntransaction:t1\nreceipt:r\n\n")
    assert isinstance(found, kind)
    assert (found.transaction, found.receipt) == ("t1", b"r")


def test_disconnect() -> None:
    assert event("DISCONNECT\nreceipt:bye\n\n") == Disconnect(row=0, receipt=b"bye")


@pytest.mark.parametrize(
    ("frame", "version", "part"),
    [
        ("SUBSCRIBE\ndestination:/topic/a\n\n", "1.1", "header id is missing"),
        ("SUBSCRIBE\nid:1\n\n", "1.2", "header destination is missing"),
        ("SUBSCRIBE\nid:1\ndestination:/exchange/a\n\n", "1.2", "start with /topic/"),
        ("SUBSCRIBE\nid:1\ndestination:/topic/\n\n", "1.2", "start with /topic/"),
        ("SUBSCRIBE\nid:1\ndestination:/topic/a\nack:maybe\n\n", "1.2", "client-individual"),
        ("UNSUBSCRIBE\n\n", "1.0", "header destination is missing"),
        ("UNSUBSCRIBE\ndestination:/topic/a\n\n", "1.1", "header id is missing"),
        ("ACK\n\n", "1.2", "header id is missing"),
        ("ACK\nid:7\n\n", "1.2", "not the ack header"),
        (f"ACK\nid:{str(ID)[:-1]}x-00000001\n\n", "1.2", "not a message id"),
        (f"ACK\nmessage-id:{ID}\n\n", "1.1", "header subscription is missing"),
        ("ACK\nmessage-id:7\n\n", "1.0", "not a message id"),
        (f"NACK\nmessage-id:{ID}\n\n", "1.0", "came with STOMP 1.1"),
        ("BEGIN\n\n", "1.2", "header transaction is missing"),
        ("CONNECT\n\n", "1.2", "comes once"),
    ],
)
def test_refusals_say_what_is_missing(frame: str, version: str, part: str) -> None:
    found = event(frame, version)
    assert isinstance(found, ProtocolError)
    assert part in found.text


def test_control_headers_that_are_not_utf8_are_refused() -> None:
    (found,) = outcome(connected(), [b"BEGIN\ntransaction:\xff\n\n\0"])
    assert isinstance(found, ProtocolError)
    assert "UTF-8" in found.text


def test_rows_behind_a_refused_control_frame_are_not_taken() -> None:
    send = b"SEND\ndestination:/topic/a\n\n\0"
    received = connected().receive(send + b"BEGIN\n\n\0" + send + b"ABORT\ntransaction:t\n\n\0")
    assert received.batch is not None
    assert len(received.batch) == 1
    assert [type(found) for found in received.events] == [ProtocolError]
    assert received.events[0].row == 1


def test_many_control_frames_in_one_read_keep_their_order() -> None:
    pieces = [
        b"BEGIN\ntransaction:%d\n\n\0" % number + b"SEND\ndestination:/topic/t%d\n\n\0" % number
        for number in range(100)
    ]
    found = outcome(connected(), [b"".join(pieces)])
    assert [item.transaction for item in found[::2]] == [str(number) for number in range(100)]
    assert [item[0] for item in found[1::2]] == [f"t{number}" for number in range(100)]


@pytest.mark.parametrize(
    ("frame", "part"),
    [
        (b"SEND\ndestination:/topic/a\n\n\0", "first frame"),
        (b"SUBSCRIBE\nid:1\n\n\0", "first frame"),
        (b"CONNECT\naccept-version:3.0\n\n\0", "no common version"),
        (b"CONNECT\naccept-version:1.2\nheart-beat:fast\n\n\0", "heart-beat"),
        (b"CONNECT\nlogin:\xff\n\n\0", "UTF-8"),
        (b"GET / HTTP/1.1\r\n", "not a command"),
    ],
)
def test_first_frame_is_a_good_connect(frame: bytes, part: str) -> None:
    decoder = StompDecoder()
    (found,) = outcome(decoder, [frame])
    assert isinstance(found, ProtocolError)
    assert part in found.text
    assert decoder.state is State.CLOSED
    assert found.versions == ("1.0,1.1,1.2" if "common" in part else None)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("command", range(len(c.COMMANDS)))
def test_states_follow_the_three_rules(state: State, command: int) -> None:
    opens = command in (c.CONNECT, c.STOMP)
    following = next_state(state, command)
    if state is State.START:
        assert following is (State.CONNECTED if opens else None)
    elif state is State.CONNECTED:
        assert following is (None if opens else State.FINISHED if command == c.DISCONNECT else State.CONNECTED)
    else:
        assert following is None
    assert c.COMMANDS[command].decode() in refusal(state, command)


def test_every_state_but_the_last_can_be_left_and_reached() -> None:
    assert {state for state, _ in TRANSITIONS} == {State.START, State.CONNECTED}
    assert set(TRANSITIONS.values()) == {State.CONNECTED, State.FINISHED}


@pytest.mark.parametrize("number", [0, 1, 2**32 - 1])
def test_ack_text_is_read_back(number: int) -> None:
    assert parse_ack(ack_text(ID, number)) == (ID, number)


@pytest.mark.parametrize("text", ["", "x" * 44, str(ID), f"{ID}-1", f"{ID}-0000000g", f"{ID}-000000001"])
def test_ack_text_of_nobody_is_refused(text: str) -> None:
    with pytest.raises(PostroadError):
        parse_ack(text)


def test_the_id_of_a_subscription_is_no_longer_than_a_destination() -> None:
    def subscribed(name: str) -> Any:
        (found,) = outcome(connected(), [f"SUBSCRIBE\nid:{name}\ndestination:/topic/a\n\n\0".encode()])
        return found

    assert subscribed("é" * (MAX_SUBSCRIPTION_ID_BYTES // 2)).id == "é" * (MAX_SUBSCRIPTION_ID_BYTES // 2)
    refused = subscribed("é" * (MAX_SUBSCRIPTION_ID_BYTES // 2) + "x")
    assert "the header id has 1,281 bytes" in refused.text
    assert "MAX_SUBSCRIPTION_ID_BYTES" in refused.text
