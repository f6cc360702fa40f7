"""A channel brings what is sent once and in order, or says that it was lost."""

from __future__ import annotations

import itertools
import random

import pytest

from postroad.broker.channels import SILENCE_MS, WINDOW_BYTES, Channel, Datagram


class Ends:
    """Two ends, and what is under way between them."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.numbers = itertools.count(1)
        self.now = 1_000
        self.events: list[str] = []
        self.ends = {name: self.made(name) for name in "ab"}
        self.wires: list[tuple[str, Datagram]] = []
        self.came: dict[str, list[bytes]] = {"a": [], "b": []}

    def made(self, name: str) -> Channel:
        return Channel(
            lambda: next(self.numbers),
            lambda: self.events.append(f"{name} opens"),
            lambda: self.events.append(f"{name} loses"),
        )

    def flush(self) -> None:
        for name, end in self.ends.items():
            self.wires += [("b" if name == "a" else "a", each) for each in end.flush(self.now)]

    def run(self, milliseconds: int, loss: float = 0.0) -> None:
        for _ in range(milliseconds // 50):
            self.now += 50
            for end in self.ends.values():
                end.tick(self.now)
            self.flush()
            for _ in range(len(self.wires)):
                at = self.random.randrange(len(self.wires)) if loss else 0
                to, datagram = self.wires[at]
                if self.random.random() >= loss / 2:
                    del self.wires[at]
                if self.random.random() >= loss:
                    self.came[to] += self.ends[to].receive(datagram, self.now)
                self.flush()


@pytest.mark.parametrize("seed", range(8))
def test_items_come_once_and_in_order_over_wires_that_lose_repeat_and_reorder(seed: int) -> None:
    ends = Ends(seed)
    ends.ends["a"].is_wanted = True
    ends.run(3_000)
    assert ends.events == ["a opens", "b opens"]
    sent: dict[str, list[bytes]] = {"a": [], "b": []}
    for number in range(60):
        name = ends.random.choice("ab")
        item = b"%d" % number
        ends.ends[name].send(item)
        sent["b" if name == "a" else "a"].append(item)
        ends.run(50, loss=0.3)
    ends.run(3_000)
    assert "loses" not in "".join(ends.events)
    assert ends.came == sent
    assert all(not end.backlog_bytes for end in ends.ends.values())


def test_end_that_is_not_heard_is_lost_and_both_begin_anew() -> None:
    ends = Ends()
    ends.ends["a"].is_wanted = True
    ends.run(1_000)
    ends.ends["a"].send(b"never")
    ends.run(SILENCE_MS + 200, loss=1.0)
    assert sorted(ends.events[2:]) == ["a loses", "b loses"]
    ends.wires.clear()
    ends.run(2_000)
    assert sorted(ends.events[4:]) == ["a opens", "b opens"]
    ends.ends["b"].send(b"now")
    ends.run(1_000)
    assert ends.came == {"a": [b"now"], "b": []}


def test_end_that_died_and_is_there_again_is_noticed_at_once_and_nothing_of_before_counts() -> None:
    ends = Ends()
    ends.ends["a"].is_wanted = True
    ends.run(1_000)
    ends.ends["a"].send(b"before")
    before = ends.ends["a"].flush(ends.now)
    ends.ends["b"] = ends.made("b")
    ends.run(3_000)
    assert ends.events[2:] == ["a loses", "b opens", "a opens"]
    for datagram in before:
        assert ends.ends["b"].receive(datagram, ends.now) == []
    ends.run(3_000)
    assert ends.events[5:] == []


def test_late_hello_of_an_earlier_life_does_not_keep_two_ends_from_agreeing() -> None:
    ends = Ends()
    ends.ends["a"].is_wanted = True
    ends.ends["a"].tick(ends.now)
    (hello,) = ends.ends["a"].flush(ends.now)
    ends.ends["a"] = ends.made("a")
    ends.ends["a"].is_wanted = True
    ends.run(1_000)
    ends.ends["b"].receive(hello, ends.now)
    ends.run(5_000)
    assert all(end.is_open for end in ends.ends.values())
    count = len(ends.events)
    ends.run(30_000)
    assert len(ends.events) == count


def test_no_more_is_under_way_than_the_window_has_room_for() -> None:
    ends = Ends()
    ends.ends["a"].is_wanted = True
    ends.run(1_000)
    for _ in range(200):
        ends.ends["a"].send(bytes(100_000))
    out = sum(len(item) for each in ends.ends["a"].flush(ends.now) for item in each.items)
    assert out <= WINDOW_BYTES + 300_000
    assert ends.ends["a"].backlog_bytes == 200 * 100_000
