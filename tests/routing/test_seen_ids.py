"""The ids seen against a set that forgets nothing: what is known is exact, and what is not known is said."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.routing import RoutingError, SeenIds, floors
from postroad.routing import seen_ids as module
from postroad.routing.seen_ids import REMEMBER_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    One = tuple[int, int, int]  # publisher, origin, second half of the id

ids = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(0, 300)), max_size=40)


def as_array(given: list[One]) -> NDArray[np.uint64]:
    return np.array([(publisher << 32 | origin, tail) for publisher, origin, tail in given], np.uint64).reshape(-1, 2)


def run_of(tails: range, publisher: int = 9, origin: int = 1) -> NDArray[np.uint64]:
    return as_array([(publisher, origin, tail) for tail in tails])


def admit(seen: SeenIds, given: NDArray[np.uint64], now: int = 0) -> tuple[list[bool], list[bool]]:
    """Which rows are fresh, and which of them doubtful."""
    fresh, doubtful = seen.admit(given, np.arange(len(given)), now)
    return fresh.tolist(), [False] * len(given) if doubtful is None else doubtful.tolist()


@given(st.lists(ids, max_size=6))
def test_each_id_is_admitted_once(batches: list[list[One]]) -> None:
    seen = SeenIds(64)
    known: set[One] = set()
    for batch in batches:
        expected = []
        for one in batch:
            expected.append(one not in known)
            known.add(one)
        assert admit(seen, as_array(batch)) == (expected, [False] * len(batch))


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), window=st.sampled_from([64, 100, 256]), most=st.sampled_from([256, 1_024]))
def test_nothing_that_was_seen_passes_as_new_without_doubt_whatever_was_forgotten(
    seed: int, window: int, most: int
) -> None:
    draw = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_REMEMBERED", most)
        patch.setattr(module, "MAX_PUBLISHERS", 8)
        patch.setattr(floors, "MAX_PUBLISHERS", 8)
        patch.setattr(module, "_MAX_EVICTED", 2)
        seen, now = SeenIds(window), 0
        known: set[One] = set()
        # Publishers whose clocks differ and go on at their own pace, at more origins than there is room for.
        clocks = {(publisher, origin): draw.randrange(10_000) for publisher in range(12) for origin in range(1, 7)}
        for _ in range(60):
            batch: list[One] = []
            for publisher, origin in draw.choices(list(clocks), k=draw.randrange(1, 40)):
                clocks[publisher, origin] += draw.choice((1, 1, 1, 5, 70, 500))
                batch.append((publisher, origin, clocks[publisher, origin]))
            batch += draw.choices(sorted(known), k=draw.randrange(20)) if known else []
            draw.shuffle(batch)
            fresh, doubtful = admit(seen, as_array(batch), now)
            for one, new, doubted in zip(batch, fresh, doubtful, strict=True):
                assert new or one in known, "only what was seen is refused"
                assert not new or doubted or one not in known, "nothing comes twice without being marked"
                assert new or not doubted
                known.add(one)
            assert seen.statistics().places <= most
            now += draw.choice((0, 10, REMEMBER_MS // 2, REMEMBER_MS))


def test_a_minute_of_ids_is_remembered_however_many_there_are() -> None:
    """More than the window: 6,000 messages a second, and the copies of a broker that was frozen for 7 s."""
    seen = SeenIds()
    batches = [run_of(range(ms << 16, (ms << 16) + 6)) for ms in range(14_000)]
    for ms, batch in enumerate(batches):
        assert all(admit(seen, batch, ms)[0])
    for ms, batch in enumerate(batches):
        assert not any(admit(seen, batch, 14_000 + ms)[0])
    # One block a millisecond, and each in one of the two tables.
    assert seen.statistics().places <= 65_536
    assert seen.statistics()[2:] == (6 * 14_000, 0, 0)


def test_what_is_older_than_a_minute_is_forgotten_and_then_doubtful() -> None:
    seen = SeenIds(64)
    for now in range(0, 10 * REMEMBER_MS, 1_000):
        # 64 blocks a second, far beyond the window.
        assert all(admit(seen, run_of(range(now << 16, (now << 16) + 64 * 64, 64)), now)[0])
    assert seen.statistics().forgotten > 0
    young, old = 9 * REMEMBER_MS + 1_000, 1_000
    assert admit(seen, run_of(range(young << 16, (young << 16) + 1)), 10 * REMEMBER_MS) == ([False], [False])
    first = run_of(range(old << 16, (old << 16) + 1))
    assert admit(seen, first, 10 * REMEMBER_MS) == ([True], [True])
    # From then on it is known again.
    assert admit(seen, first, 10 * REMEMBER_MS) == ([False], [False])
    assert seen.statistics().doubtful == 1


def test_tables_of_an_origin_that_became_quiet_shrink() -> None:
    seen = SeenIds(64)
    admit(seen, run_of(range(0, 64 * 20_000, 64)), 0)
    busy = seen.statistics().places
    for step in range(1, 200):
        admit(seen, run_of(range(10**9 * step, 10**9 * step + 64 * 400, 64)), step * 8 * REMEMBER_MS)
    assert seen.statistics().places < busy // 4


def test_a_publisher_whose_clock_is_ahead_makes_no_other_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 256)
    seen = SeenIds(64)
    hour = 3_600_000 << 16
    for step in range(40):
        admit(seen, run_of(range(hour + step * 6_400, hour + (step + 1) * 6_400, 64), publisher=1))
        assert admit(seen, run_of(range(step, step + 1), publisher=2)) == ([True], [False])
    assert seen.statistics().forgotten > 0
    assert admit(seen, run_of(range(hour, hour + 1), publisher=1)) == ([True], [True])


def test_busy_origin_does_not_push_out_a_quiet_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 4_096)
    seen = SeenIds(64)
    quiet = run_of(range(1, 2), origin=2)
    admit(seen, quiet)
    admit(seen, run_of(range(0, 64 * 20_000, 64)))
    assert admit(seen, quiet) == ([False], [False])
    assert seen.statistics().origins == 2
    assert seen.statistics().places <= 4_096 * 3 // 4


def test_window_of_nothing_is_refused() -> None:
    with pytest.raises(RoutingError, match="64 ids or more"):
        SeenIds(3)


def test_more_origins_than_fit_push_out_the_first_and_put_it_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 4 * 64)
    seen = SeenIds(64)
    for origin in range(1, 7):
        assert admit(seen, run_of(range(1, 2), origin=origin)) == ([True], [False])
    assert seen.statistics().places <= 4 * 64
    both = as_array([(9, 1, 1), (9, 6, 1)])
    assert admit(seen, both) == ([True, False], [True, False])


def colliding_tails(count: int, bits: int, head: int) -> list[int]:
    """Second halves of ids whose blocks shared the lower bits of their hash under the constants that it once had."""
    word = 2**64 - 1
    back = pow(0xD6E8FEB86659FD93, -1, 2**64)
    found: list[int] = []
    number = 0
    while len(found) < count:
        value = number << bits
        value = (value ^ value >> 32) * back & word
        block = (value ^ value >> 32) ^ (head * 0x9E3779B97F4A7C15 & word)
        if block < 2**58:
            found.append(block << 6)
        number += 1
    return found


def longest_run(slots: NDArray[np.int32]) -> int:
    """The most slots that are taken one behind the other: what a search walks at worst."""
    longest = run = 0
    for taken in (np.concatenate([slots, slots]) >= 0).tolist():
        run = run + 1 if taken else 0
        longest = max(longest, run)
    return longest


@pytest.mark.parametrize("secret", [0, 1, 2**64 - 1, 123_456_789])
def test_ids_chosen_to_collide_do_not_collide_under_a_secret(secret: int) -> None:
    tails = colliding_tails(500, 12, 9 << 32 | 1)
    seen = SeenIds(1_024, secret)
    given = as_array([(9, 1, tail) for tail in tails])
    assert admit(seen, given)[0] == [True] * len(tails)
    assert admit(seen, given)[0] == [False] * len(tails)
    # A table that is half full at most: runs are short, whichever ids they are.
    assert longest_run(seen._origins[1].newer.slots) < 60
