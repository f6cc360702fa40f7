"""The dispatcher: what follows from carrying out an outbox is carried out after it."""

from __future__ import annotations

import gc
import itertools
import sys
import weakref
from typing import TYPE_CHECKING

import numpy as np

from postroad.broker import Broker, Outbox, PublisherNumbers
from postroad.messages import Batch
from postroad.sessions import Dispatcher
from postroad.sessions.shared_bytes import SHARED_BATCH_BYTES, Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pytest

    from postroad.broker import Delivery
    from postroad.sessions import SharedBytes


def connecting(number: int) -> Outbox:
    outbox = Outbox()
    outbox.connects.append(number)
    return outbox


class FullLinks:
    """Links that call for another outbox each time they send, as full or broken links do."""

    def __init__(self, dispatcher: Dispatcher, times: int) -> None:
        self._dispatcher = dispatcher
        self._left = times
        self._depth = 0
        self.deepest = 0
        self.sent: list[list[int]] = []

    def send(self, outbox: Outbox) -> None:
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        self.sent.append(list(outbox.connects))
        if self._left:
            self._left -= 1
            self._dispatcher.carry_out(connecting(self._left))
        self._depth -= 1

    def send_packets(self, packets: Iterable[tuple[int, bytes]]) -> None:
        raise AssertionError("this broker has no queues to speak of")


def test_what_links_call_for_while_they_send_is_carried_out_after_it_and_before_the_caller_goes_on() -> None:
    dispatcher = Dispatcher(Broker(1, PublisherNumbers(lambda: 1)))
    # More than Python could nest.
    times = 2 * sys.getrecursionlimit()
    dispatcher.links = links = FullLinks(dispatcher, times)
    dispatcher.carry_out(connecting(times))
    assert links.deepest == 1
    assert links.sent == [[number] for number in range(times, -1, -1)]


def test_an_outbox_that_cannot_be_carried_out_does_not_keep_those_behind_it() -> None:
    dispatcher = Dispatcher(Broker(1, PublisherNumbers(lambda: 1)))
    links = FullLinks(dispatcher, 0)

    class BrokenLinks(FullLinks):
        def send(self, outbox: Outbox) -> None:
            dispatcher.carry_out(connecting(2))
            raise RuntimeError("a defect")

    dispatcher.links = BrokenLinks(dispatcher, 0)
    try:
        dispatcher.carry_out(connecting(1))
    except RuntimeError:
        dispatcher.links = links
    dispatcher.carry_out(connecting(3))
    assert links.sent == [[2], [3]]


def test_turns_follow_each_other_at_once_while_too_much_waits_and_memory_is_counted_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("postroad.broker.residents.MAX_TURN_BYTES", 3_000)
    monkeypatch.setattr("postroad.broker.matching_turns.MAX_UNFINISHED_BYTES", 5_000)
    core = Broker(1, PublisherNumbers(lambda: 1), in_turns=True)
    for number in range(12):
        core.subscribe(core.attached(f"s{number}"), "0", "t")
    dispatcher = Dispatcher(core)
    later: list[Callable[[], None]] = []
    given: list[int] = []
    dispatcher.soon = later.append
    dispatcher.relieve = lambda: given.append(core.statistics().delivered)
    message = Batch.build([("t", {}, {}, b"x" * 1_000)] * 2)
    for _ in range(2):
        dispatcher.publish(message, core.attached("p"))
    assert (len(later), given) == (1, [])
    dispatcher.publish(message, core.attached("p"))
    assert not core.matching.is_overdue
    # Three works of 12 deliveries, one of them a turn each time.
    assert len(given) > 3
    assert all(next_ - before == 2 for before, next_ in itertools.pairwise(given))
    while later:
        later.pop()()
    assert core.statistics().delivered == 72


def test_a_defect_in_what_one_session_waited_for_keeps_no_other_waiting(caplog: pytest.LogCaptureFixture) -> None:
    core = Broker(1, PublisherNumbers(lambda: 1), in_turns=True)
    dispatcher = Dispatcher(core)
    done: list[str] = []

    def fail() -> None:
        raise RuntimeError("a defect")

    dispatcher.after_turns(core.attached("a"), fail)
    dispatcher.after_turns(core.attached("b"), lambda: done.append("b"))
    dispatcher.finish()
    assert done == ["b"]
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a defect"]


class Ending:
    """The session of a client that ends with the first defect."""

    def __init__(self) -> None:
        self.defects: list[str] = []
        self.receipts: list[str] = []

    def broke(self, error: Exception) -> None:
        self.defects.append(str(error))

    def confirm(self) -> None:
        if not self.defects:
            self.receipts.append("committed")


def test_a_session_gets_no_receipt_for_what_failed_when_its_turn_came() -> None:
    core = Broker(1, PublisherNumbers(lambda: 1), in_turns=True)
    dispatcher, client, session = Dispatcher(core), Ending(), core.attached("a")
    dispatcher.join(session.number, client)  # type: ignore[arg-type]

    def settle() -> None:
        raise RuntimeError("a defect")

    dispatcher.after_turns(session, settle)
    dispatcher.after_turns(session, client.confirm)
    dispatcher.finish()
    assert (client.defects, client.receipts) == (["a defect"], [])


class Rendering:
    """What a renderer has prepared of a batch."""


class CountedRenderer:
    """Prepares nothing that anybody could write, and knows what of it is still kept."""

    def __init__(self) -> None:
        self._prepared: list[weakref.ref[Rendering]] = []

    def prepare(self, batch: Batch, rows: np.ndarray) -> Rendering:
        rendering = Rendering()
        self._prepared.append(weakref.ref(rendering))
        return rendering

    @property
    def count(self) -> int:
        return len(self._prepared)

    @property
    def kept(self) -> int:
        gc.collect()
        return sum(each() is not None for each in self._prepared)


class Reader:
    """The session of a client that takes all it gets."""

    def __init__(self, renderer: CountedRenderer) -> None:
        self.renderer = renderer
        self.got = 0

    def pieces(self, delivery: Delivery, prepared: Rendering) -> list[Piece]:
        return [Piece(np.zeros(len(delivery.rows), np.uint8))]

    def write(self, data: np.ndarray, shared: SharedBytes | None) -> None:
        self.got += len(data)


def test_the_rendering_of_a_large_message_is_forgotten_when_all_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.broker.residents.MAX_TURN_BYTES", SHARED_BATCH_BYTES)
    core = Broker(1, PublisherNumbers(lambda: 1), in_turns=True)
    dispatcher = Dispatcher(core)
    later: list[Callable[[], None]] = []
    dispatcher.soon = later.append
    renderer = CountedRenderer()
    readers = [Reader(renderer) for _ in range(6)]
    for number, reader in enumerate(readers):
        session = core.attached(f"s{number}")
        core.subscribe(session, "0", "t")
        dispatcher.join(session.number, reader)  # type: ignore[arg-type]
    dispatcher.publish(Batch.build([("t", {}, {}, bytes(SHARED_BATCH_BYTES))]), core.attached("p"))
    assert later
    assert (renderer.count, renderer.kept) == (1, 1)
    while later:
        later.pop()()
    assert [reader.got for reader in readers] == [1] * 6
    # One for the turn that had the bytes of the read, and one for the copy that later turns have.
    assert (renderer.count, renderer.kept) == (2, 0)
