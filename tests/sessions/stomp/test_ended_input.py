"""A client that sends no more and still reads: its session ends, and it gets the receipts that wait, then nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sessions.stomp.stored_scene import SETTINGS, StoredScene, commit_in_turns

if TYPE_CHECKING:
    from tests.server.scene import Talker

TO_QUEUE = {"destination": "/queue/work"}
REASON = "the client closed the connection"


@pytest.fixture(autouse=True)
def _small_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.broker.stored_queues.RESERVE_BYTES", 2_000)


def commands(talker: Talker) -> list[str]:
    return [frame.command for frame in talker.heard()]


@pytest.mark.parametrize("last", ["SEND", "DISCONNECT"])
def test_client_that_sends_no_more_gets_the_receipts_that_wait_and_nothing_else(last: str) -> None:
    scene = StoredScene(SETTINGS)
    talker, other = scene.client(), scene.client()
    talker.subscribe("s", "news")
    talker.say("SEND", {**TO_QUEUE, "receipt": "first"}, b"1")
    talker.say(last, {**TO_QUEUE, "receipt": "second"} if last == "SEND" else {"receipt": "second"})
    assert talker.heard() == []
    before = scene.core.statistics().sessions_now
    talker.conversation.ended(REASON)
    assert scene.core.statistics().sessions_now == before - 1
    assert not talker.line.is_closed
    other.send("news", b"too late")
    talker.conversation.tick(scene.clock.now)
    scene.finish()
    assert [frame.headers["receipt-id"] for frame in talker.heard()] == ["first", "second"]
    assert talker.line.is_closed


def test_client_that_sends_no_more_and_waits_for_nothing_is_closed_at_once() -> None:
    scene = StoredScene(SETTINGS)
    known, stranger = scene.client(), scene.talker()
    for talker in (known, stranger):
        talker.conversation.ended(REASON)
        scene.finish()
        assert talker.line.is_closed
        assert talker.heard() == []


def test_client_that_sends_no_more_learns_once_that_its_messages_may_not_be_stored() -> None:
    scene = StoredScene(SETTINGS)
    talker = scene.client()
    for body in (b"1", b"2"):
        talker.say("SEND", {**TO_QUEUE, "receipt": "r"}, body)
    talker.conversation.ended(REASON)
    scene.fail("the disk is broken")
    assert "may not be stored: the disk is broken" in talker.error()
    assert commands(talker) == []


def test_client_that_sends_no_more_and_waits_for_nothing_is_closed_while_the_disk_hangs() -> None:
    scene = StoredScene(SETTINGS)
    talker, other = scene.client(), scene.client()
    other.say("SEND", {**TO_QUEUE, "receipt": "r"})
    talker.conversation.ended(REASON)
    assert talker.line.is_closed
    assert not other.line.is_closed


def test_commit_that_takes_turns_settles_before_the_session_of_a_client_that_sends_no_more_ends() -> None:
    scene, talker = commit_in_turns()
    before = scene.core.statistics().sessions_now
    talker.conversation.ended(REASON)
    scene.finish()
    assert commands(talker) == ["RECEIPT"]
    assert scene.core.statistics().acknowledged == 1
    assert scene.core.statistics().sessions_now == before - 1
    assert talker.line.is_closed


def test_commit_settles_also_if_its_last_turn_was_taken_ahead_of_time() -> None:
    scene, talker = commit_in_turns()
    while scene.core.unfinished:
        scene.dispatcher.carry_out(scene.core.proceed(scene.clock.now))
    # Nothing waits for a turn, but what comes after the turns has not happened yet.
    talker.conversation.ended(REASON)
    scene.finish()
    assert commands(talker) == ["RECEIPT"]
    assert scene.core.statistics().acknowledged == 1
