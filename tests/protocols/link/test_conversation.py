"""One connection from the first byte to the last, as a driver sees it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.messages import Batch, Draft
from postroad.protocols.link import (
    HEART_BEAT,
    Control,
    Data,
    Handshake,
    Heard,
    Identity,
    LinkConversation,
    LinkError,
    LinkReceiver,
    LinkSender,
    LinkStanding,
    Neighbour,
    Reason,
    encode_bye,
    encode_control,
)
from postroad.protocols.link.limits import HANDSHAKE_TIMEOUT_MS
from tests.messages.strategies import mutations
from tests.protocols.link.strategies import frames

SETS = np.array([[6]], np.uint64)


class End:
    """A broker with one neighbour and a connection."""

    def __init__(self, number: int, neighbour: Neighbour | None = None, **more: Any) -> None:
        self.neighbour = neighbour or Neighbour(LinkSender(number * 1_000), LinkReceiver())
        self.link = LinkConversation(
            Identity(number, number * 1_000, "net", heart_beat=100),
            lambda _: self.neighbour,
            dialling=number == 1,
            nonce=bytes(32),
            now=0,
            **more,
        )

    def send(self, *bodies: bytes) -> bytes:
        batch = Batch.build([Draft("a.b", body=body) for body in bodies])
        rows = np.arange(len(batch))
        return b"".join(self.link.send(batch, rows, SETS, rows * 0, 1, 5).frames)

    def hear(self, data: bytes, now: int = 0) -> tuple[Heard, bytes]:
        heard = self.link.receive(data, now)
        return heard, b"".join(heard.output)


def joined() -> tuple[End, End]:
    one, two = End(1), End(2)
    data = one.link.begin()
    for end in (two, one, two, one):
        _, data = end.hear(data)
    assert data == b""
    assert one.link.open
    assert two.link.open
    return one, two


def test_messages_and_control_frames_arrive_in_order() -> None:
    one, two = joined()
    heard, _ = two.hear(one.send(b"x") + one.link.control(3, b"news", 5) + one.send(b"y", b"z"))
    kinds = [frame if isinstance(frame, Control) else [each.body for each in frame.batch] for frame in heard.frames]
    assert kinds == [[b"x"], Control(3, b"news"), [b"y", b"z"]]


def test_large_frame_may_follow_a_welcome_in_one_read() -> None:
    """The listener is open first: what it held comes right behind its WELCOME."""
    one, two = End(1), End(2)
    body = bytes(5_000)
    two.neighbour.sender.send(Batch.build([Draft("a", body=body)]), np.arange(1), SETS, np.zeros(1, np.int64), 1)
    _, data = two.hear(one.link.begin())
    _, data = one.hear(data)
    heard, data = two.hear(data)
    assert heard.opened
    assert len(data) > 5_000
    heard, _ = one.hear(data)
    assert heard.opened
    (frame,) = heard.frames
    assert isinstance(frame, Data)
    assert frame.batch.message(0).body == body


def test_frames_before_a_fault_count() -> None:
    one, two = joined()
    heard, answer = two.hear(one.send(b"x") + b"garbage!")
    assert len(heard.frames) == 1
    assert heard.error is not None
    assert heard.error.reason == Reason.FAULT
    assert two.neighbour.receiver.received == 1
    told, nothing = one.hear(answer)
    assert told.error is not None
    assert (told.error.reason, told.error.ours, nothing) == (Reason.FAULT, False, b"")
    assert not one.link.open
    assert not two.link.open


def test_refusal_reaches_the_peer() -> None:
    one, two = End(1), End(2, expected={7})
    heard, answer = two.hear(one.link.begin())
    assert heard.error is not None
    told, _ = one.hear(answer)
    assert told.error is not None
    assert told.error.reason == heard.error.reason == Reason.UNEXPECTED_NUMBER


def test_gap_in_the_numbers_is_a_fault() -> None:
    one, two = joined()
    one.send(b"lost")
    heard, _ = two.hear(one.send(b"late"))
    assert heard.frames == []
    assert heard.error is not None
    assert "frames are missing" in str(heard.error)


def test_handshake_frames_are_not_for_later() -> None:
    one, two = joined()
    heard, _ = two.hear(one.link.begin())
    assert heard.error is not None
    assert "after the handshake" in str(heard.error)


def test_newer_connection_takes_the_place_of_an_older() -> None:
    one, two = joined()
    old = two.link
    late = one.send(b"x")
    again_one, again_two = End(1, one.neighbour), End(2, two.neighbour)
    data = again_one.link.begin()
    heards = []
    for end in (again_two, again_one, again_two, again_one):
        heard, data = end.hear(data)
        heards.append(heard)
    assert [heard.replaced for heard in heards if heard.opened] == [old, one.link]
    heard = old.receive(late, 9)
    assert heard.frames == []
    assert heard.error is not None
    assert heard.error.reason == Reason.REPLACED
    ticked = one.link.tick(9)
    assert ticked.error is not None
    one.link.closed()
    assert again_one.link.open
    heard, _ = again_two.hear(data)
    assert [frame.number for frame in heard.frames if isinstance(frame, Data)] == [1]


def test_closing_on_purpose_is_told() -> None:
    one, two = joined()
    told, _ = two.hear(one.link.bye(Reason.CLOSING, "going home"))
    assert told.error is not None
    assert (told.error.reason, told.error.ours) == (Reason.CLOSING, False)
    assert "going home" in str(told.error)
    with pytest.raises(LinkError, match="closed"):
        one.link.control(1, b"", 0)


def test_connection_without_a_handshake_is_given_up() -> None:
    end = End(2)
    assert end.link.due == HANDSHAKE_TIMEOUT_MS
    assert end.link.tick(HANDSHAKE_TIMEOUT_MS - 1).error is None
    error = end.link.tick(HANDSHAKE_TIMEOUT_MS).error
    assert error is not None
    assert error.reason == Reason.SILENT
    with pytest.raises(LinkError, match="not open yet"):
        end.send(b"x")


def test_idle_connection_beats_and_a_silent_peer_is_left() -> None:
    one, two = joined()
    beat = one.link.tick(100)
    assert beat.output == [HEART_BEAT]
    two.hear(HEART_BEAT, 150)
    assert two.link.tick(249).error is None
    errors = [two.link.tick(now).error for now in (250, 350, 450)]
    assert errors[:2] == [None, None]
    assert errors[2] is not None
    assert errors[2].reason == Reason.SILENT


@settings(max_examples=200)
@given(st.data())
def test_whatever_comes_ends_in_frames_or_an_error(data: st.DataObject) -> None:
    """Frames or an error, never an exception; and what is accepted was sent in order."""
    one, two = joined()
    stream = data.draw(frames) if data.draw(st.booleans()) else one.send(b"x") + one.send(b"y")
    stream = data.draw(mutations(stream)) + data.draw(st.sampled_from([b"", HEART_BEAT]))
    heard, _ = two.hear(stream)
    numbers = [frame.number for frame in heard.frames if isinstance(frame, Data)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert two.neighbour.receiver.received == len(numbers)
    assert two.link.open == (heard.error is None)


def test_progress_is_told_and_frees() -> None:
    one, two = joined()
    two.hear(one.send(b"x"), 10)
    assert one.neighbour.sender.statistics().held_frames == 1
    told = two.link.tick(30)
    one.hear(b"".join(told.output))
    assert one.neighbour.sender.statistics().held_frames == 0


def test_bye_before_the_handshake_is_understood() -> None:
    end = End(1)
    heard, answer = end.hear(encode_bye(Reason.NETWORK, "elsewhere"))
    assert heard.error is not None
    assert heard.error.reason == Reason.NETWORK
    assert answer == b""


def test_control_frame_before_the_proof_is_refused() -> None:
    two = End(2)
    hello = Handshake(Identity(1, 1, "net"), lambda _: LinkStanding(), dialling=True, nonce=bytes(32)).begin()
    two.hear(hello)
    heard, _ = two.hear(encode_control(1, b""))
    assert heard.error is not None
    assert heard.frames == []
