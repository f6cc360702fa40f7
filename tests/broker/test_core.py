"""The core of a broker: who gets what, what waits, what is shed, and who is paused."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.broker import AckMode, Broker, BrokerError, Limits, NoRecorder, OverflowPolicy, PublisherNumbers
from postroad.messages import Batch, MessageId
from postroad.messages.columns import EXPIRY
from postroad.security import Refusal
from postroad.selectors import SelectorError, TopicError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.broker import Outbox, Session
    from postroad.selectors import Selector


def broker(**limits: int) -> Broker:
    blocks = itertools.count(1, 1_000)
    return Broker(7, PublisherNumbers(lambda: next(blocks)), Limits(**limits))


def quotes(*prices: int) -> Batch:
    return Batch.build(("quotes", {"price": price}, {}, str(price).encode()) for price in prices)


class Reader:
    """Keeps the bodies that each subscription was handed, and whom the core paused and closed."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[int]] = {}
        self.paused: set[int] = set()
        self.closed: list[tuple[int, str]] = []

    def read(self, outbox: Outbox) -> Outbox:
        for subscription, batch, rows in outbox.deliveries:
            bodies = self.bodies.setdefault(subscription.key, [])
            bodies += [int(batch.message(row).body) for row in rows.tolist()]
        self.paused |= set(outbox.pauses)
        self.paused -= set(outbox.resumes)
        self.closed += outbox.closes
        return outbox

    def drain(self, core: Broker, session: Session, now: int = 0) -> None:
        self.read(core.drained(session, now))
        while core.has_waiting(session):
            self.read(core.drained(session, now))


def test_subscribers_get_what_their_selectors_want_in_order() -> None:
    core, reader = broker(), Reader()
    publisher, subscriber = core.attached("p"), core.attached("s")
    core.subscribe(subscriber, "high", "quotes", "price > 20")
    core.subscribe(subscriber, "all", "quotes")
    core.subscribe(subscriber, "other", "weather.>")
    reader.read(core.receive(quotes(10, 30, 20, 40), publisher, 0))
    assert reader.bodies == {"high": [30, 40], "all": [10, 30, 20, 40]}
    reader.read(core.unsubscribe(subscriber, "all", 1))
    reader.read(core.receive(quotes(5, 50), publisher, 1))
    assert reader.bodies == {"high": [30, 40, 50], "all": [10, 30, 20, 40]}
    counts = core.statistics()
    assert (counts.accepted, counts.delivered, counts.matched_nobody) == (6, 7, 1)


def test_a_batch_that_gets_its_ids_here_is_known_as_a_run() -> None:
    core = broker()
    publisher = core.attached("p")
    for now in (5, 5, 9, 3):
        batch = quotes(1, 2, 3)
        core.receive(batch, publisher, now)
        head, tail = batch.ids[0].tolist()
        assert batch.run == (head, tail)
        assert batch.ids.tolist() == [[head, tail + row] for row in range(3)]
    assert batch.take([0, 2]).run is None


def test_every_message_gets_an_id_of_its_publisher_and_this_broker() -> None:
    core = broker()
    first, second = core.attached("a"), core.attached("b")
    batches = [quotes(1, 2), quotes(3), quotes(4)]
    for batch, session in zip(batches, (first, second, first), strict=True):
        core.receive(batch, session, 1_000)
    ids = [message.id for batch in batches for message in batch]
    assert ids == [
        MessageId(1, 7, 1_000, 0),
        MessageId(1, 7, 1_000, 1),
        MessageId(2, 7, 1_000, 0),
        MessageId(1, 7, 1_000, 2),
    ]
    assert all(message.source == 7 for batch in batches for message in batch)


def test_a_congested_subscriber_gets_what_waited_when_it_reads_again() -> None:
    core, reader = broker(), Reader()
    publisher, slow, quick = core.attached(""), core.attached(""), core.attached("")
    core.subscribe(slow, "slow", "quotes")
    core.subscribe(quick, "quick", "quotes")
    core.congested(slow)
    for price in range(10):
        reader.read(core.receive(quotes(price), publisher, price))
    assert reader.bodies == {"quick": list(range(10))}
    reader.drain(core, slow)
    assert reader.bodies["slow"] == list(range(10))


def test_a_full_queue_sheds_its_oldest_and_counts_them() -> None:
    core, reader = broker(queue_messages=5), Reader()
    publisher, slow = core.attached(""), core.attached("")
    subscription = core.subscribe(slow, "slow", "quotes")
    core.congested(slow)
    for start in range(0, 12, 3):
        reader.read(core.receive(quotes(start, start + 1, start + 2), publisher, 0))
    assert subscription.waiting.messages == 5
    assert subscription.shed == core.statistics().shed_queue_full == 7
    reader.drain(core, slow)
    assert reader.bodies["slow"] == [7, 8, 9, 10, 11]


def test_a_queue_is_bounded_in_bytes_for_as_long_as_its_subscriber_stalls() -> None:
    core = broker(queue_bytes=20_000)
    publisher, slow = core.attached(""), core.attached("")
    core.subscribe(slow, "slow", "quotes")
    core.congested(slow)
    largest = 0
    for _ in range(200):
        core.receive(Batch.build(("quotes", {}, {}, b"x" * 1_000) for _ in range(7)), publisher, 0)
        largest = max(largest, core.statistics().waiting_bytes_now)
    assert 10_000 < largest <= 20_000
    counts = core.statistics()
    assert counts.delivered + counts.shed_queue_full + counts.waiting_messages_now == counts.accepted == 1_400


def test_one_wanted_row_does_not_keep_a_whole_read_waiting() -> None:
    core = broker()
    publisher, slow = core.attached(""), core.attached("")
    core.subscribe(slow, "slow", "quotes", "price = 1")
    core.congested(slow)
    core.receive(Batch.build(("quotes", {"price": n}, {}, b"x" * 1_000) for n in range(500)), publisher, 0)
    assert core.statistics().waiting_messages_now == 1
    assert core.statistics().waiting_bytes_now < 2_000


def test_a_queue_that_pushes_back_pauses_its_publishers_and_loses_nothing() -> None:
    core, reader = broker(queue_messages=4), Reader()
    one, two, slow = core.attached("1"), core.attached("2"), core.attached("s")
    core.subscribe(slow, "slow", "quotes", policy=OverflowPolicy.PUSH_BACK)
    core.congested(slow)
    reader.read(core.receive(quotes(0, 1, 2), one, 0))
    assert reader.paused == set()
    reader.read(core.receive(quotes(3, 4), one, 0))
    reader.read(core.receive(quotes(5), two, 0))
    assert reader.paused == {one.number, two.number}
    assert core.statistics().paused_publishers_now == 2
    reader.drain(core, slow)
    assert reader.bodies["slow"] == [0, 1, 2, 3, 4, 5]
    assert reader.paused == set()
    assert core.statistics().shed_queue_full == 0


def test_publishers_go_on_when_the_subscriber_that_pushed_back_leaves() -> None:
    core, reader = broker(queue_messages=1), Reader()
    publisher, slow = core.attached("p"), core.attached("s")
    core.subscribe(slow, "slow", "quotes", policy=OverflowPolicy.PUSH_BACK)
    core.congested(slow)
    reader.read(core.receive(quotes(0, 1, 2), publisher, 0))
    assert reader.paused == {publisher.number}
    reader.read(core.detached(slow, 1))
    assert reader.paused == set()
    assert core.statistics().shed_session_closed == 3


def test_a_subscriber_that_asked_for_it_is_disconnected_when_its_queue_is_full() -> None:
    core, reader = broker(queue_messages=2), Reader()
    publisher, slow = core.attached("p"), core.attached("s")
    core.subscribe(slow, "slow", "quotes", policy=OverflowPolicy.DISCONNECT)
    core.congested(slow)
    reader.read(core.receive(quotes(0, 1), publisher, 0))
    assert reader.closed == []
    reader.read(core.receive(quotes(2), publisher, 0))
    assert reader.closed == [(slow.number, "subscription 'slow' reads too slowly; its queue is full")]


@pytest.mark.parametrize(("mode", "left"), [(AckMode.CLIENT, []), (AckMode.INDIVIDUAL, [0, 1])])
def test_acknowledging_the_third_message_settles_what_its_mode_says(mode: AckMode, left: list[int]) -> None:
    core, reader = broker(), Reader()
    publisher, session = core.attached("p"), core.attached("s")
    subscription = core.subscribe(session, "s1", "quotes", ack_mode=mode)
    batch = quotes(0, 1, 2)
    reader.read(core.receive(batch, publisher, 0))
    ids = [message.id for message in batch]
    core.acknowledge(session, "s1", ids[2].head, ids[2].tail, True, 1)
    assert list(subscription.unacknowledged) == [ids[n].head << 64 | ids[n].tail for n in left]
    assert core.statistics().acknowledged == 3 - len(left)
    with pytest.raises(BrokerError, match="does not wait for one"):
        core.acknowledge(session, "s1", ids[2].head, ids[2].tail, True, 1)


def test_a_client_mode_subscription_gets_no_more_than_its_window() -> None:
    core, reader = broker(unacknowledged=3), Reader()
    publisher, session = core.attached("p"), core.attached("s")
    subscription = core.subscribe(session, "s1", "quotes", ack_mode=AckMode.INDIVIDUAL)
    reader.read(core.receive(quotes(*range(8)), publisher, 0))
    assert reader.bodies["s1"] == [0, 1, 2]
    for expected in (4, 5):
        oldest = next(iter(subscription.unacknowledged))
        reader.read(core.acknowledge(session, "s1", oldest >> 64, oldest & (2**64 - 1), False, 1))
        assert len(reader.bodies["s1"]) == expected
    assert core.statistics().refused == 2


def test_the_broker_refuses_what_cannot_be_with_the_reason() -> None:
    core = broker(sessions=2, subscriptions_per_session=1)
    session = core.attached("a")
    core.attached("b")
    with pytest.raises(BrokerError, match="2 sessions, its limit"):
        core.attached("c")
    with pytest.raises(SelectorError):
        core.subscribe(session, "s1", "quotes", "price >")
    with pytest.raises(TopicError):
        core.subscribe(session, "s1", "quotes..x")
    core.subscribe(session, "s1", "quotes")
    with pytest.raises(BrokerError, match="'s1' already"):
        core.subscribe(session, "s1", "quotes")
    with pytest.raises(BrokerError, match="1 subscriptions, the limit"):
        core.subscribe(session, "s2", "quotes")
    with pytest.raises(BrokerError, match="no subscription 's9'"):
        core.unsubscribe(session, "s9", 0)
    assert core.statistics().subscriptions_now == 1


def test_a_policy_narrows_what_is_published_and_refuses_a_subscription() -> None:
    class OnlyEven:
        def may_publish(self, principal: str, batch: Batch) -> Any:
            return [row for row, message in enumerate(batch) if int(message.body) % 2 == 0]

        def may_subscribe(
            self, principal: str, topic: str, selector: Selector | None, queued: bool = False
        ) -> Selector | Refusal | None:
            return Refusal("not your topic") if principal == "stranger" else selector

    core, reader = Broker(1, PublisherNumbers(lambda: 1), policy=OnlyEven()), Reader()
    publisher, friend, stranger = core.attached("p"), core.attached("friend"), core.attached("stranger")
    core.subscribe(friend, "s", "quotes")
    with pytest.raises(BrokerError, match="not your topic"):
        core.subscribe(stranger, "s", "quotes")
    reader.read(core.receive(quotes(1, 2, 3, 4), publisher, 0))
    assert reader.bodies == {"s": [2, 4]}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.integers(0, 9), min_size=1, max_size=8)),
        st.tuples(st.sampled_from(("stall", "read")), st.integers(0, 2)),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(STEPS, st.integers(1, 12), st.integers(1, 5))
def test_every_match_is_delivered_once_in_order_or_shed_and_counted(
    steps: list[tuple[str, Any]], queue: int, turn: int
) -> None:
    core, reader = broker(queue_messages=queue, drain_messages=turn), Reader()
    publisher = core.attached("p")
    readers = [core.attached(f"s{n}") for n in range(3)]
    limits = (3, 6, 10)
    subscriptions = [core.subscribe(s, f"s{n}", "quotes", f"price < {limits[n]}") for n, s in enumerate(readers)]
    wanted: list[list[int]] = [[], [], []]
    serial = itertools.count()
    for step, argument in steps:
        if step == "publish":
            rows = [(price, next(serial)) for price in argument]
            batch = Batch.build(("quotes", {"price": price}, {}, str(number).encode()) for price, number in rows)
            reader.read(core.receive(batch, publisher, 0))
            for n in range(3):
                wanted[n] += [number for price, number in rows if price < limits[n]]
        elif step == "stall":
            core.congested(readers[argument])
        else:
            reader.drain(core, readers[argument])
        assert all(each.waiting.messages <= queue for each in subscriptions)
    for n in range(3):
        reader.drain(core, readers[n])
        got = reader.bodies.get(f"s{n}", [])
        assert got == sorted(set(got))
        assert set(got) <= set(wanted[n])
        assert len(got) + subscriptions[n].shed == len(wanted[n])


class Shed(NoRecorder):
    """A recorder that keeps what was shed and why."""

    def __init__(self) -> None:
        self.shed_rows: list[tuple[str, list[int]]] = []

    def shed(
        self, batch: Batch, rows: NDArray[np.int32] | NDArray[np.int64], subscription: int, reason: str, now: int
    ) -> None:
        self.shed_rows.append((reason, [int(batch.message(row).body) for row in rows.tolist()]))


def expiring(*times: int) -> Batch:
    batch = quotes(*range(len(times)))
    batch.envelopes[:, EXPIRY] = times
    return batch


def test_a_message_whose_time_has_passed_is_shed_as_expired() -> None:
    recorder = Shed()
    core, reader = Broker(1, PublisherNumbers(lambda: 1), recorder=recorder), Reader()
    publisher, session = core.attached("p"), core.attached("s")
    subscription = core.subscribe(session, "s1", "quotes")
    reader.read(core.receive(expiring(0, 100, 101, 99), publisher, 100))
    assert reader.bodies == {"s1": [0, 2]}
    assert recorder.shed_rows == [("expired", [1, 3])]
    assert subscription.expired == core.statistics().shed_expired == 2
    assert core.statistics().delivered == 2


def test_a_message_that_expires_while_it_waits_is_not_delivered() -> None:
    core, reader = broker(), Reader()
    publisher, slow = core.attached("p"), core.attached("s")
    core.subscribe(slow, "slow", "quotes")
    core.congested(slow)
    core.receive(expiring(50, 0, 500), publisher, 10)
    reader.drain(core, slow, now=100)
    assert reader.bodies == {"slow": [1, 2]}
    assert core.statistics().shed_expired == 1
    assert core.statistics().waiting_messages_now == 0


def test_expired_messages_do_not_use_up_the_window_of_a_client_that_acknowledges() -> None:
    core, reader = broker(unacknowledged=2), Reader()
    publisher, session = core.attached("p"), core.attached("s")
    subscription = core.subscribe(session, "s1", "quotes", ack_mode=AckMode.CLIENT)
    core.receive(expiring(0, 0, 50, 50, 50, 50, 0), publisher, 10)
    last = list(subscription.unacknowledged)[-1]
    reader.read(core.acknowledge(session, "s1", last >> 64, last & (2**64 - 1), True, 100))
    assert reader.bodies == {"s1": [6]}


def test_an_acknowledgement_opens_the_whole_window_again() -> None:
    core, reader = broker(unacknowledged=30, drain_messages=5), Reader()
    publisher, session = core.attached("p"), core.attached("s")
    subscription = core.subscribe(session, "s1", "quotes", ack_mode=AckMode.CLIENT)
    core.receive(quotes(*range(60)), publisher, 0)
    last = list(subscription.unacknowledged)[-1]
    reader.read(core.acknowledge(session, "s1", last >> 64, last & (2**64 - 1), True, 1))
    assert reader.bodies == {"s1": list(range(30, 60))}


@pytest.mark.parametrize("to_itself", [True, False])
def test_a_session_that_must_acknowledge_is_closed_rather_than_paused(to_itself: bool) -> None:
    core, reader = broker(queue_messages=2, unacknowledged=1), Reader()
    one, two = core.attached("1"), core.attached("2")
    own = core.subscribe(one, "own", "quotes", ack_mode=AckMode.CLIENT, policy=OverflowPolicy.PUSH_BACK)
    if not to_itself:
        core.unsubscribe(one, "own", 0)
        core.subscribe(one, "own", "other", ack_mode=AckMode.INDIVIDUAL, policy=OverflowPolicy.PUSH_BACK)
        own = core.subscribe(two, "twos", "quotes", ack_mode=AckMode.CLIENT, policy=OverflowPolicy.PUSH_BACK)
    reader.read(core.receive(quotes(*range(4)), one, 0))
    assert reader.paused == set()
    assert [number for number, _ in reader.closed] == [one.number]
    assert "publish over another connection" in reader.closed[0][1]
    assert own.waiting.messages == 3
    reader.read(core.unsubscribe(one, "own", 0))
    if not to_itself:
        reader.read(core.receive(quotes(5), one, 0))
        assert reader.paused == {one.number}


def test_a_paused_publisher_that_leaves_is_forgotten() -> None:
    core, reader = broker(queue_messages=1), Reader()
    publisher, slow = core.attached("p"), core.attached("s")
    subscription = core.subscribe(slow, "slow", "quotes", policy=OverflowPolicy.PUSH_BACK)
    core.congested(slow)
    reader.read(core.receive(quotes(0, 1, 2), publisher, 0))
    assert core.take_overflowed() == {subscription}
    assert core.take_overflowed() == set()
    reader.read(core.detached(publisher, 1))
    assert core.statistics().paused_publishers_now == 0
    outbox = core.drained(slow, 2)
    assert outbox.resumes == []
    assert [len(delivery.rows) for delivery in outbox.deliveries] == [3]
    assert [session.number for session in core.sessions()] == [slow.number]


def test_a_publisher_stays_paused_until_the_bytes_that_wait_are_half_gone_too() -> None:
    core, reader = broker(queue_bytes=10_000, drain_messages=1), Reader()
    publisher, slow = core.attached("p"), core.attached("s")
    core.subscribe(slow, "slow", "quotes", policy=OverflowPolicy.PUSH_BACK)
    core.congested(slow)
    for _ in range(6):
        reader.read(core.receive(Batch.build([("quotes", {}, {}, b"0" * 2_000)]), publisher, 0))
    assert reader.paused == {publisher.number}
    paused_for = 0
    while reader.paused:
        reader.read(core.drained(slow, 1))
        paused_for += 1
    assert paused_for == 4


@pytest.mark.parametrize(
    "limits", [{"session_queue_messages": 25}, {"session_queue_bytes": 25 * 60}], ids=["messages", "bytes"]
)
def test_all_queues_of_a_session_together_are_bounded_and_other_sessions_keep_theirs(limits: dict[str, int]) -> None:
    core, reader = broker(queue_messages=10, **limits), Reader()
    publisher, greedy, modest = (core.attached(name) for name in ("p", "greedy", "modest"))
    for number in range(50):
        core.subscribe(greedy, str(number), "quotes")
    core.subscribe(modest, "one", "quotes")
    for session in (greedy, modest):
        core.congested(session)
    for price in range(20):
        core.receive(quotes(price), publisher, 0)
        waiting = [each.waiting for each in greedy.subscriptions.values()]
        assert greedy.waiting.messages == sum(each.messages for each in waiting)
        assert greedy.waiting.bytes == sum(each.bytes for each in waiting)
        assert greedy.waiting.messages <= limits.get("session_queue_messages", 50)
        assert greedy.waiting.bytes <= limits.get("session_queue_bytes", 2**40)
    assert greedy.waiting.messages > 10
    assert modest.waiting.messages == 10
    reader.drain(core, modest)
    assert reader.bodies["one"] == list(range(10, 20))
    reader.drain(core, greedy)
    assert (greedy.waiting.messages, greedy.waiting.bytes) == (0, 0)
    counts = core.statistics()
    assert counts.delivered + counts.shed_queue_full == 51 * 20
