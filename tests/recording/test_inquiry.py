from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from postroad.broker.questions import Questions
from postroad.messages import MessageId
from postroad.recording import Inquiry
from postroad.recording import inquiry as module
from postroad.topology import Graph, waxman
from postroad.tracking import Answer, Gap, NamedSubscription, Verdict
from tests.tracking.worlds import TIME, Truth, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class OpenLinks:
    """The links of one broker, all in one event loop."""

    def __init__(self, net: Net, broker: int) -> None:
        self._net = net
        self._broker = broker

    @property
    def up(self) -> frozenset[int]:
        return frozenset(self._net.world.graph.neighbours(self._broker)) - self._net.dead

    def ask(self, number: int, payload: bytes) -> None:
        if number not in self._net.dead:
            asyncio.get_running_loop().call_soon(self._net.inquiries[number].received, payload, self._broker)

    def refused(self, number: int, reason: str) -> None:
        raise AssertionError(f"broker {self._broker} refused what broker {number} sent: {reason}")


class Net:
    """Brokers that answer from a world whose truth is known."""

    def __init__(self, world: World, truth: Truth) -> None:
        self.world = world
        self.truth = truth
        self.dead: set[int] = set()
        # Brokers that answer in another way, and what can be read of the records of others.
        self.own: dict[int, Callable[[MessageId], Awaitable[Answer]]] = {}
        self.written: Callable[[int, MessageId], Awaitable[Answer | None]] | None = None
        topology = {broker: set(world.graph.neighbours(broker)) for broker in world.graph.brokers}
        self.inquiries = {
            broker: Inquiry(
                broker,
                1,
                self.changeable(broker),
                lambda: 0,
                OpenLinks(self, broker),
                lambda: topology,
                self.read if broker == 1 else None,
            )
            for broker in world.graph.brokers
        }

    def changeable(self, broker: int) -> Callable[[MessageId], Awaitable[Answer]]:
        return lambda message: self.own.get(broker, self.answerer(broker))(message)

    async def read(self, broker: int, message: MessageId) -> Answer | None:
        return None if self.written is None else await self.written(broker, message)

    def answerer(self, broker: int) -> Callable[[MessageId], Awaitable[Answer]]:
        async def answer(message: MessageId) -> Answer:
            await asyncio.sleep(0)
            people = tuple(NamedSubscription(n, f"user{n}", "t.>", "") for b, n in self.truth.deliveries if b == broker)
            return Answer(self.world.findings(broker, self.truth), f"from {message.publisher}", people)

        return answer


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.05)


def test_any_broker_finds_the_whole_way_by_asking_over_the_links() -> None:
    random = Random(3)
    world = World(waxman(20, 3), random)
    truth = world.send(7)
    net = Net(world, truth)
    story = asyncio.run(net.inquiries[1].trace(truth.id))
    assert {(stop.parent, stop.broker) for stop in story.journey.stops[1:]} == truth.hops
    assert {(broker, hit.number) for broker, hit in story.journey.delivered} == truth.deliveries
    assert story.publisher == "from 7"
    assert set(story.subscriptions) == truth.deliveries
    assert story.journey.queries == len(truth.brokers)


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_is_gone_is_named_and_the_rest_is_told() -> None:
    random = Random(3)
    world = World(waxman(12, 4), random)
    truth = world.send(1, share=0.9)
    net = Net(world, truth)
    gone = next(to for _, to in sorted(truth.hops))
    net.dead = {gone}
    story = asyncio.run(net.inquiries[1].trace(truth.id))
    assert gone in story.journey.silent
    assert story.journey.verdict is Verdict.RECORDED_IN_PART
    assert [stop.broker for stop in story.journey.stops if not stop.recorded] == [gone]


@pytest.mark.usefixtures("impatient")
def test_what_a_broker_that_is_gone_has_written_stands_for_its_answer() -> None:
    world = World(waxman(12, 4), Random(3))
    truth = world.send(1, share=0.9)
    net = Net(world, truth)
    gone = next(to for _, to in sorted(truth.hops))
    net.dead = {gone}
    asked: list[int] = []

    async def written(broker: int, message: MessageId) -> Answer | None:
        asked.append(broker)
        return await net.answerer(broker)(message)

    net.written = written
    story = asyncio.run(net.inquiries[1].trace(truth.id))
    assert asked == [gone]
    assert story.journey.silent == ()
    assert {(stop.parent, stop.broker) for stop in story.journey.stops[1:]} == truth.hops
    assert {(broker, hit.number) for broker, hit in story.journey.delivered} == truth.deliveries


def test_a_broker_whose_links_are_all_down_waits_for_nobody() -> None:
    world = World(waxman(2, 4), Random(3))
    truth = Truth(MessageId(7, 1, TIME, 0), frozenset({(1, 2)}), frozenset({(2, 20)}))
    net = Net(world, truth)
    net.dead = {2}

    async def at_once() -> bool:
        work = asyncio.create_task(net.inquiries[1].trace(truth.id))
        for _ in range(20):
            await asyncio.sleep(0)
        return work.done() and work.result().journey.silent == (2,)

    assert asyncio.run(at_once())


@pytest.mark.usefixtures("impatient")
def test_an_origin_that_is_not_there_is_not_called_a_no() -> None:
    world = World(waxman(3, 4), Random(1))
    truth = world.send(1)
    net = Net(world, truth)
    story = asyncio.run(net.inquiries[1].trace(MessageId(1, 99, TIME, 0)))
    assert story.journey.verdict is Verdict.UNANSWERED
    assert story.journey.silent == (99,)


def test_one_asker_does_not_keep_a_broker_from_answering_others() -> None:
    """What it asks beyond its share is not answered, and it sees a silent broker; files are read for every answer."""

    class Counted(OpenLinks):
        def ask(self, number: int, payload: bytes) -> None:
            sent.append(number)

    sent: list[int] = []
    world = World(waxman(3, 4), Random(1))
    net = Net(world, Truth(MessageId(7, 1, TIME, 0), frozenset(), frozenset()))

    async def flood() -> None:
        target = Inquiry(1, 1, net.answerer(1), lambda: 0, Counted(net, 1))
        asker, other = Questions(8, 1), Questions(9, 1)
        for _ in range(2 * module.MOST_OF_ASKER):
            target.received(asker.ask(1, net.truth.id, [1], 0)[1].sends[0][1], 2)
        target.received(other.ask(1, net.truth.id, [1], 0)[1].sends[0][1], 3)
        for _ in range(100):
            await asyncio.sleep(0)
        # Nothing else is under way.
        await target.stop()

    asyncio.run(flood())
    assert sent == [2] * module.MOST_OF_ASKER + [3]


def test_a_broker_alone_answers_for_itself() -> None:
    world = World(waxman(2, 4), Random(1))
    truth = Truth(MessageId(7, 1, TIME, 0), frozenset(), frozenset({(1, 10)}))
    answer = Net(world, truth).answerer(1)
    story = asyncio.run(Inquiry(1, 1, answer, lambda: 0).trace(truth.id))
    assert story.journey.verdict is Verdict.DELIVERED


def test_those_behind_silent_brokers_are_asked_while_these_may_still_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a trace would wait for every silent broker on the way, one after the other."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 3_600.0)
    monkeypatch.setattr(module, "HEDGE_SECONDS", 0.01)
    graph = Graph(range(1, 6), {(1, 2): 1, (2, 3): 1, (3, 4): 1, (4, 5): 1, (1, 5): 1})
    world = World(graph, Random(3))
    hops = frozenset({(1, 2), (2, 3), (3, 4), (4, 5)})
    net = Net(world, Truth(MessageId(7, 1, TIME, 0), hops, frozenset({(5, 50)})))
    net.dead = {2, 4}
    told: list[int] = []
    last_is_asked = asyncio.Event()
    received = net.inquiries[5].received

    def heard(payload: bytes, link: int) -> None:
        told.append(link)
        # Questions for 2, 3 and 4 pass by broker 5 too; the fourth is for itself.
        if len(told) == 4:
            last_is_asked.set()
        received(payload, link)

    async def written(broker: int, message: MessageId) -> Answer | None:
        return await net.answerer(broker)(message)

    async def until_the_last_is_asked() -> None:
        net.written = written
        net.inquiries[5].received = heard  # type: ignore[method-assign]
        work = asyncio.create_task(net.inquiries[1].trace(net.truth.id))
        await last_is_asked.wait()
        assert not work.done(), "2 and 4 may still answer"
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(asyncio.wait_for(until_the_last_is_asked(), 60))


def test_an_answer_that_comes_late_takes_the_place_of_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 60.0)
    monkeypatch.setattr(module, "HEDGE_SECONDS", 0.01)
    world = World(waxman(2, 4), Random(3))
    truth = Truth(MessageId(7, 1, TIME, 0), frozenset({(1, 2)}), frozenset({(2, 20)}))
    net = Net(world, truth)
    read = asyncio.Event()
    answer = net.answerer(2)

    async def late(message: MessageId) -> Answer:
        await read.wait()
        return await answer(message)

    async def written(broker: int, message: MessageId) -> Answer | None:
        found = await net.answerer(broker)(message)
        read.set()
        return found._replace(findings=found.findings._replace(arrived=None, gaps=(Gap(0, 1, "not written"),)))

    net.own[2] = late
    net.written = written
    journey = asyncio.run(net.inquiries[1].trace(truth.id)).journey
    assert journey.verdict is Verdict.DELIVERED
    assert [stop.recorded for stop in journey.stops] == [True, True]
