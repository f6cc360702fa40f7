"""The dispatcher: what follows from carrying out an outbox is carried out after it."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING

from postroad.broker import Broker, Outbox, PublisherNumbers
from postroad.messages import Batch
from postroad.sessions import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pytest


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
