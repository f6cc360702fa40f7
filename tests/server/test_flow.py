"""Flow control and heart-beats of conversations, in virtual time and without sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.sessions.stomp.unread_replies import MAX_UNREAD_REPLY_BYTES, UNREAD_REPLY_MS
from tests.server.scene import Scene, bodies

if TYPE_CHECKING:
    import pytest

# --- flow -------------------------------------------------------------------------------------------------------------


def test_a_full_queue_that_pushes_back_stops_the_reading_from_its_publisher_until_it_drains() -> None:
    scene = Scene(limits={"queue_messages": 2})
    reader, writer = scene.client(), scene.client()
    reader.subscribe("s", "a", overflow="push-back")
    reader.conversation.writable(False)
    for number in range(4):
        writer.send("a", b"%d" % number)
    assert not writer.line.is_reading
    assert reader.heard() == []
    reader.conversation.writable(True)
    assert bodies(reader) == [b"0", b"1", b"2", b"3"]
    assert writer.line.is_reading


def test_a_paused_publisher_may_disconnect_and_nobody_resumes_it() -> None:
    scene = Scene(limits={"queue_messages": 1})
    reader, writer = scene.client(), scene.client()
    reader.subscribe("s", "a", overflow="push-back")
    reader.conversation.writable(False)
    for _ in range(3):
        writer.send("a")
    writer.conversation.lost("gone")
    reader.conversation.writable(True)
    assert len(bodies(reader)) == 3
    assert not writer.line.is_reading
    assert scene.core.statistics().paused_publishers_now == 0


def test_a_subscriber_that_chose_it_is_told_and_closed_when_it_is_too_slow() -> None:
    scene = Scene(limits={"queue_messages": 2})
    reader, writer = scene.client(), scene.client()
    reader.subscribe("s", "a", overflow="disconnect")
    reader.conversation.writable(False)
    for _ in range(3):
        writer.send("a")
    assert reader.error() == "subscription 's' reads too slowly; its queue is full"
    assert scene.core.statistics().sessions_now == 1
    writer.send("a", receipt="r")
    assert [frame.command for frame in writer.heard()] == ["RECEIPT"]


def test_a_publisher_that_would_wait_for_its_own_acknowledgements_is_told_so() -> None:
    scene = Scene(limits={"queue_messages": 2, "unacknowledged": 1})
    talker = scene.client()
    talker.subscribe("s", "a", ack="client", overflow="push-back")
    for _ in range(4):
        talker.send("a")
    assert "publish over another connection" in talker.error()


def test_a_client_that_sends_for_receipts_and_does_not_read_them_is_not_read_from_and_then_given_up() -> None:
    scene = Scene()
    talker, patient = scene.client(), scene.client()
    for each in (talker, patient):
        each.conversation.writable(False)
        while each.line.is_reading:
            each.send("a", receipt="r" * 1_000)
        assert len(each.line.written) < MAX_UNREAD_REPLY_BYTES + 2_000
    scene.wait(UNREAD_REPLY_MS - 1)
    patient.conversation.writable(True)
    assert patient.line.is_reading
    scene.wait(1)
    assert talker.error().startswith("this client sends and does not read")
    assert not patient.line.is_closed
    scene.wait(10 * UNREAD_REPLY_MS)
    assert not patient.line.is_closed


def test_a_subscriber_whose_socket_a_large_message_fills_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    reader, writer = scene.client(), scene.client()
    reader.subscribe("s", "a")
    written: list[int] = []

    def fill(data: bytes | memoryview, shared: object = None) -> None:
        # As a transport does: it reports a full socket while it is written to.
        written.append(len(data))
        reader.conversation.writable(False)

    monkeypatch.setattr(reader.line, "write", fill)
    writer.send("a", b"x" * 2 * MAX_UNREAD_REPLY_BYTES)
    monkeypatch.undo()
    assert sum(written) > 2 * MAX_UNREAD_REPLY_BYTES
    assert reader.line.is_reading
    scene.wait(10 * UNREAD_REPLY_MS)
    assert not reader.line.is_closed


def test_a_publisher_stays_paused_for_the_queue_when_it_reads_its_receipts_again() -> None:
    scene = Scene(limits={"queue_messages": 1})
    reader, writer = scene.client(), scene.client()
    reader.subscribe("s", "a", overflow="push-back")
    reader.conversation.writable(False)
    writer.conversation.writable(False)
    for _ in range(1_100):
        writer.send("a", receipt="r" * 1_000)
    writer.conversation.writable(True)
    assert not writer.line.is_reading
    reader.conversation.writable(True)
    assert writer.line.is_reading


# --- heart-beats ------------------------------------------------------------------------------------------------------


def test_broker_beats_as_often_as_was_agreed_and_only_when_it_has_nothing_else_to_say() -> None:
    scene = Scene(heart_beat_ms=100)
    talker = scene.client(**{"heart-beat": "0,1000"})
    scene.wait(3_000)
    beats = bytes(talker.line.written)
    assert set(beats) == {ord("\n")}
    assert 3 <= len(beats) <= 4
    talker.line.written.clear()
    for _ in range(10):
        scene.wait(500)
        talker.send("a", receipt="r")
    assert b"\n\0\n\n" not in talker.line.written


def test_no_client_can_make_the_broker_beat_more_often_than_it_likes() -> None:
    scene = Scene(heart_beat_ms=1_000)
    talker = scene.client(**{"heart-beat": "1,1"})
    for _ in range(8):
        scene.wait(500)
        talker.conversation.received(b"\n")
    assert len(talker.line.written) <= 6


def test_a_client_that_goes_quiet_is_closed_after_twice_its_interval() -> None:
    scene = Scene(heart_beat_ms=100)
    talker = scene.client(**{"heart-beat": "1000,0"})
    for _ in range(5):
        scene.wait(1_500)
        talker.conversation.received(b"\n")
    assert not talker.line.is_closed
    scene.wait(1_999)
    assert not talker.line.is_closed
    scene.wait(2)
    assert talker.error() == "nothing heard for 2,001 ms; the heart-beat was 1,000 ms"


def test_a_client_without_heart_beats_may_be_quiet_for_ever() -> None:
    scene = Scene()
    talker = scene.client()
    scene.wait(100_000_000)
    assert not talker.line.is_closed
    assert talker.line.written == b""


def test_a_paused_publisher_is_not_blamed_for_its_silence() -> None:
    scene = Scene(limits={"queue_messages": 1}, heart_beat_ms=100)
    reader, writer = scene.client(), scene.client(**{"heart-beat": "100,100"})
    reader.subscribe("s", "a", overflow="push-back")
    reader.conversation.writable(False)
    for _ in range(3):
        writer.send("a")
    scene.wait(10_000)
    assert not writer.line.is_closed
    assert len(writer.line.written) > 90
    reader.conversation.writable(True)
    scene.wait(150)
    assert not writer.line.is_closed
    scene.wait(100)
    assert "nothing heard" in writer.error()


def test_beats_do_not_pile_up_behind_a_socket_that_takes_nothing() -> None:
    scene = Scene(heart_beat_ms=100)
    talker = scene.client(**{"heart-beat": "0,100"})
    talker.conversation.writable(False)
    scene.wait(60_000)
    assert talker.line.written == b""
    talker.conversation.writable(True)
    scene.wait(100)
    assert talker.line.written == b"\n"


def test_push_back_is_refused_where_subscribers_are_not_trusted_with_it() -> None:
    scene = Scene(push_back=False)
    other, reader = scene.client(), scene.client()
    other.subscribe("s", "a", overflow="disconnect")
    reader.say("SUBSCRIBE", {"id": "s", "destination": "/topic/a", "overflow": "push-back"})
    assert "overflow:push-back is not allowed here (setting push_back)" in reader.error()
    assert scene.core.statistics().subscriptions_now == 1
