"""Queues without sockets: a random crowd against a slow twin, and the pieces they are made of."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.broker import AckMode, Broker, Limits, PublisherNumbers, Relay, make_strategy
from postroad.broker.consumers import fair_shares
from postroad.messages import Batch, MessageId
from postroad.messages.columns import FLAGS, QUEUED
from postroad.routing.destinations import Destinations
from postroad.store import StoreSettings
from postroad.tracking import ExactRecorder
from tests.broker.queue_oracle import Crowd

SEEDS = range(300) if os.environ.get("POSTROAD_THOROUGH") else range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_queue_does_what_its_slow_twin_does(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(120):
        crowd.act()
    crowd.end()
    assert crowd.delivered > 20


@given(st.lists(st.integers(0, 20), max_size=6), st.integers(0, 60))
def test_shares_are_as_even_as_the_rooms_let_them_be(rooms: list[int], count: int) -> None:
    shares = fair_shares(rooms, count)
    assert sum(shares) == min(count, sum(rooms))
    assert all(share <= room for share, room in zip(shares, rooms, strict=True))
    # Who has room left has got no less than anybody else, but for what does not divide.
    for share, room in zip(shares, rooms, strict=True):
        assert share == room or share >= max(shares) - 1


def test_publisher_that_cannot_be_paused_is_refused_when_a_queue_is_full() -> None:
    crowd = Crowd(1)
    crowd.log.settings = StoreSettings(subscription_bytes=1)
    crowd.send()
    crowd.settle()
    batch = Batch.build([("work", {})])
    batch.envelopes[:, FLAGS] |= QUEUED
    # One that does nothing else waits.
    assert crowd.core.receive(batch, crowd.writer, 0, queued=True).pauses == [crowd.writer.number]
    # One that acknowledges over the same connection would wait for itself: its message is refused, none is dropped.
    both = crowd.core.attached("both")
    crowd.core.subscribe(both, "k", "a", ack_mode=AckMode.CLIENT)
    outbox = crowd.core.receive(batch, both, 0, queued=True)
    assert "the queue 'work' is full" in outbox.unstorable
    crowd.settle()
    assert crowd.core.statistics().shed_stored == 0


def test_rows_for_queues_that_come_over_a_link_reach_no_topic_and_are_on_record() -> None:
    recorder = ExactRecorder(7, 0)
    core = Broker(7, PublisherNumbers(lambda: 1), Limits(), recorder=recorder)
    relay = Relay(core, make_strategy("flood", 7, 0))
    relay.link_up(9, 1, 0)
    core.subscribe(core.attached("s"), "s", ">", "")
    batch = Batch.build([("t", {}, {}, b"to a topic"), ("t", {}, {}, b"to a queue")])
    batch.ids[:] = [(9 << 32 | 9, 1_000 << 16), (9 << 32 | 9, 1_001 << 16)]
    batch.envelopes[1, FLAGS] |= QUEUED
    (delivery,) = relay.receive(batch, Destinations.nowhere(2), 9, 1).deliveries
    assert [delivery.batch.message(row).body for row in delivery.rows.tolist()] == [b"to a topic"]
    found = recorder.findings(MessageId.of(*batch.ids[1].tolist()), 1)
    assert [drop.reason for drop in found.dropped] == ["queue not here"]
