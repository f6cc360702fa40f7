"""What a session with many consumers leaves behind goes back queue by queue, and its costs to those who stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.broker.queue_scene import QueueScene

if TYPE_CHECKING:
    import pytest

    from postroad.broker import Session

COUNT = 300


def leave(scene: QueueScene, session: Session) -> None:
    scene.note(scene.core.detached(session, scene.now))
    scene.settle()


def test_messages_of_many_consumers_that_leave_together_go_back_at_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = QueueScene()
    leaving = scene.core.attached("leaving")
    for number in range(COUNT):
        scene.subscribe(leaving, str(number), prefetch=1, queue=f"q{number % 2}")
    bodies = [str(number) for number in range(COUNT)]
    for queue in ("q0", "q1"):
        scene.send(bodies[: COUNT // 2], queue=queue)
    assert len(scene.take()) == COUNT
    assert scene.core.queues is not None
    returns, calls = scene.core.queues.returns, []
    came_back = returns.came_back

    def counted(queue: Any, rows: Any, *args: Any, **named: Any) -> None:
        calls.append((queue.name, len(rows)))
        came_back(queue, rows, *args, **named)

    monkeypatch.setattr(returns, "came_back", counted)
    leave(scene, leaving)
    assert sorted(calls) == [("q0", COUNT // 2), ("q1", COUNT // 2)]
    staying = scene.core.attached("staying")
    scene.consume(staying, "s", prefetch=COUNT, queue="q0")
    scene.later(60_000)
    got = scene.take()
    assert [each.body for each in got] == bodies[: COUNT // 2]
    assert {each.delivery for each in got} == {"2"}


def test_message_that_is_twice_in_a_queue_goes_back_from_both_consumers() -> None:
    scene = QueueScene()
    scene.send(["a", "b"])
    leaving = scene.core.attached("leaving")
    first, second = (scene.consume(leaving, key, prefetch=1) for key in ("1", "2"))
    # As if both places held the same message.
    (place,) = second.unacknowledged.values()
    second.unacknowledged = {next(iter(first.unacknowledged)): place}
    scene.take()
    leave(scene, leaving)
    scene.consume(scene.core.attached("staying"), "s", prefetch=2)
    scene.later(60_000)
    assert sorted(each.body for each in scene.take()) == ["a", "b"]


def test_work_of_a_selector_stays_counted_for_whoever_has_it_until_the_last_has_left() -> None:
    scene = QueueScene()
    sessions = [scene.core.attached(str(number)) for number in range(3)]
    for number, session in enumerate(sessions):
        scene.subscribe(session, "other", selector="other = 1")
        for key in range(3):
            scene.subscribe(session, str(key), selector="a = 1 AND b = 2" if number else "c LIKE 'x%'")
    for left, session in enumerate(sessions):
        leave(scene, session)
        works = [each.work for rest in sessions[left + 1 :] for each in rest.subscriptions.values()]
        # One of each selector that is left.
        assert sum(work > 0 for work in works) == (2, 2, 0)[left]
    assert len(scene.queue().consumers) == 0
    assert scene.queue().consumers.profiles == {}
