"""Transactions of a client: what was sent and acknowledged in them counts all at once, or not at all."""

from __future__ import annotations

import pytest

from postroad.sessions.stomp.transactions import MAX_TRANSACTION_BYTES
from tests.server.scene import Scene, Talker


def consumer(mode: str) -> tuple[Scene, Talker, dict[str, str]]:
    """A client with one message that waits for its acknowledgement, and an open transaction.

    Returns:
        The scene, the client, and the headers of an ACK of the message in the transaction.
    """
    scene = Scene()
    talker = scene.client()
    talker.subscribe("s", "a", ack=mode)
    talker.send("a")
    (message,) = talker.heard()
    talker.say("BEGIN", {"transaction": "t"})
    return scene, talker, {"id": message.headers["ack"], "transaction": "t"}


def test_a_committed_transaction_is_delivered_whole_and_its_receipt_tells_first_id_and_count() -> None:
    scene = Scene()
    reader, writer = scene.client(), scene.client()
    reader.subscribe("s", "a")
    writer.say("BEGIN", {"transaction": "t"})
    for body in (b"1", b"2"):
        writer.send("a", body, transaction="t")
    assert reader.heard() == []
    receipt = writer.ask("COMMIT", {"transaction": "t", "receipt": "done"})
    messages = reader.heard()
    assert [message.body for message in messages] == [b"1", b"2"]
    assert receipt.headers == {
        "receipt-id": "done",
        "message-id": messages[0].headers["message-id"],
        "message-count": "2",
    }


def test_an_empty_transaction_commits_nothing() -> None:
    talker = Scene().client()
    talker.say("BEGIN", {"transaction": "t"})
    receipt = talker.ask("COMMIT", {"transaction": "t", "receipt": "done"})
    assert receipt.headers == {"receipt-id": "done", "message-count": "0"}


def test_an_aborted_transaction_leaves_nothing() -> None:
    scene, talker, ack = consumer("client")
    talker.send("a", transaction="t")
    talker.say("ACK", ack)
    talker.say("ABORT", {"transaction": "t"})
    counts = scene.core.statistics()
    assert (counts.accepted, counts.acknowledged, counts.unacknowledged_now) == (1, 0, 1)
    assert talker.heard() == []


def test_a_disconnect_aborts_what_is_open() -> None:
    scene = Scene()
    reader, writer = scene.client(), scene.client()
    reader.subscribe("s", "a")
    writer.say("BEGIN", {"transaction": "t"})
    writer.send("a", transaction="t")
    writer.say("DISCONNECT")
    assert reader.heard() == []
    assert scene.core.statistics().accepted == 0


def test_acknowledgements_in_a_transaction_count_when_it_commits() -> None:
    scene, talker, ack = consumer("client")
    talker.say("ACK", ack)
    assert scene.core.statistics().acknowledged == 0
    talker.say("COMMIT", {"transaction": "t"})
    assert scene.core.statistics().acknowledged == 1


def test_nothing_is_acknowledged_by_a_transaction_whose_messages_are_refused() -> None:
    scene, talker, ack = consumer("client")
    talker.say("ACK", ack)
    # This broker has no store, so it has no queues.
    talker.say("SEND", {"destination": "/queue/results", "transaction": "t"})
    talker.say("COMMIT", {"transaction": "t"})
    assert "no store" in talker.error()
    counts = scene.core.statistics()
    assert (counts.accepted, counts.acknowledged) == (1, 0)


def test_nothing_is_sent_by_a_transaction_that_acknowledges_a_message_twice() -> None:
    scene, talker, ack = consumer("client-individual")
    talker.send("a", transaction="t")
    for _ in range(2):
        talker.say("ACK", ack)
    talker.say("COMMIT", {"transaction": "t"})
    assert "each counts once" in talker.error()
    counts = scene.core.statistics()
    assert (counts.accepted, counts.acknowledged) == (1, 0)


@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
def test_a_transaction_that_was_not_begun_is_an_error(command: str) -> None:
    talker = Scene().client()
    talker.say(command, {"transaction": "t"})
    assert "transaction 't' is not open" in talker.error()


def test_a_transaction_begun_twice_is_an_error() -> None:
    talker = Scene().client()
    talker.say("BEGIN", {"transaction": "t"})
    talker.say("BEGIN", {"transaction": "t"})
    assert "'t' is open already" in talker.error()


def test_open_transactions_are_limited_in_number_and_bytes() -> None:
    many, large = Scene().client(), Scene().client()
    for number in range(17):
        many.say("BEGIN", {"transaction": f"t{number}"})
    assert (
        "the number of open transactions is 17; the limit is 16 (MAX_TRANSACTIONS; commit or abort some)"
        in many.error()
    )
    large.say("BEGIN", {"transaction": "t"})
    for _ in range(5):
        large.send("a", b"x" * 4_000_000, transaction="t")
    assert "what open transactions hold" in large.error()


def test_a_refusal_in_a_transaction_counts_when_it_commits() -> None:
    scene, talker, ack = consumer("client-individual")
    talker.say("NACK", ack)
    assert scene.core.statistics().refused == 0
    talker.say("COMMIT", {"transaction": "t"})
    counts = scene.core.statistics()
    assert (counts.refused, counts.acknowledged, counts.unacknowledged_now) == (1, 0, 0)


def test_a_transaction_with_too_many_messages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.sessions.stomp.transactions.MAX_TRANSACTION_MESSAGES", 2)
    scene = Scene()
    talker = scene.client()
    for name in ("t", "u"):
        talker.say("BEGIN", {"transaction": name})
        for _ in range(2):
            talker.send("a", transaction=name)
    talker.say("COMMIT", {"transaction": "u"})
    assert scene.core.statistics().accepted == 2
    talker.send("a", transaction="t")
    assert "the number of messages in a transaction is 3; the limit is 2" in talker.error()
    assert scene.core.statistics().accepted == 2


def test_acknowledgements_of_a_transaction_are_limited_and_free_their_memory_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("postroad.sessions.stomp.transactions.MAX_TRANSACTION_ACKNOWLEDGEMENTS", 2)
    _, talker, ack = consumer("client-individual")
    before = talker.conversation.kept_bytes
    talker.say("ACK", ack)
    assert talker.conversation.kept_bytes > before
    talker.say("ABORT", {"transaction": "t"})
    assert talker.conversation.kept_bytes == 0
    talker.say("BEGIN", {"transaction": "t"})
    for _ in range(3):
        talker.say("ACK", ack)
    assert "is 3; the limit is 2 (MAX_TRANSACTION_ACKNOWLEDGEMENTS" in talker.error()


def test_the_names_in_acknowledgements_of_a_transaction_count_for_what_it_may_hold() -> None:
    scene = Scene()
    talker = scene.client(version="1.1")
    talker.say("BEGIN", {"transaction": "t"})
    name = "s" * 60_000
    ack = {"message-id": "00000001-00000001-000000000001-0001", "subscription": name, "transaction": "t"}
    for _ in range(10):
        talker.say("ACK", ack)
    assert talker.conversation.kept_bytes > 10 * len(name)
    for _ in range(MAX_TRANSACTION_BYTES // len(name)):
        talker.say("ACK", ack)
    assert f"the limit is {MAX_TRANSACTION_BYTES:,} (bytes, MAX_TRANSACTION_BYTES" in talker.error()


def test_a_transaction_keeps_of_an_acknowledgement_what_its_commit_needs() -> None:
    _, talker, ack = consumer("client-individual")
    talker.ask("ACK", {**ack, "receipt": "r" * 10_000})
    assert talker.conversation.kept_bytes < 1_000


def test_the_names_of_open_transactions_count_as_memory() -> None:
    talker = Scene().client()
    talker.say("BEGIN", {"transaction": "t" * 50_000})
    assert talker.conversation.kept_bytes > 50_000
    talker.say("ABORT", {"transaction": "t" * 50_000})
    assert talker.conversation.kept_bytes == 0


@pytest.mark.parametrize("command", ["SEND", "ACK"])
def test_a_frame_of_a_transaction_that_is_not_open_is_an_error(command: str) -> None:
    scene, talker, ack = consumer("client")
    talker.say(command, {**ack, "destination": "/topic/a", "transaction": "other"})
    assert "transaction 'other' is not open; BEGIN it first" in talker.error()
    assert scene.core.statistics().accepted == 1
