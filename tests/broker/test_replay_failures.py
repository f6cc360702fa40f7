"""A replay that fails costs nobody else anything; and canonical selectors, which replays and restarts parse, work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.broker import AckMode, BrokerError, Outbox, OverflowPolicy, ReplayStart
from postroad.matching import NO_BUDGET, SubscriptionIndex
from tests.broker.replay_scene import ReplayScene, ids

if TYPE_CHECKING:
    from collections.abc import Hashable

    from postroad.broker import Subscription
    from postroad.selectors import Selector, TopicPattern

# Its canonical text has an escape for each backslash, and is longer than a LIKE pattern may be without them.
ESCAPED = "p LIKE '" + "\\" * 600 + "!_%' ESCAPE '!' OR n >= 0"


def broken(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """Let every replay with a selector fail."""

    class Broken(SubscriptionIndex):
        def add(
            self,
            key: Hashable,
            selector: Selector | str | None = None,
            topic: TopicPattern | str | None = None,
            allowance: int = NO_BUDGET,
        ) -> int:
            if selector == failing:
                raise BrokerError("a defect")
            return super().add(key, selector, topic, allowance)

    monkeypatch.setattr("postroad.broker.replays.SubscriptionIndex", Broken)


def durable(scene: ReplayScene, selector: str) -> Subscription:
    durables = scene.core.durables
    assert durables is not None
    name = ("c", "d")
    return durables.subscribe(scene.reader, "k", name, "a.>", selector, AckMode.INDIVIDUAL, scene.now, Outbox())


def test_replay_that_fails_closes_its_client_and_takes_nothing_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = ReplayScene()
    broken(monkeypatch, "n = 77")
    scene.publish(20, "a.x")
    scene.turn_until_safe()
    owed, culprit = scene.core.attached("owed"), scene.core.attached("culprit")
    waits = scene.core.subscribe(owed, "v", "b", "", AckMode.AUTO, OverflowPolicy.SPOOL, scene.now)
    owed.congested = True
    scene.publish(5, "b")
    scene.turn_until_safe()
    owed.congested = False
    scene.core._turns.owe(owed)
    scene.core.subscribe(culprit, "e", "a.>", "n = 77", AckMode.AUTO, OverflowPolicy.SPOOL, scene.now, ReplayStart())
    other = scene.subscribe(ReplayStart())
    closed: list[tuple[int, str]] = []
    while scene.core.unfinished:
        outbox = Outbox()
        try:
            scene.core.proceed(scene.now, outbox)
        except BrokerError:
            closed += outbox.closes
        scene.note(outbox)
    scene.settle()
    assert closed == [(culprit.number, "the history of the subscription 'e' cannot be read: a defect")]
    assert len(ids(scene, waits)) == waits.delivered == 5
    assert ids(scene, other) == scene.wanted(other)
    scene.note(scene.core.detached(culprit, scene.now))
    assert len(scene.core.replays) == 0


def test_durable_replay_that_failed_goes_on_when_its_client_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = ReplayScene()
    scene.publish(20, "a.x")
    scene.turn_until_safe()
    with monkeypatch.context() as patched:
        broken(patched, "n <> 2")
        scene.durable("d", ReplayStart())
        with pytest.raises(BrokerError, match="a defect"):
            scene.settle()
    scene.note(scene.core.detached(scene.reader, scene.now))
    scene.reader = scene.core.attached("reader")
    subscription = scene.durable("d", None)
    scene.settle()
    while scene.acknowledge(subscription, 20):
        scene.settle()
    assert ids(scene, subscription) == scene.wanted(subscription)


def test_replay_reads_with_a_selector_whose_canonical_text_has_more_escapes() -> None:
    scene = ReplayScene()
    scene.publish(20, "a.x")
    scene.turn_until_safe()
    subscription = scene.subscribe(ReplayStart(), selector=ESCAPED)
    scene.settle()
    assert ids(scene, subscription) == [each.id for each in scene.sent]


def test_durable_subscription_whose_canonical_text_has_more_escapes_outlives_a_restart() -> None:
    scene = ReplayScene()
    durable(scene, ESCAPED)
    scene.publish(5, "a.x")
    scene.turn_until_safe()
    scene.crash()
    scene.publish(5, "a.x")
    subscription = durable(scene, ESCAPED)
    scene.settle()
    while scene.acknowledge(subscription, 20):
        scene.settle()
    assert set(ids(scene, subscription)) == {each.id for each in scene.sent}
