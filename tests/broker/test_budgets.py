"""What subscriptions may take of a broker's memory and of a message's time, and batches that are more than one turn."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from postroad.broker import Broker, BrokerError, Limits, Outbox, PublisherNumbers, Relay, make_strategy
from postroad.messages import Batch, MessageId
from postroad.routing.destinations import Destinations
from postroad.tracking import ExactRecorder

if TYPE_CHECKING:
    from postroad.broker import Session


def broker(*, in_turns: Any = False, **limits: int) -> Broker:
    blocks = itertools.count(1, 1_000)
    return Broker(7, PublisherNumbers(lambda: next(blocks)), Limits(**limits), in_turns=in_turns)


def subscribe_until_refused(core: Broker, session: Session, selector: str) -> tuple[int, str]:
    for number in range(5_000):
        try:
            core.subscribe(session, f"s{number}", "t", selector.format(number=number))
        except BrokerError as error:
            return number, str(error)
    raise AssertionError("nothing was refused")


LONG = "b = '" + "x" * 30_000 + "{number}'"
LISTS = "b NOT IN (" + ", ".join(f"'{{number}}-{place}'" for place in range(1_000)) + ")"
SLOW = "b LIKE '%x_{number}%y%'"


@pytest.mark.parametrize(
    ("limits", "selector", "limit"),
    [
        ({"session_subscription_bytes": 2_000_000}, LONG, "session_subscription_bytes"),
        ({"subscription_bytes": 2_000_000}, LONG, "subscription_bytes"),
        ({"session_subscription_bytes": 3_000_000}, LISTS, "session_subscription_bytes"),
        ({"session_matching_ms": 20}, SLOW, "session_matching_ms"),
        ({"matching_ms": 20}, SLOW, "matching_ms"),
    ],
    ids=lambda value: value if isinstance(value, str) and "_" in value and " " not in value else "",
)
def test_a_subscription_beyond_a_budget_is_refused_by_its_name(
    limits: dict[str, int], selector: str, limit: str
) -> None:
    core = broker(**limits)
    session = core.attached("s")
    count, text = subscribe_until_refused(core, session, selector)
    assert count >= 10
    assert f"(limits.{limit})" in text
    assert core.statistics().subscriptions_now == count
    assert len(core.index) == count


@pytest.mark.parametrize(("selector", "limit"), [(LONG, "subscription_bytes"), (SLOW, "matching_ms")])
def test_a_session_uses_up_its_own_share_and_not_that_of_others(selector: str, limit: str) -> None:
    core = broker(**{f"session_{limit}": 20 if "ms" in limit else 2_000_000})
    first, second = core.attached("first"), core.attached("second")
    count, text = subscribe_until_refused(core, first, selector)
    assert f"session_{limit}" in text
    # Other selectors: what is shared counts for the session that brought it.
    again, _ = subscribe_until_refused(core, second, selector.replace("x", "z"))
    assert again == count


@pytest.mark.parametrize("selector", [LONG, SLOW], ids=["bytes", "work"])
def test_what_a_subscription_used_is_free_when_it_ends(selector: str) -> None:
    core = broker(session_subscription_bytes=2_000_000, session_matching_ms=20)
    session = core.attached("s")
    count, _ = subscribe_until_refused(core, session, selector)
    for number in range(count):
        core.unsubscribe(session, f"s{number}", 0)
    held = core.statistics()
    assert (held.subscription_bytes_now, held.matching_work_now) == (0, 0)
    assert core.index.work == 0
    assert subscribe_until_refused(core, session, selector)[0] == count
    core.detached(session, 0)
    held = core.statistics()
    assert (held.subscription_bytes_now, held.matching_work_now) == (0, 0)


class Reader:
    """Keeps the bodies that each subscription was handed, in order, and who is paused."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[int]] = {}
        self.paused: set[int] = set()

    def read(self, outbox: Outbox) -> int:
        for subscription, batch, rows in outbox.deliveries:
            found = [int(batch.message(row).body) for row in rows.tolist()]
            self.bodies.setdefault(subscription.key, []).extend(found)
        self.paused |= set(outbox.pauses)
        self.paused -= set(outbox.resumes)
        return sum(len(delivery.rows) for delivery in outbox.deliveries)


def numbered(numbers: range) -> Batch:
    return Batch.build(("t", {"x": number % 10}, {}, str(number).encode()) for number in numbers)


def busy(core: Broker, subscriptions: int = 100) -> Session:
    session = core.attached("s")
    for number in range(subscriptions):
        core.subscribe(session, f"s{number}", "t", f"x >= {number % 3}")
    return session


def test_a_batch_of_much_work_is_cut_and_arrives_whole_and_in_order() -> None:
    core, whole = broker(in_turns=True, turn_ms=1), broker()
    busy(core)
    busy(whole)
    publisher, reader, truth = core.attached("p"), Reader(), Reader()
    truth.read(whole.receive(numbered(range(200)), whole.attached("p"), 0))
    handed = [reader.read(core.receive(numbered(range(120)), publisher, 0))]
    assert reader.paused == {publisher.number}
    assert core.statistics().unfinished_messages_now > 0
    # What the same publisher sends meanwhile waits behind the rest.
    handed.append(reader.read(core.receive(numbered(range(120, 200)), publisher, 0)))
    assert handed[1] == 0
    while core.unfinished:
        handed.append(reader.read(core.proceed(0)))
    assert max(handed) < 3_000
    assert reader.bodies == truth.bodies
    assert not reader.paused
    assert core.statistics().unfinished_messages_now == 0
    assert core.statistics().accepted == 200


def test_another_publisher_gets_its_turn_before_the_rest_of_a_batch() -> None:
    core, reader = broker(in_turns=True, turn_ms=1), Reader()
    busy(core)
    greedy, modest = core.attached("greedy"), core.attached("modest")
    reader.read(core.receive(numbered(range(1_000)), greedy, 0))
    reader.read(core.receive(numbered(range(1_009, 1_010)), modest, 0))
    assert all(bodies[-1] == 1_009 for bodies in reader.bodies.values())
    assert core.unfinished
    assert not modest.paused


def test_two_greedy_publishers_take_turns() -> None:
    core, reader = broker(in_turns=True, turn_ms=1), Reader()
    busy(core)
    one, other = core.attached("one"), core.attached("other")
    reader.read(core.receive(numbered(range(500)), one, 0))
    reader.read(core.receive(numbered(range(1_000, 1_500)), other, 0))
    for _ in range(2):
        reader.read(core.proceed(0))
    bodies = reader.bodies["s0"]
    assert max(body for body in bodies if body < 500) < 400
    assert max(bodies) > 1_010
    while core.unfinished:
        reader.read(core.proceed(0))
    assert [body for body in reader.bodies["s0"] if body < 500] == list(range(500))
    assert [body for body in reader.bodies["s0"] if body >= 1_000] == list(range(1_000, 1_500))


def test_what_a_publisher_left_unfinished_is_delivered_after_it_is_gone() -> None:
    core, reader = broker(in_turns=True, turn_ms=1), Reader()
    busy(core)
    publisher = core.attached("p")
    reader.read(core.receive(numbered(range(300)), publisher, 0))
    core.detached(publisher, 0)
    while core.unfinished:
        reader.read(core.proceed(0))
    assert reader.bodies["s0"] == list(range(300))


def test_rows_that_wait_for_their_turn_are_on_record_as_waiting_until_they_had_it() -> None:
    """A crash between two turns must not leave a message that came, and nobody wanted."""
    recorder, blocks = ExactRecorder(7, 0), itertools.count(1, 1_000)
    core = Broker(7, PublisherNumbers(lambda: next(blocks)), Limits(turn_ms=1), recorder=recorder, in_turns=True)
    busy(core)
    batch = numbered(range(300))
    core.receive(batch, core.attached("p"), 1)
    last = MessageId.of(*batch.ids[-1].tolist())
    assert core.unfinished
    found = recorder.findings(last, 1)
    assert found.accepted is not None
    assert not found.delivered
    assert found.waits
    while core.unfinished:
        core.proceed(2)
    found = recorder.findings(last, 2)
    assert found.delivered
    assert not found.waits


def test_subscriptions_may_come_and_go_between_two_turns() -> None:
    core, reader = broker(in_turns=True, turn_ms=1), Reader()
    session = busy(core)
    publisher = core.attached("p")
    reader.read(core.receive(numbered(range(300)), publisher, 0))
    for number in range(50):
        reader.read(core.unsubscribe(session, f"s{number}", 0))
    late = core.attached("late")
    core.subscribe(late, "late", "t", "x = 9")
    while core.unfinished:
        reader.read(core.proceed(0))
    assert reader.bodies["s99"] == list(range(300))
    assert len(reader.bodies["s0"]) < 300
    assert reader.bodies["late"][-1] == 299


def test_one_turn_writes_a_session_only_so_much_of_a_large_message() -> None:
    core = broker(in_turns=True)
    session = busy(core, 200)
    publisher = core.attached("p")
    outbox = core.receive(Batch.build([("t", {"x": 5}, {}, b"." * 200_000)]), publisher, 0)
    assert 20 <= len(outbox.deliveries) < 60
    assert core.has_waiting(session)
    given = [delivery.subscription.key for delivery in outbox.deliveries]
    while core.unfinished:
        given += [delivery.subscription.key for delivery in core.proceed(0).deliveries]
    assert sorted(given) == sorted(f"s{number}" for number in range(200))


def linked(core: Broker) -> Relay:
    return Relay(core, make_strategy("flood", core.number, 0))


def from_elsewhere(numbers: range) -> Batch:
    batch = numbered(numbers)
    batch.ids[:] = [(9 << 32 | 9, (1_000 + number) << 16) for number in numbers]
    return batch


def test_what_comes_over_a_link_takes_turns_and_is_settled_when_all_of_it_is_delivered() -> None:
    core, reader = broker(in_turns=True, turn_ms=1), Reader()
    relay = linked(core)
    relay.link_up(9, 1, 0)
    busy(core)
    frames = [relay.consignments.take(9, 1, number) for number in (1, 2)]
    for number, frame in enumerate(frames):
        batch = from_elsewhere(range(150 * number, 150 * number + 150))
        reader.read(relay.receive(batch, Destinations.nowhere(len(batch)), 9, 0, frame))
    assert core.unfinished
    assert relay.consignments.take_settled() == []
    local = core.attached("local")
    reader.read(core.receive(numbered(range(1_009, 1_010)), local, 0))
    assert reader.bodies["s0"][-1] == 1_009
    while core.unfinished:
        reader.read(core.proceed(0))
    assert relay.consignments.take_settled() == frames
    assert [body for body in reader.bodies["s0"] if body < 1_000] == list(range(300))


def test_a_publisher_among_brokers_is_cut_into_turns_and_every_row_goes_to_the_links_once() -> None:
    core, reader = broker(in_turns=True, turn_ms=1), Reader()
    relay = linked(core)
    relay.link_up(9, 1, 0)
    busy(core)
    publisher = core.attached("p")
    sent: list[int] = []
    outbox = core.receive(numbered(range(250)), publisher, 0)
    while True:
        reader.read(outbox)
        for parcel in outbox.parcels:
            sent += [int(parcel.batch.message(row).body) for row in parcel.rows.tolist()]
        if not core.unfinished:
            break
        outbox = core.proceed(0)
    assert sent == list(range(250))
    assert reader.bodies["s0"] == list(range(250))
    assert not reader.paused


def test_more_than_may_wait_is_overdue_until_the_driver_has_proceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.broker.matching_turns.MAX_UNFINISHED_BYTES", 4_000)
    core, reader = broker(in_turns=True, turn_ms=1), Reader()
    relay = linked(core)
    busy(core)
    for number in range(4):
        batch = from_elsewhere(range(150 * number, 150 * number + 150))
        reader.read(relay.receive(batch, Destinations.nowhere(len(batch)), 9, 0))
        assert core.matching.is_overdue
        while core.matching.is_overdue:
            reader.read(core.proceed(0))
    while core.unfinished:
        reader.read(core.proceed(0))
    assert reader.bodies["s0"] == list(range(600))


@pytest.mark.parametrize(
    "selector",
    [
        LISTS,
        "x = {number} AND y > {number}",
        " AND ".join(f"x <> 1{{number}}{place}" for place in range(300)),
        "b LIKE '%x_{number}%y%' OR b LIKE '%y_{number}%x%'",
    ],
    ids=["lists", "ordinary", "conditions", "likes"],
)
def test_a_subscription_takes_no_more_of_the_index_than_is_estimated(selector: str) -> None:
    core = broker()
    session = core.attached("s")
    before = core.index.statistics().bytes
    for number in range(100):
        core.subscribe(session, f"s{number}", "t", selector.format(number=number))
    assert core.index.statistics().bytes - before < core.statistics().subscription_bytes_now


def test_rows_that_share_a_topic_are_not_taken_for_the_whole_batch() -> None:
    outbox = Outbox()
    rows = Batch.build([("t", {}, {}, b"x" * 100)] * 50)
    rows.spans[:, :2] = rows.spans[0, :2]
    subscription = broker().subscribe(broker().attached("s"), "key", "t")
    assert outbox.size_of(subscription, rows, 3) == 3 * (101 + len("key"))
    assert outbox.size_of(subscription, rows, 50) == 50 * (101 + len("key"))
