"""Dead letters are not too old because their messages are."""

from __future__ import annotations

from postroad.broker import QueueSettings
from postroad.store import StoreSettings
from tests.broker.queue_scene import QueueScene


def test_message_that_waited_long_before_it_was_given_up_stays_a_dead_letter() -> None:
    scene = QueueScene(QueueSettings(max_deliveries=1), StoreSettings(max_age_seconds=60))
    queues = scene.core.queues
    assert queues is not None
    scene.send(["m1"])
    scene.now += 59_000
    reader = scene.core.attached("reader")
    scene.consume(reader, "a")
    scene.answer(reader, scene.take()[0], positive=False)
    scene.now += 2_000
    queues.expire(scene.now)
    scene.settle()
    assert scene.queue("DLQ.work").cursor.rows == 1
    # A queue of ordinary messages keeps the limit.
    scene.send(["m2"])
    scene.core.detached(reader, scene.now)
    scene.send(["m3"])
    scene.now += 61_000
    queues.expire(scene.now)
    scene.settle()
    assert scene.queue().cursor.waiting.count == 0
