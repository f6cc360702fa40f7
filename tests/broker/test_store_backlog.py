"""Messages that come over links while the store is full stay with the neighbours: none of them is lost."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from postroad.broker import AckMode, Broker, Limits, Outbox, PublisherNumbers, Relay, make_strategy
from postroad.messages import Batch
from postroad.messages.columns import HOP_LIMIT
from postroad.routing import Destinations
from postroad.store import Log, SimulatedDisk, StoreSettings, carry_out
from postroad.tracking import ExactRecorder

if TYPE_CHECKING:
    from postroad.broker import Subscription
    from postroad.broker.consignments import Consignment

NEIGHBOUR = 9
BODY_BYTES = 2_000


class LinkedBroker:
    """A broker with a small store and a durable subscription, and a neighbour that hands it one message a frame."""

    def __init__(self, **settings: Any) -> None:
        blocks = itertools.count(1, 1_000)
        self.core = Broker(1, PublisherNumbers(lambda: next(blocks)), Limits(), recorder=ExactRecorder(1, 0))
        small = StoreSettings(**{"max_bytes": 60_000, "segment_bytes": 4_096, **settings})
        self.log, self.disk = Log(small), SimulatedDisk()
        self.relay = Relay(self.core, make_strategy("flood", 1, 0))
        self.core.open_store(self.log, np.empty((0, 2), np.uint64), 0)
        self.relay.link_up(NEIGHBOUR, 1, 0)
        self.reader = self.core.attached("reader")
        self.got: list[tuple[int, tuple[int, int]]] = []
        self.settled: list[int] = []
        self.now = 0

    def subscribe(self, name: str = "n") -> Subscription:
        assert self.core.durables is not None
        found = self.core.durables.subscribe(
            self.reader, name, ("c", name), "a", "", AckMode.INDIVIDUAL, self.now, Outbox()
        )
        self.work()
        return found

    def arrive(self, number: int, custody: bool = True, hop_limit: int = 16) -> Consignment | None:
        batch = Batch.build([("a", {}, (), b"%d".ljust(BODY_BYTES) % number)])
        batch.envelopes[:, HOP_LIMIT] = hop_limit
        batch.ids[:] = [(NEIGHBOUR << 32 | NEIGHBOUR, number << 16)]
        frame = self.relay.consignments.take(NEIGHBOUR, 1, number) if custody else None
        self.note(self.relay.receive(batch, Destinations.nowhere(1), NEIGHBOUR, self.now, frame))
        return frame

    def note(self, outbox: Outbox) -> None:
        for each in outbox.deliveries:
            found = [each.batch.message(row) for row in each.rows.tolist()]
            self.got += [(int(one.body), (one.id.head, one.id.tail)) for one in found]

    def work(self) -> None:
        """Until the store comes to rest."""
        for _ in range(100):
            commit = self.log.take_commit(self.now)
            if commit is not None:
                carry_out(commit, self.disk)
                self.log.committed(commit)
            reads = self.log.take_reads()
            for read in reads:
                self.log.loaded(read, self.disk.read(read.segment, read.start, read.length))
            self.note(self.core.stored(self.now))
            self.settled += [each.number for each in self.relay.consignments.take_settled()]
            if commit is None and not reads:
                return
        raise AssertionError("the store never comes to rest")

    def acknowledge(self, key: str = "n") -> list[int]:
        """The client answers for all that it has; returns the bodies."""
        got, self.got = self.got, []
        for _, (head, tail) in got:
            self.note(self.core.acknowledge(self.reader, key, head, tail, True, self.now))
        self.work()
        return [body for body, _ in got]

    @property
    def shed(self) -> int:
        return self.core.statistics().shed_stored


@pytest.fixture(autouse=True)
def _small_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.broker.stored_queues.RESERVE_BYTES", 4_000)


def test_frames_that_the_store_has_no_room_for_stay_open_until_it_has_and_come_in_order() -> None:
    broker = LinkedBroker()
    broker.subscribe()
    for number in range(1, 61):
        broker.arrive(number)
        broker.work()
    waiting = broker.core.statistics().unstored_messages_now
    assert 20 < waiting < 50
    assert broker.settled == list(range(1, 61 - waiting))
    got: list[int] = []
    for _ in range(60):
        got += broker.acknowledge()
    assert got == list(range(1, 61))
    assert sorted(broker.settled) == list(range(1, 61))
    assert (broker.core.statistics().unstored_messages_now, broker.shed) == (0, 0)


def test_without_custody_nobody_keeps_what_does_not_fit_and_it_is_counted_and_on_record() -> None:
    broker = LinkedBroker()
    broker.subscribe()
    for number in range(1, 61):
        broker.arrive(number, custody=False)
        broker.work()
    got: list[int] = []
    for _ in range(60):
        got += broker.acknowledge()
    assert broker.shed == 60 - len(got) > 0
    assert broker.core.statistics().unstored_messages_now == 0


def test_message_that_a_neighbour_sent_without_a_hop_left_is_stored_like_others() -> None:
    broker = LinkedBroker()
    broker.subscribe()
    broker.arrive(1, hop_limit=0)
    broker.work()
    assert broker.acknowledge() == [1]
    assert broker.settled == [1]


def test_subscription_that_ends_meanwhile_gives_up_its_part_and_the_frame_is_settled() -> None:
    broker = LinkedBroker()
    one, other = broker.subscribe("n"), broker.subscribe("m")
    broker.core.congested(broker.reader)
    for number in range(1, 41):
        broker.arrive(number)
        broker.work()
    waiting = broker.core.statistics().unstored_messages_now
    assert waiting
    durables = broker.core.durables
    assert durables is not None
    for each in (one, other):
        durables.delete(each, "unsubscribed", Outbox(), broker.now)
    broker.work()
    assert broker.core.statistics().unstored_messages_now == 0
    assert sorted(broker.settled) == list(range(1, 41))
    assert broker.shed == 80


def test_subscription_over_its_own_share_drops_its_oldest_and_keeps_no_link_waiting() -> None:
    broker = LinkedBroker(max_bytes=1_000_000, subscription_bytes=20_000)
    broker.subscribe()
    broker.core.congested(broker.reader)
    for number in range(1, 41):
        broker.arrive(number)
        broker.work()
    assert broker.settled == list(range(1, 41))
    assert broker.shed > 0
