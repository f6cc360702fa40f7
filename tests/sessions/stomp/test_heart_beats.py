"""Heart-beats and unread replies of one connection, in virtual time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from postroad.sessions.stomp.heart_beats import HeartBeats
from postroad.sessions.stomp.unread_replies import MAX_UNREAD_REPLY_BYTES, UNREAD_REPLY_MS, UnreadReplies
from tests.server.scene import Scene

INTERVALS = st.integers(0, 60_000)


@given(INTERVALS, INTERVALS, st.integers(0, 30_000))
def test_each_side_beats_no_faster_than_the_other_wants(promised: int, wanted: int, least: int) -> None:
    beats = HeartBeats(1_000)
    beats.agree(promised, wanted, least, 1_000)
    for interval, asked in ((beats.sends_every, wanted), (beats.expects_every, promised)):
        assert interval == (max(asked, least) if asked else 0)
    due = beats.due()
    if due is None:
        assert not beats.must_beat(10**9)
        assert not beats.is_silent(10**9)
    else:
        assert beats.must_beat(due) or beats.is_silent(due)
        assert not beats.must_beat(due - 1)
        assert not beats.is_silent(due - 1)


def test_silence_of_a_client_that_is_not_read_from_proves_nothing() -> None:
    beats = HeartBeats(0)
    beats.agree(1_000, 0, 100, 0)
    assert beats.is_silent(10_000)
    beats.deaf = True
    assert not beats.is_silent(10_000)
    assert beats.due() is None


def test_broker_beats_and_closes_a_client_that_falls_silent() -> None:
    scene = Scene(heart_beat_ms=1_000)
    talker = scene.client(**{"heart-beat": "1000,1000"})
    scene.wait(900)
    assert bytes(talker.line.written) == b"\n"
    talker.conversation.received(b"\n")
    talker.line.written.clear()
    scene.wait(1_000)
    assert not talker.line.is_closed
    scene.wait(3_000)
    assert "nothing heard for" in talker.error()


def test_no_beat_is_written_to_a_socket_that_takes_nothing() -> None:
    scene = Scene(heart_beat_ms=1_000)
    talker = scene.client(**{"heart-beat": "0,1000"})
    talker.conversation.writable(False)
    scene.wait(5_000)
    assert bytes(talker.line.written) == b""
    talker.conversation.writable(True)
    scene.wait(1_000)
    assert bytes(talker.line.written).strip(b"\n") == b""
    assert talker.line.written


def test_unread_replies_stop_the_reading_once_and_again_after_they_were_read() -> None:
    unread = UnreadReplies()
    assert not unread.add(MAX_UNREAD_REPLY_BYTES, 0)
    assert unread.add(1, 5)
    assert unread.give_up_at == 5 + UNREAD_REPLY_MS
    assert not unread.add(1, 6)
    assert unread.clear()
    assert unread.bytes == 0
    assert not unread.clear()


def test_client_that_sends_and_does_not_read_is_paused_and_then_closed() -> None:
    scene = Scene()
    talker = scene.client()
    talker.conversation.writable(False)
    receipt = "r" * 1_000
    sent = 0
    while talker.line.is_reading:
        talker.send("t", receipt=receipt)
        sent += 1
        assert sent < 2_000
    scene.wait(UNREAD_REPLY_MS - 1)
    assert not talker.line.is_closed
    scene.wait(1)
    assert "sends and does not read" in talker.error()


def test_client_that_reads_its_replies_in_time_is_read_from_again() -> None:
    scene = Scene()
    talker = scene.client()
    talker.conversation.writable(False)
    while talker.line.is_reading:
        talker.send("t", receipt="r" * 1_000)
    talker.conversation.writable(True)
    assert talker.line.is_reading
    scene.wait(2 * UNREAD_REPLY_MS)
    assert not talker.line.is_closed
