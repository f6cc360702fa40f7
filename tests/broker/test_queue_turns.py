"""What looking for rows of queues costs: it is cut into turns, and counts for a session as long as it is there."""

from __future__ import annotations

from postroad.broker import Limits, Session
from postroad.broker.turns import Turns
from tests.broker.queue_scene import QueueScene

COSTLY = " OR ".join(f"h LIKE '%aaaaaaaaaa%b{number}%'" for number in range(4))


def test_search_for_rows_that_a_consumer_wants_is_cut_into_turns() -> None:
    scene = QueueScene(limits=Limits(turn_ms=1))
    headers = [("h", "a" * 1_000)]
    for _ in range(4):
        scene.send([str(number) for number in range(500)], headers=headers)
    scene.send(["last"], headers=[("h", "aaaaaaaaaab3")])
    scene.consume(scene.core.attached("reader"), "a", selector=COSTLY)
    assert [each.body for each in scene.take()] == ["last"]
    budget = scene.core.turn_budget
    assert len(scene.searched) > 2
    assert sum(scene.searched) > 2 * budget
    assert max(scene.searched) < 2 * budget


def test_session_that_a_turn_had_no_time_for_comes_first_in_the_next_one() -> None:
    turns = Turns()
    sessions = [Session(number, "reader") for number in (1, 2, 3)]
    turns.owe(sessions[0])
    turns.owe_first(sessions[1:])
    assert [each.number for each in turns.take_owed()] == [2, 3, 1]


def test_selector_costs_its_session_as_long_as_a_consumer_has_it() -> None:
    scene = QueueScene()
    first, second = scene.core.attached("reader"), scene.core.attached("reader")
    scene.consume(first, "a", selector=COSTLY)
    work = scene.core.budgets.work
    assert work == first.matching_work > 0
    scene.consume(second, "b", selector=COSTLY)
    assert (scene.core.budgets.work, second.matching_work) == (work, 0)
    scene.note(scene.core.detached(first, scene.now))
    assert (scene.core.budgets.work, second.matching_work) == (work, work)
    scene.note(scene.core.detached(second, scene.now))
    assert scene.core.budgets.work == 0


def test_messages_of_many_groups_go_to_a_consumer_in_one_delivery() -> None:
    scene = QueueScene()
    bodies = [str(number) for number in range(200)]
    scene.send(bodies, each=lambda number: [("JMSXGroupID", f"order-{number}")])
    subscription = scene.consume(scene.core.attached("reader"), "a")
    assert [each.body for each in scene.take()] == bodies
    assert scene.deliveries == 1
    assert len(subscription.unacknowledged) == 200


def test_queue_with_nothing_for_its_consumers_is_left_alone_until_something_comes() -> None:
    scene = QueueScene()
    scene.send([str(number) for number in range(20)], each=lambda number: [("n", str(number % 2))])
    session = scene.core.attached("reader")
    scene.consume(session, "a", selector="n = '1'")
    assert len(scene.take()) == 10
    assert scene.core.store is not None
    assert scene.core.store.blocked == {}
    scene.send(["other"], queue="other")
    # Something else is written before it is.
    scene.send(["more"], headers=[("n", "1")], settles=False)
    scene.note(scene.core.stored(scene.now))
    scene.settle()
    assert [each.body for each in scene.take()] == ["more"]
    # What was passed over is found by whoever wants it.
    scene.consume(session, "b", selector="n = '0'")
    got = scene.take()
    assert [each.body for each in got] == [str(number) for number in range(0, 20, 2)]
    scene.answer(session, got[0], positive=False)
    scene.later(1_000)
    assert [(each.key, each.body) for each in scene.take()] == [("b", "0")]
