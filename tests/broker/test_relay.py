"""A broker between two others: links that break, fill up and return messages, and the publishers that wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker import Broker, PublisherNumbers, Relay, make_strategy
from postroad.broker.held_messages import HELD_MS
from postroad.matching.encoding import encode_exact
from postroad.messages import Batch, Draft, MessageId
from postroad.messages.columns import FLAGS, QUEUED
from postroad.routing import Destinations, Interest, LinkRecord
from postroad.routing.envelopes import entering
from postroad.tracking import ExactRecorder, Reconstruction, Verdict
from postroad.tracking.reasons import Detour
from tests.broker.way_recorder import WayRecorder

if TYPE_CHECKING:
    from postroad.broker import Outbox, Session
    from postroad.tracking import Findings

NOW = 1_000


class Middle:
    """Broker 1 with links to brokers 2 and 3; broker 4 is reached over both, and wants everything."""

    def __init__(self, order_wait_ms: int = 0) -> None:
        self.events = WayRecorder()
        self.core = Broker(1, PublisherNumbers(lambda: 1), recorder=self.events)
        self.relay = Relay(self.core, make_strategy("drp", 1, NOW), order_wait_ms=order_wait_ms)
        self.publisher = self.core.attached("publisher")
        for number in (2, 3):
            self.relay.link_up(number, 1, NOW)
        for number, links in ((2, ((1, 1), (4, 1))), (3, ((1, 1), (4, 1))), (4, ((2, 1), (3, 1)))):
            self.relay.control(LinkRecord(number, NOW, 1, 0, links), 2 if number != 3 else 3, NOW)
        self.relay.control(Interest(4, NOW, 1, encode_exact([(">", ())])), 2, NOW)

    def publish(self, count: int = 2, session: Session | None = None, now: int = NOW) -> Outbox:
        batch = Batch.build([Draft("t", {}, (), b"body") for _ in range(count)])
        return self.core.receive(batch, session or self.publisher, now)


def links_of(outbox: Outbox) -> list[tuple[int, int]]:
    return [(sending.link, len(sending.rows)) for sending in outbox.parcels]


def test_messages_take_the_other_link_when_one_is_gone_and_wait_when_both_are() -> None:
    middle = Middle()
    assert links_of(middle.publish()) == [(2, 2)]
    middle.relay.link_down(2, NOW)
    assert links_of(middle.publish()) == [(3, 2)]
    middle.relay.link_down(3, NOW)
    assert links_of(middle.publish(3)) == []
    assert middle.relay.statistics().held_now == 3
    assert middle.events.seen == [(str(Detour.HELD), -1, 3)]
    returned = middle.relay.link_up(3, 1, NOW + 1)
    assert links_of(returned) == [(3, 3)]
    assert middle.events.seen[1:] == [(str(Detour.SENT_ON), -1, 3)]
    assert middle.relay.statistics().held_now == 0


def test_message_that_waits_for_two_brokers_waits_on_when_there_is_a_route_to_one_of_them() -> None:
    """Otherwise a trace takes it for settled here, and a crash after it went on would hide where it went."""
    recorder = ExactRecorder(1, NOW, 60_000)
    core = Broker(1, PublisherNumbers(lambda: 1), recorder=recorder)
    relay = Relay(core, make_strategy("drp", 1, NOW))
    for number in (2, 3):
        relay.link_up(number, 1, NOW)
        relay.control(LinkRecord(number, NOW, 1, 0, ((1, 1),)), number, NOW)
        relay.control(Interest(number, NOW, 1, encode_exact([(">", ())])), number, NOW)
    relay.link_down(3, NOW)
    outbox = core.receive(Batch.build([Draft("t", {}, (), b"body")]), core.attached("publisher"), NOW)
    (sending,) = outbox.parcels
    assert (sending.link, sending.destinations.numbers(0)) == (2, [2])
    relay.sent(sending, 1, 1, NOW)
    message = sending.batch.message(0).id
    # The link gives it back: now it waits for both, since different times.
    relay.link_down(2, NOW + 1)
    assert links_of(relay.returned(sending.batch, sending.destinations, NOW + 1, link=2)) == []
    assert links_of(relay.link_up(3, 1, NOW + 2)) == [(3, 1)]
    assert relay.statistics().held_now == 1
    found = recorder.findings(message, NOW + 2)
    assert found.waits
    assert _verdict(found) is not Verdict.MATCHED_NOBODY
    assert links_of(relay.link_up(2, 1, NOW + 3)) == [(2, 1)]
    assert relay.statistics().held_now == 0
    assert not recorder.findings(message, NOW + 3).waits


def _verdict(found: Findings) -> Verdict:
    """With the broker's record alone, all of it."""
    question = Reconstruction(MessageId(1, 1, NOW, 0))
    question.tell(1, found._replace(gaps=(), ends=()))
    return question.journey().verdict


def test_messages_without_a_route_are_given_up_and_recorded() -> None:
    middle = Middle()
    for link in (2, 3):
        middle.relay.link_down(link, NOW)
    middle.publish(3)
    middle.relay.tick(NOW + HELD_MS - 1)
    assert middle.relay.statistics().unreachable == 0
    middle.relay.tick(NOW + HELD_MS)
    counts = middle.relay.statistics()
    assert (counts.unreachable, counts.held_now, counts.held_bytes_now) == (3, 0, 0)
    assert middle.events.seen[-1] == ("unreachable", 0, 3)


def test_rows_that_do_not_fit_into_a_link_are_shed_and_recorded() -> None:
    middle = Middle()
    (sending,) = middle.publish(5).parcels
    middle.relay.sent(sending, 3, 1, NOW)
    assert middle.events.seen == [("relayed", 2, 3), ("link full", 2, 2)]
    assert middle.relay.statistics().shed_link_full == 2


def test_what_a_lost_link_returns_takes_another_route_marked_as_perhaps_sent_before() -> None:
    middle = Middle()
    (sending,) = middle.publish(2).parcels
    middle.relay.sent(sending, 2, 1, NOW)
    middle.relay.link_down(2, NOW + 1)
    rows = sending.batch.take(sending.rows)
    outbox = middle.relay.returned(rows, sending.destinations, NOW + 1, link=2)
    (again,) = outbox.parcels
    assert (again.link, len(again.rows), again.returned) == (3, 2, True)
    assert middle.events.seen[1:] == [(str(Detour.RETURNED), 2, 2)]


def test_publisher_waits_until_every_full_link_has_room() -> None:
    middle = Middle()
    number = middle.publisher.number
    assert middle.relay.link_full(2, number).pauses == [number]
    assert middle.relay.link_full(2, number).pauses == []
    assert middle.relay.link_full(3, number).pauses == []
    assert middle.relay.link_free(2).resumes == []
    assert middle.relay.link_free(3).resumes == [number]
    assert middle.relay.link_full(2, 999).pauses == []


def test_rows_that_may_be_early_wait_for_order_until_the_broker_leaves() -> None:
    middle = Middle(order_wait_ms=5_000)
    middle.core.subscribe(middle.core.attached("reader"), "s", "t")
    origin = Broker(4, PublisherNumbers(lambda: 7))
    batch = Batch.build([Draft("t"), Draft("t")])
    origin.receive(batch, origin.attached("publisher"), NOW)
    arriving = middle.relay.receive(entering(batch, 4, 4), Destinations.of([[1], [1]]), 2, NOW)
    assert arriving.deliveries == []
    assert middle.relay.statistics().order_held_now == 2
    leaving = middle.relay.leave(NOW + 1)
    assert [len(delivery.rows) for delivery in leaving.deliveries] == [2]
    assert middle.relay.statistics().order_held_now == 0


def test_message_for_a_queue_that_arrives_over_a_link_is_dropped() -> None:
    middle = Middle()
    middle.core.subscribe(middle.core.attached("reader"), "s", ">")
    origin = Broker(4, PublisherNumbers(lambda: 7))
    batch = Batch.build([Draft("t"), Draft("t")])
    origin.receive(batch, origin.attached("publisher"), NOW)
    batch.envelopes[0, FLAGS] |= QUEUED
    arriving = middle.relay.receive(entering(batch, 4, 4), Destinations.of([[1], [1]]), 2, NOW)
    assert [delivery.batch.ids[delivery.rows].tolist() for delivery in arriving.deliveries] == [[batch.ids[1].tolist()]]
    assert middle.events.seen == [("queue not here", 2, 1)]
