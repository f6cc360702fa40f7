"""Acknowledgements that come together do what they would do one after the other, or nothing at all."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from postroad.broker import AckMode, Acknowledgement, BrokerError, settlements
from tests.broker.queue_scene import QueueScene

if TYPE_CHECKING:
    from postroad.broker import Session


def scene_with(mode: AckMode) -> QueueScene:
    scene = QueueScene()
    scene.consume(scene.core.attached("reader"), "a", mode)
    scene.send([str(number) for number in range(12)])
    return scene


@pytest.mark.parametrize("mode", [AckMode.CLIENT, AckMode.INDIVIDUAL])
@pytest.mark.parametrize("seed", range(20))
def test_acknowledgements_that_come_together_do_what_they_do_one_by_one(mode: AckMode, seed: int) -> None:
    chance = random.Random(seed)
    one, other = scene_with(mode), scene_with(mode)
    chosen = [
        (chance.randrange(12), chance.random() < 0.7, chance.random() < 0.5) for _ in range(chance.randrange(1, 5))
    ]
    ids = [each.id for each in one.take()]
    assert ids == [each.id for each in other.take()]
    refused = False
    for at, positive, requeues in chosen:
        try:
            one.note(one.core.acknowledge(reader(one), "a", *ids[at], positive, one.now, requeues))
        except BrokerError:
            refused = True
            break
    told = [Acknowledgement("a", ids[at][0] << 64 | ids[at][1], *how) for at, *how in chosen]
    try:
        found = settlements(reader(other), told)
    except BrokerError:
        assert refused
        assert other.core.statistics().acknowledged == other.core.statistics().refused == 0
        return
    assert not refused
    other.note(other.core.settle(reader(other), found, other.now))
    for scene in (one, other):
        scene.settle()
        scene.later(100_000)
    assert one.take() == other.take()
    assert one.core.statistics() == other.core.statistics()
    assert one.queue().cursor.rows == other.queue().cursor.rows


def reader(scene: QueueScene) -> Session:
    return scene.core.sessions()[-1]
