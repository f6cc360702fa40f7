"""Sessions with very many subscriptions end in turns, and nothing goes to them meanwhile."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from postroad.broker import Broker, Limits, OverflowPolicy, PublisherNumbers, stored_queues
from postroad.messages import Batch, MessageId
from postroad.store import SimulatedDisk, carry_out
from postroad.tracking import ExactRecorder
from tests.broker.stored_core import NumberBlocks, stored_core

if TYPE_CHECKING:
    from postroad.broker import Outbox, Recorder, Session

TURN = 20


@pytest.fixture(autouse=True)
def _small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.broker.departures.ENDED_PER_TURN", TURN)
    monkeypatch.setattr("postroad.broker.departures.SHED_AT_ONCE", TURN)


def broker(recorder: Recorder | None = None) -> Broker:
    blocks = itertools.count(1, 1_000)
    return Broker(7, PublisherNumbers(lambda: next(blocks)), Limits(), recorder=recorder, in_turns=True)


def subscribed(core: Broker, count: int, policy: OverflowPolicy = OverflowPolicy.DROP_OLDEST) -> Session:
    session = core.attached("s")
    for number in range(count):
        core.subscribe(session, f"s{number}", "t", policy=policy)
    return session


def one(body: bytes = b"") -> Batch:
    return Batch.build([("t", {}, {}, body)])


def turns(core: Broker, now: int = 0) -> list[Outbox]:
    found = []
    while core.unfinished:
        found.append(core.proceed(now))
    return found


def test_subscriptions_of_a_session_that_is_gone_leave_the_index_in_turns() -> None:
    core = broker()
    session, other = subscribed(core, 100), subscribed(core, 1)
    core.detached(session, 0)
    assert len(core.index) == 101 - TURN
    # Those that are left get nothing, and count for nobody.
    outbox = core.receive(one(), core.attached("p"), 0)
    assert [delivery.subscription.session for delivery in outbox.deliveries] == [other]
    assert core.statistics().subscriptions_now == 1
    sizes = []
    while core.unfinished:
        core.proceed(0)
        sizes.append(len(core.index))
    assert sizes == [61, 41, 21, 1]
    assert core.statistics().delivered == 1
    assert core.statistics().subscription_bytes_now == other.subscription_bytes


def test_slots_of_subscriptions_that_leave_are_not_given_to_others_before_they_are_free() -> None:
    core = broker()
    session = subscribed(core, 100)
    core.detached(session, 0)
    fresh = [subscribed(core, 10) for _ in range(3)]
    publisher = core.attached("p")
    for _ in range(5):
        outbox = core.receive(one(), publisher, 0)
        assert {delivery.subscription.session for delivery in outbox.deliveries} == set(fresh)
        assert len(outbox.deliveries) == 30
        core.proceed(0)
    assert len(core.index) == 30


def test_what_waits_for_subscriptions_that_end_is_shed_in_turns_and_recorded() -> None:
    recorder = ExactRecorder(7, 0)
    core = broker(recorder)
    session, publisher = subscribed(core, 3), core.attached("p")
    core.congested(session)
    batches = [one() for _ in range(50)]
    for batch in batches:
        core.receive(batch, publisher, 1)
    core.unsubscribe(session, "s0", 2)
    assert core.waiting.messages == 130
    core.detached(session, 2)
    assert core.waiting.messages == 110
    for outbox in turns(core, 3):
        assert not outbox.deliveries
    assert (core.waiting.messages, core.waiting.bytes, len(core.index)) == (0, 0, 0)
    assert core.statistics().shed_session_closed == 150
    for batch in batches:
        found = recorder.findings(MessageId.of(*batch.ids[0].tolist()), 3)
        assert sorted(drop.reason for drop in found.dropped) == ["session closed", "session closed", "unsubscribed"]


def test_a_publisher_that_was_pushed_back_goes_on_when_the_subscription_has_left() -> None:
    core = broker()
    core.take_limits(Limits(queue_messages=1))
    session = subscribed(core, 30, OverflowPolicy.PUSH_BACK)
    publisher = core.attached("p")
    core.congested(session)
    core.receive(Batch.build([("t", {}, {}, b"")] * 2), publisher, 0)
    assert publisher.paused
    core.detached(session, 0)
    resumes = [number for outbox in turns(core) for number in outbox.resumes]
    assert resumes == [publisher.number]
    assert not publisher.paused


def test_what_was_spooled_for_many_subscriptions_is_given_up_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_queues, "DISCARDED_PER_TURN", 10 * (stored_queues.DISCARD_ROWS + 1))
    disk, limits = SimulatedDisk(), Limits(spool_memory_bytes=1)
    core, log = stored_core(disk, NumberBlocks(), 0, in_turns=True, limits=limits)
    session = subscribed(core, 60, OverflowPolicy.SPOOL)
    core.congested(session)
    publisher = core.attached("p")
    # The first of each waits in memory.
    core.receive(one(), publisher, 0)
    core.receive(one(), publisher, 0)
    assert log.statistics().spools_now == 60
    commit = log.take_commit(0)
    assert commit is not None
    carry_out(commit, disk)
    log.committed(commit)
    core.detached(session, 0)
    turns(core)
    woken: list[bool] = []
    left = [60]
    while left[-1]:
        log.on_work = lambda: woken.append(True)
        core.stored(0)
        # Nothing else would bring the next turn.
        assert woken
        woken.clear()
        left.append(60 - core.statistics().shed_stored)
    assert left == [60, 50, 40, 30, 20, 10, 0]
    assert log.statistics().spools_now == 0
