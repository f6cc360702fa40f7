"""A trace tells what became of a message that was sent at one broker to a queue of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.broker import QueueSettings
from postroad.broker.id_batches import ids_alone
from postroad.messages import MessageId
from postroad.tracking import Verdict
from postroad.tracking.reasons import Detour
from tests.broker.queue_network import QueueNetwork
from tests.broker.queue_records import Recorders, traced

if TYPE_CHECKING:
    from postroad.tracking import Journey

SETTINGS = QueueSettings(max_deliveries=3, redelivery_ms=5_000, max_redelivery_ms=5_000, prefetch=5)


class TracedNetwork(QueueNetwork):
    """A home, 1, and others where messages are sent and consumed."""

    def __init__(self) -> None:
        self.recorders = Recorders()
        super().__init__(count=3, settings=SETTINGS, recorder=self.recorders)

    def trace(self, body: int = 1) -> Journey:
        return traced(self.recorders, MessageId.of(*self.ids[body]), self.now)


def reasons(journey: Journey, broker: int) -> list[str]:
    return [drop.reason for at, drop in journey.dropped if at == broker]


def test_trace_tells_how_long_a_message_waited_for_the_home_of_its_queue_and_then_in_it() -> None:
    network = TracedNetwork()
    network.crash(1)
    sent = network.now
    network.send(2)
    network.settle(20)
    waiting = network.trace()
    assert (waiting.verdict, reasons(waiting, 2)) == (Verdict.WAITING, ["held"])
    assert waiting.dropped[0][1].at == sent
    network.start(1)
    network.settle(5)
    stored = network.trace()
    assert (stored.verdict, [stop.broker for stop in stored.stops]) == (Verdict.WAITING, [2, 1])
    (held, later) = (drop for at, drop in stored.dropped if at == 2)
    assert (held.reason, later.reason) == ("held", "sent on")
    assert later.at - held.at > 15_000
    assert len(stored.stops[1].findings.queued) == 1


def test_trace_tells_each_redelivery_and_why_and_where_a_message_was_dead_lettered_and_who_purged_it() -> None:
    network = TracedNetwork()
    network.send(2)
    network.settle(1)
    reader = network.consume(2)
    network.settle(1)
    for delivery in (1, 2):
        assert network.trace().verdict is Verdict.DELIVERED
        network.answer(reader, 1, positive=False)
        network.settle(1)
        # It waits in its queue again, though it was delivered before.
        assert network.trace().verdict is Verdict.WAITING
        assert reasons(network.trace(), 1).count("comes again") == delivery
        network.settle(6)
        assert reasons(network.trace(), 1).count("delivered again") == delivery
    network.answer(reader, 1, positive=False)
    network.settle(1)
    assert "dead-lettered to DLQ.work: refused, delivery 3" in reasons(network.trace(), 1)
    queues = network.brokers[1].core.queues
    assert queues is not None
    letters = queues.find("DLQ.work")
    assert letters is not None
    assert queues.purge(letters, "purged by carla") == 1
    network.settle(1)
    journey = network.trace()
    assert (journey.verdict, journey.certainty, journey.lost) == (Verdict.SHED, 1.0, ())
    assert reasons(journey, 1)[-1] == "purged by carla"


def test_message_that_was_refused_and_then_acknowledged_does_not_wait() -> None:
    network = TracedNetwork()
    network.send(2)
    network.settle(1)
    reader = network.consume(2)
    network.settle(1)
    network.answer(reader, 1, positive=False)
    network.settle(7)
    network.answer(reader, 1)
    network.settle(1)
    journey = network.trace()
    assert (journey.verdict, journey.certainty) == (Verdict.ACKNOWLEDGED, 1.0)


def test_message_under_way_to_its_home_waits_where_it_is_when_that_broker_stops() -> None:
    network = TracedNetwork()
    network.send(2)
    network.settle(1)
    network.cut.add(frozenset((1, 2)))
    network.send(2)
    network.settle(1)
    # It was sent, and nobody knows yet that it does not arrive.
    assert (network.trace(2).verdict, network.trace(2).lost) == (Verdict.WAITING, ())
    network.stop(2)
    journey = network.trace(2)
    assert (journey.verdict, journey.lost) == (Verdict.WAITING, ())
    assert reasons(journey, 2) == ["held", "returned"]
    network.cut.clear()
    network.start(2)
    network.settle(5)
    journey = network.trace(2)
    assert (journey.verdict, [stop.broker for stop in journey.stops]) == (Verdict.WAITING, [2, 1])
    assert reasons(journey, 2)[-1] == "sent on"


def test_message_under_way_to_a_consumer_is_in_its_queue_when_the_home_stops() -> None:
    network = TracedNetwork()
    network.consume(2)
    network.consume(3)
    network.settle(1)
    network.cut |= {frozenset((1, 2)), frozenset((1, 3))}
    network.send(1, 2)
    network.settle(1)
    network.stop(1)
    network.wires.clear()
    for body in (1, 2):
        journey = network.trace(body)
        assert (journey.verdict, journey.lost) == (Verdict.WAITING, ())
        # One consumer did not get it, and the home did not try the other one.
        assert reasons(journey, 1) == ["returned", "comes again"]
    network.cut.clear()
    network.start(1)
    network.settle(20)
    assert [network.trace(body).verdict for body in (1, 2)] == [Verdict.DELIVERED] * 2
    assert network.handed == {1, 2}


def test_message_that_its_home_refuses_again_and_again_waits_whatever_the_clock_says() -> None:
    network = TracedNetwork()
    network.send(2)
    network.settle(1)
    home = network.brokers[1].core
    assert home.store is not None
    home.store.put_refusal = lambda *_: "it is full"  # type: ignore[method-assign]
    network.send(2)
    # All in the same millisecond.
    for _ in range(40):
        network.commit(2)
        network.pass_packet()
        network.commit(1)
    assert "returned" in reasons(network.trace(2), 2)
    assert (network.trace(2).verdict, network.trace(2).lost) == (Verdict.WAITING, ())


def test_message_that_an_earlier_version_recorded_as_sent_on_when_it_put_it_waits_until_it_is_stored() -> None:
    network = TracedNetwork()
    network.send(2)
    network.settle(1)
    network.cut.add(frozenset((1, 2)))
    network.send(2)
    network.settle(1)
    batch = ids_alone(np.array([network.ids[2]], np.uint64))
    network.recorders[2].dropped(batch, np.arange(1), 1, Detour.SENT_ON, network.now)
    network.crash(2, power=False)
    network.start(2)
    home = network.brokers[1].core
    assert home.store is not None
    home.store.put_refusal = lambda *_: "it is full"  # type: ignore[method-assign]
    network.cut.clear()
    network.settle(3)
    assert "returned" in reasons(network.trace(2), 2)
    assert (network.trace(2).verdict, network.trace(2).lost) == (Verdict.WAITING, ())
    del home.store.put_refusal
    network.settle(3)
    assert reasons(network.trace(2), 2)[-1] == "sent on"


@pytest.mark.parametrize("home", [2, 3])
def test_message_does_not_wait_for_the_former_home_of_its_queue(home: int) -> None:
    network = TracedNetwork()
    network.cut |= {frozenset((1, 2)), frozenset((2, 3))}
    network.send(2)
    network.settle(1)
    assert network.trace().verdict is Verdict.WAITING
    for number in (1, 2, 3):
        network.stop(number)
    network.home = home
    for number in (1, 2, 3):
        network.start(number)
    network.settle(1)
    assert network.trace().verdict is Verdict.WAITING
    network.cut.clear()
    client = network.consume(home)
    network.settle(5)
    network.answer(client, 1)
    network.settle(5)
    assert (network.trace().verdict, network.trace().certainty) == (Verdict.ACKNOWLEDGED, 1.0)
