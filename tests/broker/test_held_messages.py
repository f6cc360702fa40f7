"""Messages that wait for a route: how long, how many, and what becomes of their consignments."""

from __future__ import annotations

import numpy as np
import pytest

from postroad.broker import Broker, PublisherNumbers
from postroad.broker import held_messages as module
from postroad.broker.consignments import Consignments
from postroad.broker.held_messages import HeldMessages
from postroad.messages import Batch, Draft
from postroad.routing import Destinations, Parcel
from tests.broker.way_recorder import WayRecorder


def held() -> tuple[HeldMessages, WayRecorder]:
    recorder = WayRecorder()
    return HeldMessages(Broker(1, PublisherNumbers(lambda: 1), recorder=recorder)), recorder


def parcel(rows: int) -> tuple[Batch, Parcel]:
    batch = Batch.build([Draft("t", {}, (), b"x" * 100) for _ in range(rows)])
    return batch, Parcel(2, np.arange(rows), Destinations.nowhere(rows))


def test_rows_are_given_up_when_their_time_is_over_oldest_first() -> None:
    waiting, recorder = held()
    waiting.add(*parcel(3), until=100, consignment=None, now=0)
    waiting.add(*parcel(2), until=200, consignment=None, now=0)
    waiting.expire(99)
    assert (waiting.messages, waiting.unreachable, recorder.seen) == (5, 0, [("held", -1, 3), ("held", -2, 2)])
    waiting.expire(100)
    assert (waiting.messages, waiting.unreachable, recorder.seen[2:]) == (2, 3, [("unreachable", 0, 3)])
    waiting.expire(200)
    assert (waiting.messages, waiting.bytes, waiting.unreachable) == (0, 0, 5)


@pytest.mark.parametrize(("limit", "value"), [("MAX_HELD", 4), ("MAX_HELD_BYTES", 450)])
def test_oldest_rows_make_room_beyond_each_limit(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(module, limit, value)
    waiting, recorder = held()
    waiting.add(*parcel(3), until=100, consignment=None, now=0)
    assert recorder.seen == [("held", -1, 3)]
    waiting.add(*parcel(2), until=100, consignment=None, now=0)
    assert (waiting.messages, waiting.unreachable, recorder.seen[-1]) == (2, 3, ("unreachable", 0, 3))


def test_consignment_stays_open_while_its_rows_wait_for_a_route() -> None:
    waiting, _ = held()
    book = Consignments()
    given_up, rerouted = book.take(2, 1, 1), book.take(2, 1, 2)
    for each, until in ((given_up, 100), (rerouted, 200)):
        waiting.add(*parcel(1), until=until, consignment=each, now=0)
        each.release()
    assert book.take_settled() == []
    waiting.expire(100)
    assert book.take_settled() == [given_up]
    (rows,) = waiting.take_all()
    assert (waiting.messages, waiting.bytes, rows.consignment) == (0, 0, rerouted)
    rerouted.release()
    assert book.take_settled() == [rerouted]


def test_waiting_rows_do_not_keep_the_read_alive_that_they_arrived_in() -> None:
    waiting, _ = held()
    batch, _ = parcel(1_000)
    waiting.add(batch, Parcel(2, np.array([7]), Destinations.nowhere(1)), until=100, consignment=None, now=0)
    (rows,) = waiting.take_all()
    assert rows.batch.buffer.nbytes < batch.buffer.nbytes // 100
    assert rows.batch.message(0).id == batch.message(7).id
