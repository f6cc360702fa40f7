"""A broker that stops waits for neighbours as long as they take something, and no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.server.link_drain import LONGEST_MS, SILENT_MS, LinkDrain

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_MS = 25


def waited(held: Callable[[int], int], look_ms: int = LOOK_MS) -> int:
    """How many ms a broker waits whose neighbours have left so many frames after some ms."""
    waiting, now = LinkDrain(0), 0
    while waiting.goes_on(held(now), now):
        now += look_ms
    return now


def test_links_that_keep_nothing_are_not_waited_for() -> None:
    assert waited(lambda now: 0) == 0


def test_neighbours_that_take_nothing_are_given_up() -> None:
    assert waited(lambda now: 7) == SILENT_MS


def test_neighbours_that_are_slow_get_the_time_they_need() -> None:
    assert waited(lambda now: max(0, 5 - now // 2_000)) == 10_000


def test_neighbours_that_never_end_are_given_up_at_last() -> None:
    assert waited(lambda now: 1_000_000 - now) == LONGEST_MS


def test_broker_that_stood_still_itself_gives_neighbours_the_time_to_be_heard() -> None:
    # Each look comes five seconds after the one before, and after the third of them something is taken.
    assert waited(lambda now: 0 if now >= 15_000 else 7, look_ms=5_000) == 15_000
