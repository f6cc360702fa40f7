"""What has to be stored and does not fit: its client gets an ERROR and no RECEIPT, and nothing of it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.messages import MessageId
from postroad.protocols.stomp import encode_frame
from tests.sessions.stomp.stored_scene import BODY, SETTINGS, StoredScene, commit_in_turns, consumer, durable

if TYPE_CHECKING:
    from postroad.protocols.stomp import Frame

ROOM = 5_000
# More than there is room for, and no single message is.
COUNT = 100


@pytest.fixture(autouse=True)
def _small_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.broker.stored_queues.RESERVE_BYTES", 2_000)


def only_error(frames: list[Frame]) -> str:
    assert [frame.command for frame in frames] == ["ERROR"]
    return str(frames[0].headers["message"])


def unread(scene: StoredScene) -> int:
    """What waits in the store, without what fills it."""
    return sum(scene.log.unread(cursor) for cursor in scene.log.cursors.values()) - 1


@pytest.mark.parametrize("destination", ["/queue/work", "/topic/orders", "/topic/kept.a"])
def test_a_commit_that_does_not_fit_into_the_store_leaves_nothing_and_settles_nothing(destination: str) -> None:
    scene = StoredScene(SETTINGS)
    durable(scene, "orders")
    talker, ack = consumer(scene)
    scene.fill(ROOM)
    before = unread(scene)
    for _ in range(COUNT):
        talker.say("SEND", {"destination": destination, "transaction": "t"}, BODY)
    talker.say("ACK", ack)
    talker.say("COMMIT", {"transaction": "t", "receipt": "done"})
    scene.finish()
    assert "store.max_bytes" in only_error(talker.heard())
    assert talker.line.is_closed
    counts = scene.core.statistics()
    assert (counts.acknowledged, counts.accepted) == (0, 1)
    # The message that was to be acknowledged waits for another consumer.
    assert unread(scene) == before + 1


@pytest.mark.parametrize("destination", ["/queue/work", "/topic/orders", "/topic/kept.a"])
def test_a_read_that_does_not_fit_into_the_store_gets_no_receipt(destination: str) -> None:
    scene = StoredScene(SETTINGS)
    durable(scene, "orders")
    talker = scene.client()
    scene.fill(ROOM)
    before = unread(scene)
    frames = [encode_frame("SEND", {"destination": destination, "receipt": str(n)}, BODY) for n in range(COUNT)]
    talker.conversation.received(b"".join(frames))
    scene.finish()
    assert "store.max_bytes" in only_error(talker.heard())
    assert unread(scene) == before


def test_a_read_that_no_stored_subscription_wants_is_taken_by_a_full_store() -> None:
    scene = StoredScene(SETTINGS)
    durable(scene, "orders")
    talker = scene.client()
    scene.fill(ROOM)
    frames = [encode_frame("SEND", {"destination": "/topic/other", "receipt": str(n)}, BODY) for n in range(COUNT)]
    talker.conversation.received(b"".join(frames))
    scene.finish()
    assert [frame.command for frame in talker.heard()] == ["RECEIPT"] * COUNT


def test_a_slow_disk_refuses_a_read_that_is_more_than_may_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.store.room.MAX_WAITING_BYTES", ROOM)
    scene = StoredScene(SETTINGS)
    talker = scene.client()
    frames = [encode_frame("SEND", {"destination": "/queue/work", "receipt": str(n)}, BODY) for n in range(COUNT)]
    talker.conversation.received(b"".join(frames))
    assert "wait to be stored" in only_error(talker.heard())


def test_a_commit_whose_messages_lose_their_room_before_their_turn_gets_an_error_and_settles_nothing() -> None:
    scene, talker = commit_in_turns()
    assert talker.heard() == []
    # Others are faster.
    scene.fill(1_000)
    scene.finish()
    assert "had to be stored" in only_error(talker.heard())
    assert scene.core.statistics().acknowledged == 0


def test_a_commit_that_takes_turns_settles_when_all_of_it_is_stored() -> None:
    scene, talker = commit_in_turns()
    assert scene.core.statistics().acknowledged == 0
    scene.finish()
    assert [frame.command for frame in talker.heard()] == ["RECEIPT"]
    assert scene.core.statistics().acknowledged == 1


def test_a_publisher_that_gives_ids_sends_again_what_lost_its_room_before_its_turn() -> None:
    scene = StoredScene(SETTINGS)
    durable(scene, "orders")
    scene.core.turn_budget = 1
    talker = scene.talker()
    hello = {"accept-version": "1.2", "host": "here", "postroad-ids": "client"}
    told = talker.ask("CONNECT", hello).headers
    number = int(told["postroad-publisher"])
    ids = [str(MessageId(number, 1, scene.clock.now, n)) for n in range(20)]
    frames = b"".join(
        encode_frame("SEND", {"destination": "/topic/orders", "message-id": id_, "receipt": id_}, BODY) for id_ in ids
    )
    talker.conversation.received(frames)
    scene.fill(1_000)
    scene.finish()
    assert "had to be stored" in only_error(talker.heard())
    scene.make_room(100_000)
    again = scene.talker()
    claim = {"postroad-publisher": told["postroad-publisher"], "postroad-token": told["postroad-token"]}
    again.ask("CONNECT", {**hello, **claim})
    again.conversation.received(frames)
    scene.finish()
    assert [frame.command for frame in again.heard()] == ["RECEIPT"] * 20
    # Those that had room are there twice: what is sent again after an ERROR may be.
    assert unread(scene) >= 20


def test_receipts_that_wait_for_the_store_count_as_memory_of_their_client() -> None:
    scene = StoredScene(SETTINGS)
    durable(scene, "orders")
    talker = scene.client()
    talker.say("SEND", {"destination": "/topic/orders", "receipt": "stored"}, BODY)
    before = talker.conversation.kept_bytes
    for name in ("BEGIN", "ABORT"):
        talker.say(name, {"transaction": "t", "receipt": "r" * 50_000})
    assert talker.conversation.kept_bytes > before + 100_000
    assert talker.heard() == []
    scene.finish()
    assert [frame.command for frame in talker.heard()] == ["RECEIPT"] * 3
    assert talker.conversation.kept_bytes == 0
