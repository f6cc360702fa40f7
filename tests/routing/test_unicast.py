"""Routes to single brokers beside strategies that know none: links alone are told, and messages are left alone."""

from __future__ import annotations

from collections import deque

import pytest

from postroad.routing import Digest, LinkRecord, RoutingError, UnicastRoutes
from postroad.routing.link_state_records import MAX_AHEAD_MS

NOW = 1_000_000


class Chain:
    """Brokers in a line whose control frames arrive at once."""

    def __init__(self, count: int) -> None:
        self.routes = {number: UnicastRoutes(number, NOW) for number in range(1, count + 1)}
        self.frames: list[object] = []
        for number in range(1, count):
            self.join(number, number + 1)

    def join(self, one: int, other: int) -> None:
        self.react(one, self.routes[one].link_up(other, 10, NOW))
        self.react(other, self.routes[other].link_up(one, 10, NOW))

    def cut(self, one: int, other: int) -> None:
        self.react(one, self.routes[one].link_down(other, NOW))
        self.react(other, self.routes[other].link_down(one, NOW))

    def react(self, number: int, reaction: object) -> None:
        waiting = deque([(number, reaction)])
        while waiting:
            sender, told = waiting.popleft()
            assert not told.retry  # type: ignore[attr-defined]
            assert not told.interests  # type: ignore[attr-defined]
            for link, frame in told.frames:  # type: ignore[attr-defined]
                self.frames.append(frame)
                waiting.append((link, self.routes[link].control(frame, sender, NOW)))

    def hops(self, number: int) -> list[int]:
        return [self.routes[number].next_hop(other) for other in self.routes]


def test_every_broker_knows_the_next_hop_to_every_other_and_nothing_else_is_told() -> None:
    chain = Chain(4)
    assert [chain.hops(number) for number in chain.routes] == [[0, 2, 2, 2], [1, 0, 3, 3], [2, 2, 0, 4], [3, 3, 3, 0]]
    assert {type(frame) for frame in chain.frames} == {LinkRecord, Digest}
    assert [each.reached for each in chain.routes.values()] == [3, 3, 3, 3]
    chain.cut(2, 3)
    assert [chain.hops(number) for number in chain.routes] == [[0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 0, 4], [0, 0, 3, 0]]
    assert chain.routes[1].next_hop(4_000) == 0


def test_broker_whose_clock_went_back_before_it_started_again_is_known_again() -> None:
    chain = Chain(3)
    chain.cut(2, 3)
    # Its first records are older than those of its earlier life, which the others still have.
    chain.routes[3] = UnicastRoutes(3, NOW - 500_000)
    chain.join(2, 3)
    assert chain.hops(1) == [0, 2, 2]
    assert chain.hops(3) == [2, 2, 0]


def test_record_that_no_honest_broker_sends_is_refused() -> None:
    chain = Chain(2)
    with pytest.raises(RoutingError, match="links of broker 2 that no broker has"):
        chain.routes[1].control(LinkRecord(2, NOW + 1, 1, 0, ((2, 10),)), 2, NOW)
    with pytest.raises(RoutingError, match="more than a day ahead"):
        chain.routes[1].control(LinkRecord(2, NOW + MAX_AHEAD_MS + 1, 1, 0, ()), 2, NOW)
    # One that is only passed on is not believed, and its neighbour not blamed.
    assert chain.routes[1].control(LinkRecord(9, NOW + MAX_AHEAD_MS + 1, 1, 0, ()), 2, NOW).refused == 1
