"""One turn gives all sessions together only so many bytes; the rest waits once for all of them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from postroad.broker import Broker, Limits, OverflowPolicy, PublisherNumbers, Relay, make_strategy
from postroad.messages import Batch, MessageId
from postroad.routing.destinations import Destinations
from postroad.tracking import ExactRecorder

if TYPE_CHECKING:
    from postroad.broker import Outbox, Recorder, Session, Subscription

SIZE = 1_000
# For the rows of a turn: a few messages.
TURN = 3_500


@pytest.fixture(autouse=True)
def _small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("deliveries", "residents"):
        monkeypatch.setattr(f"postroad.broker.{module}.MAX_TURN_BYTES", TURN)
    for name in ("DELIVERED_BYTES", "WAITING_BYTES"):
        monkeypatch.setattr(f"postroad.broker.residents.{name}", 0)


def broker(recorder: Recorder | None = None) -> Broker:
    blocks = itertools.count(1, 1_000)
    return Broker(7, PublisherNumbers(lambda: next(blocks)), Limits(), recorder=recorder, in_turns=True)


def subscribed(core: Broker, count: int, policy: OverflowPolicy = OverflowPolicy.DROP_OLDEST) -> list[Subscription]:
    return [core.subscribe(core.attached(f"s{n}"), f"s{n}", "t", policy=policy) for n in range(count)]


def numbered(*numbers: int, size: int = SIZE) -> Batch:
    return Batch.build(("t", {}, {}, str(number).encode() + b" " * size) for number in numbers)


class Reader:
    """Keeps what each subscription gets, and who is paused."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[int]] = {}
        self.paused: set[int] = set()

    def read(self, outbox: Outbox) -> int:
        count = 0
        for subscription, batch, rows in outbox.deliveries:
            found = [int(batch.message(row).body) for row in rows.tolist()]
            self.bodies.setdefault(subscription.key, []).extend(found)
            count += len(found)
        self.paused |= set(outbox.pauses)
        self.paused -= set(outbox.resumes)
        return count

    def read_all(self, core: Broker, now: int = 0) -> list[int]:
        handed = []
        while core.unfinished:
            handed.append(self.read(core.proceed(now)))
        return handed


def test_a_large_message_for_many_sessions_is_written_to_some_of_them_a_turn() -> None:
    core, reader = broker(), Reader()
    subscribed(core, 40)
    publisher = core.attached("p")
    handed = [reader.read(core.receive(numbered(7), publisher, 0))]
    assert handed == [3]
    assert reader.paused == {publisher.number}
    assert core.statistics().unfinished_messages_now == 1
    handed += reader.read_all(core)
    assert max(handed) == 3
    assert reader.bodies == {f"s{number}": [7] for number in range(40)}
    assert not reader.paused
    statistics = core.statistics()
    assert (statistics.delivered, statistics.unfinished_messages_now) == (40, 0)


def test_what_a_publisher_sends_meanwhile_comes_after_it_and_other_publishers_do_not_wait() -> None:
    core, reader = broker(), Reader()
    subscribed(core, 12)
    one, other = core.attached("one"), core.attached("other")
    handed = [reader.read(core.receive(numbered(1, 2), one, 0)), reader.read(core.receive(numbered(3), one, 0))]
    assert handed[1] == 0
    assert reader.read(core.receive(numbered(100), other, 0)) == 3
    handed += reader.read_all(core)
    for bodies in reader.bodies.values():
        assert [body for body in bodies if body < 100] == [1, 2, 3]
        assert bodies.count(100) == 1
    assert len(reader.bodies) == 12


def test_a_single_session_gets_any_message_and_small_ones_go_to_all_at_once() -> None:
    core, reader = broker(), Reader()
    subscribed(core, 1)
    publisher = core.attached("p")
    assert reader.read(core.receive(numbered(1, size=10 * TURN), publisher, 0)) == 1
    assert not core.unfinished
    subscribed(core, 100)
    assert reader.read(core.receive(numbered(2, size=1), publisher, 0)) == 101
    assert not core.unfinished


def test_who_cannot_take_more_has_copies_in_its_queue_and_they_count_too() -> None:
    core, reader = broker(), Reader()
    for subscription in subscribed(core, 40):
        core.congested(subscription.session)
    publisher = core.attached("p")
    reader.read(core.receive(numbered(7), publisher, 0))
    assert core.waiting.messages == 3
    reader.read_all(core)
    assert core.waiting.messages == 40
    assert reader.bodies == {}


def test_small_messages_wait_in_some_queues_a_turn_and_are_delivered_to_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.broker.residents.MAX_TURN_BYTES", 20_000)
    monkeypatch.setattr("postroad.broker.residents.WAITING_BYTES", 5_000)
    monkeypatch.setattr("postroad.broker.residents.DELIVERED_BYTES", 1_000)
    core, reader = broker(), Reader()
    slow, fast = core.attached("slow"), core.attached("fast")
    for number in range(30):
        core.subscribe(slow, f"s{number}", "t")
    core.congested(slow)
    reader.read(core.receive(numbered(1, size=1), core.attached("p"), 0))
    assert core.waiting.messages == 4
    reader.read_all(core)
    assert core.waiting.messages == 30
    core.detached(slow, 0)
    for number in range(50):
        core.subscribe(fast, f"f{number}", "t")
    assert reader.read(core.receive(numbered(2, size=1), core.attached("p"), 0)) == 20
    assert max(reader.read_all(core)) == 20
    assert reader.bodies == {f"f{number}": [2] for number in range(50)}


def test_who_ends_its_subscription_meanwhile_gets_nothing_and_the_record_says_so() -> None:
    recorder = ExactRecorder(7, 0)
    core, reader = broker(recorder), Reader()
    subscriptions = subscribed(core, 8)
    batch = numbered(7)
    reader.read(core.receive(batch, core.attached("p"), 1))
    message = MessageId.of(*batch.ids[0].tolist())
    first = recorder.findings(message, 1)
    assert len(first.delivered) == 3
    assert first.waits
    core.unsubscribe(subscriptions[5].session, "s5", 2)
    core.detached(subscriptions[6].session, 2)
    core.subscribe(subscriptions[5].session, "s5", "t")
    reader.read_all(core, 3)
    assert sorted(reader.bodies) == ["s0", "s1", "s2", "s3", "s4", "s7"]
    found = recorder.findings(message, 3)
    assert len(found.delivered) == 6
    ended = {drop.subscription for drop in found.dropped if drop.reason == "subscription ended"}
    assert ended == {subscriptions[5].number, subscriptions[6].number}
    assert not found.waits
    assert core.statistics().shed_session_closed == 2


def test_a_frame_of_a_neighbour_is_settled_when_all_sessions_have_it() -> None:
    core, reader = broker(), Reader()
    relay = Relay(core, make_strategy("flood", core.number, 0))
    relay.link_up(9, 1, 0)
    subscribed(core, 10)
    frames = [relay.consignments.take(9, 1, number) for number in (1, 2)]
    for number, frame in enumerate(frames):
        batch = numbered(2 * number, 2 * number + 1)
        batch.ids[:] = [(9 << 32 | 9, (1_000 + 2 * number + row) << 16) for row in range(2)]
        reader.read(relay.receive(batch, Destinations.nowhere(2), 9, 0, frame))
    assert relay.consignments.take_settled() == []
    reader.read_all(core)
    assert relay.consignments.take_settled() == frames
    assert reader.bodies == {f"s{number}": [0, 1, 2, 3] for number in range(10)}


def test_what_sessions_are_owed_is_given_to_some_of_them_a_turn() -> None:
    core, reader = broker(), Reader()
    sessions: list[Session] = []
    for subscription in subscribed(core, 12):
        core.congested(subscription.session)
        sessions.append(subscription.session)
    reader.read(core.receive(numbered(1, 2), core.attached("p"), 0))
    reader.read_all(core)
    for session in sessions:
        session.congested = False
        core._turns.owe(session)
    handed = reader.read_all(core)
    assert max(handed) <= 4
    assert reader.bodies == {f"s{number}": [1, 2] for number in range(12)}
