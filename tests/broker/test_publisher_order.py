"""The order of publishers against a slow twin written from the rules."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.broker import Broker, Limits, PublisherNumbers, Relay, make_strategy
from postroad.broker import publisher_order as module
from postroad.broker.consignments import Consignments
from postroad.broker.publisher_order import PublisherOrder
from postroad.messages import Batch, Draft, MessageId
from postroad.routing.destinations import Destinations
from postroad.tracking import ExactRecorder

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

WAIT_MS = 100


class One(NamedTuple):
    """A row: publisher, and its place in what the publisher sent."""

    publisher: int
    place: int


def batch_of(rows: Iterable[One]) -> Batch:
    return Batch.build([Draft("a", id=MessageId(one.publisher, 7, one.place, 0)) for one in rows])


def rows_of(batch: Batch) -> list[One]:
    return [One(message.id.publisher, message.id.time) for message in batch]


class Twin:
    """The rules, row by row."""

    def __init__(self) -> None:
        self.last: dict[int, int] = {}
        self.waiting: dict[int, dict[int, tuple[bool, int]]] = {}  # publisher -> place -> marked, until when

    def take(self, rows: list[One], marks: list[bool], now: int) -> tuple[list[One], list[One]]:
        passing, late = [], []
        for one, mark in zip(rows, marks, strict=True):
            mine = self.waiting.setdefault(one.publisher, {})
            if one.place < self.last.get(one.publisher, 0):
                passing.append(one)
                late.append(one)
            elif mark or any(place < one.place for place, (marked, _) in mine.items() if marked):
                mine[one.place] = (mark, now + WAIT_MS)
            else:
                passing.append(one)
                self.last[one.publisher] = one.place
        return passing, late

    def ids(self) -> list[One]:
        return [One(publisher, place) for publisher, mine in self.waiting.items() for place in mine]

    def release(self, now: int) -> list[One]:
        gone = []
        for publisher, mine in sorted(self.waiting.items()):
            enough = max((place for place, (_, until) in mine.items() if until <= now), default=0)
            for place in sorted(mine) if enough else ():
                if place > enough and mine[place][0]:
                    break
                gone.append(One(publisher, place))
                del mine[place]
                self.last[publisher] = place
        return gone


def disordered(draw: random.Random, publishers: int, count: int) -> list[list[tuple[One, bool]]]:
    """Batches of rows that came over several ways; those that may have overtaken others are marked, and some others."""
    rows = [One(publisher, place) for place in range(1, count + 1) for publisher in range(1, publishers + 1)]
    delays = {one: draw.choice((0, 0, 0, draw.randrange(60))) for one in rows}
    rows.sort(key=lambda one: one.place + delays[one])
    batches: list[list[tuple[One, bool]]] = []
    while rows:
        size = draw.randrange(1, 9)
        batches.append([(one, draw.random() < 0.5) for one in rows[:size]])
        rows = rows[size:]
    return batches


@settings(max_examples=80)
@given(seed=st.integers(0, 100_000), publishers=st.integers(1, 6), count=st.integers(1, 60))
def test_rows_go_on_as_the_rules_say_and_each_once(seed: int, publishers: int, count: int) -> None:
    draw = random.Random(seed)
    order, twin, book, now = PublisherOrder(WAIT_MS), Twin(), Consignments(), 1_000
    handed: list[One] = []
    told: set[One] = set()
    arrived: dict[One, int] = {}
    frames: list[Any] = []

    def release() -> None:
        released, expected = order.release(now), twin.release(now)
        assert sorted(rows_of(released.batch) if released else []) == expected
        if released:
            handed.extend(rows_of(released.batch))
            joint = book.joined(released.consignments)
            joint.release()
        for one in twin.ids():
            assert now - arrived[one] <= WAIT_MS

    for batch in disordered(draw, publishers, count):
        rows, marked = [one for one, _ in batch], [mark for _, mark in batch]
        arrived.update(dict.fromkeys(rows, now))
        frame = book.take(2, 1, len(frames) + 1)
        frames.append(frame)
        passing, late = order.take(batch_of(rows), np.array(marked), now, frame)
        frame.release()
        expected = twin.take(rows, marked, now)
        assert ([rows[at] for at in passing], [rows[at] for at in late]) == expected
        handed += expected[0]
        told |= set(expected[1])
        assert order.statistics().waiting_now == len(arrived) - len(handed)
        now += draw.randrange(30)
        release()
    now += 2 * WAIT_MS
    release()
    assert sorted(handed) == sorted(arrived)
    assert len(book.take_settled()) == len(frames)
    assert order.statistics()[2:] == (0, 0)
    # Whatever came: what is not said to be late is in order.
    for publisher in range(1, publishers + 1):
        places = [one.place for one in handed if one.publisher == publisher and one not in told]
        assert places == sorted(places)


def test_rows_that_nobody_overtook_never_wait() -> None:
    order = PublisherOrder(WAIT_MS)
    for place in range(1, 50):
        passing, late = order.take(batch_of([One(1, place), One(2, place)]), np.zeros(2, np.bool_), place, None)
        assert (passing.tolist(), late.tolist()) == ([0, 1], [])
    assert order.release(10**6) is None


def test_more_than_may_wait_goes_at_once_and_what_then_comes_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    order = PublisherOrder(WAIT_MS)
    rows = [One(1, place) for place in (7, 5, 6, 8)]
    assert order.take(batch_of(rows), np.ones(4, np.bool_), 0, None)[0].tolist() == []
    assert order.full
    released = order.release(0, everything=True)
    assert released is not None
    assert rows_of(released.batch) == sorted(rows)
    assert [rows.tolist() for rows in order.take(batch_of([One(1, 4)]), np.ones(1, np.bool_), 1, None)] == [[0], [0]]
    assert order.statistics() == (1, 4, 0, 0)


def test_publishers_beyond_the_bound_are_forgotten_and_then_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PUBLISHERS", 1_024)
    order = PublisherOrder(WAIT_MS)
    none = np.zeros(1_000, np.bool_)
    for first in range(1, 5_000, 1_000):
        rows = [One(publisher, 10 * publisher) for publisher in range(first, first + 1_000)]
        passing, late = order.take(batch_of(rows), none, 0, None)
        assert (len(passing), len(late)) == (1_000, 0)
    # The first was forgotten, with all below it; the last is known.
    (_, early), (_, right) = (order.take(batch_of([one]), none[:1], 0, None) for one in (One(1, 9), One(5_000, 50_001)))
    assert (len(early), len(right)) == (1, 0)


def test_publishers_with_rows_that_wait_are_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PUBLISHERS", 1_024)
    order = PublisherOrder(WAIT_MS)
    rows = [One(publisher, 1) for publisher in range(1, 3_001)]
    assert len(order.take(batch_of(rows), np.ones(3_000, np.bool_), 0, None)[0]) == 0
    released = order.release(WAIT_MS)
    assert released is not None
    assert rows_of(released.batch) == rows


def test_rows_that_are_kept_back_are_on_record_as_waiting_until_they_go() -> None:
    """A crash while a message is kept back must not leave one that came, and nobody wanted."""
    recorder, blocks = ExactRecorder(7, 0), itertools.count(1, 1_000)
    core = Broker(7, PublisherNumbers(lambda: next(blocks)), Limits(), recorder=recorder)
    relay = Relay(core, make_strategy("flood", 7, 0), order_wait_ms=WAIT_MS)
    relay.link_up(9, 1, 0)  # ways changed: what comes for a while may have overtaken something
    core.subscribe(core.attached("s"), "s", "t", "")
    batch = Batch.build([("t", {}, {}, b"body")])
    batch.ids[:] = [(9 << 32 | 9, 1_000 << 16)]
    relay.receive(batch, Destinations.nowhere(1), 9, 1)
    one = MessageId.of(*batch.ids[0].tolist())
    found = recorder.findings(one, 1)
    assert not found.delivered
    assert found.waits
    outbox = relay.tick(2 * WAIT_MS)
    assert [delivery.subscription.key for delivery in outbox.deliveries] == ["s"]
    assert not recorder.findings(one, 2 * WAIT_MS).waits
