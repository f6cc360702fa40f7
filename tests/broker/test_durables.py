"""Durable subscriptions without sockets: who has them, what they refuse, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from postroad.broker import AckMode, Broker, BrokerError, Limits, Outbox, PublisherNumbers, QueueSettings
from postroad.broker.durables import MAX_NAME_BYTES
from postroad.messages import Batch, Draft
from postroad.store import Log, StoreSettings, carry_out, recover
from tests.broker.queue_scene import QueueScene

if TYPE_CHECKING:
    from postroad.broker import Session, Subscription
    from postroad.broker.durables import Durables

NAME = ("client", "name")
# Refused once, and once more after a second.
SETTINGS = QueueSettings(max_deliveries=2, redelivery_ms=1_000)


class DurableScene(QueueScene):
    """A broker with durable subscriptions to topics."""

    @property
    def durables(self) -> Durables:
        assert self.core.durables is not None
        return self.core.durables

    def durable(
        self, session: Session, key: str = "k", topic: str = "t", selector: str = "", **named: Any
    ) -> Subscription:
        outbox = named.pop("outbox", Outbox())
        ack = named.pop("ack", AckMode.INDIVIDUAL)
        made = self.durables.subscribe(session, key, NAME, topic, selector, ack, self.now, outbox, **named)
        self.settle()
        return made

    def publish(self, *bodies: str, topic: str = "t") -> None:
        batch = Batch.build([Draft(topic, {}, (), body.encode()) for body in bodies])
        self.note(self.core.receive(batch, self.writer, self.now))
        self.settle()

    def bodies(self) -> list[str]:
        return [each.body for each in self.take()]


def test_second_session_of_the_same_principal_takes_it_over() -> None:
    scene = DurableScene()
    first, second = scene.core.attached("ann"), scene.core.attached("ann")
    scene.durable(first)
    scene.publish("a")
    (unanswered,) = scene.take()
    outbox = Outbox()
    taken = scene.durable(second, outbox=outbox)
    assert [number for number, _ in outbox.closes] == [first.number]
    assert (taken.session, list(first.subscriptions)) == (second, [])
    (again,) = scene.take()
    assert (again.body, again.id) == (unanswered.body, unanswered.id)


def test_session_keeps_its_subscription_when_another_asks_for_too_much() -> None:
    scene = DurableScene(limits=Limits(session_matching_ms=2))
    first, second = scene.core.attached("ann"), scene.core.attached("ann")
    scene.durable(first)
    costly = " OR ".join(f"text LIKE '%{number}%_'" for number in range(20))
    outbox = Outbox()
    with pytest.raises(BrokerError, match="session_matching_ms"):
        scene.durable(second, selector=costly, outbox=outbox)
    assert outbox.closes == []
    scene.publish("a")
    (got,) = scene.take()
    assert (got.key, first.subscriptions["k"].selector, second.subscriptions) == ("k", "", {})


@pytest.mark.parametrize("name", [("", "n"), ("c", ""), ("c" * (MAX_NAME_BYTES + 1), "n"), ("c", "é" * MAX_NAME_BYTES)])
def test_name_that_is_empty_or_too_long_is_refused(name: tuple[str, str]) -> None:
    scene = DurableScene()
    session = scene.core.attached("ann")
    with pytest.raises(BrokerError, match=f"1 to {MAX_NAME_BYTES} bytes"):
        scene.durables.subscribe(session, "k", name, "t", "", AckMode.AUTO, scene.now, Outbox())


def test_subscription_of_another_principal_is_neither_taken_nor_deleted() -> None:
    scene = DurableScene()
    scene.durable(scene.core.attached("ann"))
    other = scene.core.attached("bob")
    with pytest.raises(BrokerError, match="belongs to ann"):
        scene.durable(other)
    with pytest.raises(BrokerError, match="there is no durable subscription"):
        scene.core.delete_durable(other, NAME, scene.now)
    assert len(scene.durables) == 1


def test_session_cannot_have_the_same_subscription_twice() -> None:
    scene = DurableScene()
    session = scene.core.attached("ann")
    scene.durable(session)
    with pytest.raises(BrokerError, match="already"):
        scene.durable(session, key="other")


@pytest.mark.parametrize(
    ("limit", "says"), [("MAX_DURABLES", "this broker has"), ("MAX_DURABLES_PER_PRINCIPAL", "ann has")]
)
def test_limits_of_subscriptions_are_named(monkeypatch: pytest.MonkeyPatch, limit: str, says: str) -> None:
    monkeypatch.setattr(f"postroad.broker.durables.{limit}", 1)
    scene = DurableScene()
    session = scene.core.attached("ann")
    scene.durable(session)
    with pytest.raises(BrokerError, match=says):
        scene.durables.subscribe(session, "2", ("client", "2"), "t", "", AckMode.AUTO, scene.now, Outbox())


def test_refused_message_comes_again_after_its_time_and_then_goes_to_the_dead_letters() -> None:
    scene = DurableScene(SETTINGS)
    session = scene.core.attached("ann")
    scene.durable(session)
    scene.publish("bad", "good")
    bad, good = scene.take()
    scene.answer(session, bad, positive=False)
    scene.answer(session, good)
    scene.settle()
    scene.later(900)
    assert scene.bodies() == []
    scene.later(200)
    (again,) = scene.take()
    assert (again.body, again.delivery) == ("bad", "2")
    scene.answer(session, again, positive=False)
    scene.settle()
    assert scene.log.unread(scene.queue("DLQ.client/name").cursor) == 1
    scene.later(10_000)
    assert scene.bodies() == []


def test_message_refused_for_good_is_a_dead_letter_at_once() -> None:
    scene = DurableScene(SETTINGS)
    session = scene.core.attached("ann")
    scene.durable(session)
    scene.publish("bad")
    (bad,) = scene.take()
    scene.answer(session, bad, positive=False, requeues=False)
    scene.settle()
    assert scene.log.unread(scene.queue("DLQ.client/name").cursor) == 1


def test_refused_message_waits_no_longer_when_its_client_leaves() -> None:
    scene = DurableScene(SETTINGS)
    session = scene.core.attached("ann")
    scene.durable(session)
    scene.publish("bad")
    (bad,) = scene.take()
    scene.answer(session, bad, positive=False)
    scene.note(scene.core.detached(session, scene.now))
    scene.durable(scene.core.attached("ann"))
    assert scene.bodies() == ["bad"]


def test_deleted_subscription_gives_up_what_waits_and_stays_away_after_a_restart() -> None:
    scene = DurableScene()
    session = scene.core.attached("ann")
    scene.durable(session)
    scene.note(scene.core.detached(session, scene.now))
    scene.publish("a", "b")
    again = scene.core.attached("ann")
    scene.note(scene.core.delete_durable(again, NAME, scene.now))
    scene.settle()
    assert (len(scene.durables), scene.log.cursors) == (0, {})
    scene.restart()
    assert len(scene.durables) == 0


def test_subscription_whose_deletion_was_cut_short_is_deleted_after_a_restart() -> None:
    scene = DurableScene()
    session = scene.core.attached("ann")
    scene.durable(session)
    scene.note(scene.core.detached(session, scene.now))
    scene.publish("a", "b")
    found = scene.durables.find(*NAME)
    assert found is not None
    assert scene.durables.delete(found, "unsubscribed", Outbox(), scene.now) == 2
    commit = scene.log.take_commit(scene.now)
    assert commit is not None
    carry_out(commit, scene.disk)
    scene.restart()
    scene.settle()
    assert (len(scene.durables), scene.log.cursors) == (0, {})


def test_purge_gives_up_what_waits_and_leaves_what_was_sent_to_its_client() -> None:
    scene = DurableScene(limits=Limits(unacknowledged=1))
    session = scene.core.attached("ann")
    subscription = scene.durable(session)
    scene.publish("a", "b", "c")
    (sent,) = scene.take()
    assert scene.durables.purge(subscription, "purged by an operator") == 2
    scene.settle()
    scene.answer(session, sent)
    scene.settle()
    scene.publish("d")
    assert scene.bodies() == ["d"]


def test_subscription_over_its_limit_stops_and_matches_again_when_its_client_subscribes() -> None:
    scene = DurableScene(store=StoreSettings(subscription_bytes=4_000, at_limit="stop"))
    session = scene.core.attached("ann")
    scene.durable(session)
    scene.note(scene.core.detached(session, scene.now))
    for number in range(10):
        scene.publish("x" * 1_000 + str(number))
    found = scene.durables.find(*NAME)
    assert found is not None
    assert found.durable is not None
    assert found.durable.stopped == scene.now
    again = scene.durable(scene.core.attached("ann"))
    waited = scene.bodies()
    assert 0 < len(waited) < 10
    assert again.durable is not None
    assert again.durable.stopped == 0
    scene.publish("after")
    assert scene.bodies() == ["after"]


def test_terms_that_cannot_be_read_are_reported_and_the_others_are_restored() -> None:
    scene = DurableScene()
    scene.durable(scene.core.attached("ann"))
    scene.log.open_cursor(999_999, b"\x81\xa6client\x01")
    scene.settle()
    core = Broker(1, PublisherNumbers(lambda: 1))
    log = Log(StoreSettings(), recover(scene.disk.segments(), scene.disk.read, scene.disk.sync))
    (problem,) = core.open_store(log, np.empty((0, 2), np.uint64), scene.now)
    assert problem.startswith("the durable subscription 999999 cannot be taken up")
    assert core.durables is not None
    assert [each.durable.name for each in core.durables.listed() if each.durable is not None] == ["name"]
