"""Two brokers over a pipe that cuts anywhere: everything arrives once, or comes back once."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.protocols.link.lossy import World

# Sizes are drawn apart from names, so each name is also there as often as it should happen.
STEADY = ["send", "send", "send", "deliver", "exchange", "exchange", "exchange", "cut", "connect", "settle", "tick"]
HARSH = [*STEADY, "restart", "give_up"]


def steps(names: list[str]) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    sizes = st.integers(0, 60) | st.integers(0, 2_000) | st.just(100_000)
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 1), sizes), min_size=10, max_size=60)


def run(world: World, actions: list[tuple[str, int, int]]) -> None:
    world.connect(0)
    world.exchange(1, 100_000)
    for name, side, size in actions:
        if name == "cut":
            world.cut(side, size)
            world.check()
            world.connect(size % 2)
            world.exchange(1 - size % 2, 100_000 if side else size)
        else:
            getattr(world, name)(side, size)
        world.check()


@pytest.mark.parametrize("custody", [False, True], ids=["relay", "custody"])
@settings(max_examples=60)
@given(steps(STEADY))
def test_everything_arrives_once_and_in_order_while_nobody_restarts(
    custody: bool, actions: list[tuple[str, int, int]]
) -> None:
    world = World(custody)
    run(world, actions)
    world.drain()
    world.check()
    for end, peer in (world.ends, world.ends[::-1]):
        assert peer.received.get(end.epoch, []) == end.taken
        assert end.returned == []
        assert end.held() == []
        assert peer.neighbour.receiver.statistics().skipped_frames == 0
        # The peer's number is exact: a cut alone makes nothing come twice.
        assert peer.neighbour.receiver.statistics().repeated_frames == 0


@pytest.mark.parametrize("custody", [False, True], ids=["relay", "custody"])
@settings(max_examples=100)
@given(steps(HARSH))
@example([("send", 0, 0), ("cut", 1, 0), ("give_up", 0, 0), ("connect", 0, 0), ("exchange", 0, 100_000)])
def test_everything_arrives_or_comes_back_when_processes_restart(
    custody: bool, actions: list[tuple[str, int, int]]
) -> None:
    world = World(custody)
    run(world, actions)
    world.drain()
    world.check()
    for end in world.ends:
        assert end.held() == []
        peers = [process for process in (*world.past, *world.ends) if process.number != end.number]
        received = {text for peer in peers for text in peer.received.get(end.epoch, [])}
        assert set(end.taken) == received | set(end.returned)


def test_the_world_can_lose_and_return() -> None:
    """The model is worth something: a cut leaves frames to resend, a restart frames to return."""
    world = World(custody=False)
    world.drain()
    world.send(0, 2)
    world.drain()
    assert world.ends[0].neighbour.sender.statistics().resent_frames == 1
    assert len(world.ends[1].received[1_001]) == 3
    world.send(0, 1)
    world.restart(1)
    world.drain()
    assert world.ends[0].returned == world.ends[0].taken[-2:]
