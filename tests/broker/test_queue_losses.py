"""No message of a queue is lost, given up early or kept back, whatever becomes of its consumers."""

from __future__ import annotations

from postroad.broker import AckMode, Outbox
from tests.broker.queue_scene import QueueScene


def test_what_a_lost_session_had_does_not_go_to_another_consumer_of_that_session() -> None:
    scene = QueueScene()
    session = scene.core.attached("reader")
    scene.consume(session, "a", prefetch=1)
    scene.send(["m1"])
    scene.consume(session, "b", AckMode.AUTO)
    assert [(each.key, each.body) for each in scene.take()] == [("a", "m1")]
    scene.note(scene.core.detached(session, scene.now))
    scene.settle()
    assert scene.take() == []
    scene.consume(scene.core.attached("reader"), "c")
    assert [(each.key, each.body, each.delivery) for each in scene.take()] == [("c", "m1", "2")]


def test_consumers_of_a_lost_session_use_up_one_try_together() -> None:
    scene = QueueScene()
    session = scene.core.attached("reader")
    for key in "ab":
        scene.consume(session, key, prefetch=1)
    scene.send(["m1"])
    scene.take()
    scene.note(scene.core.detached(session, scene.now))
    scene.settle()
    scene.consume(scene.core.attached("reader"), "c")
    assert [(each.key, each.delivery) for each in scene.take()] == [("c", "2")]


def test_what_an_exclusive_consumer_kept_back_does_not_go_to_the_rest_of_its_lost_session() -> None:
    scene = QueueScene()
    session = scene.core.attached("reader")
    scene.consume(session, "a", prefetch=1, exclusive=True)
    scene.consume(session, "b", AckMode.AUTO)
    scene.send([str(each) for each in range(50)])
    scene.take()
    scene.note(scene.core.detached(session, scene.now))
    scene.settle()
    assert scene.take() == []
    assert scene.queue().cursor.rows == 50


def test_nobody_gets_messages_of_a_queue_that_is_being_deleted() -> None:
    scene = QueueScene()
    first, second = scene.core.attached("reader"), scene.core.attached("reader")
    scene.consume(first, "a")
    scene.send(["m1"])
    scene.consume(second, "b", AckMode.AUTO)
    scene.take()
    queues = scene.core.queues
    assert queues is not None
    outbox = Outbox()
    assert queues.delete(scene.queue(), "not needed", outbox, scene.now) == 1
    assert not outbox.deliveries
    assert [number for number, _ in outbox.closes] == [first.number, second.number]
