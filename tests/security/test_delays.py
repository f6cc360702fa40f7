"""Delays after failed logins: enough against guessing, never a lock-out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from postroad.security import LoginDelays
from postroad.security.delays import ADDRESS_MOST_MS, FORGET_MS, FREE_FAILURES, MAX_REMEMBERED, NAME_MOST_MS


def test_the_first_failures_are_free_and_then_each_doubles_the_delay_of_its_address() -> None:
    delays, now, waited = LoginDelays(), 1_000, []
    for _ in range(9):
        delays.failed("a", "ann", now)
        waited.append(delays.refused_for("a", now))
        now += waited[-1]
        assert delays.refused_for("a", now) == 0
    assert waited == [0, 0, 1_000, 2_000, 4_000, 8_000, 16_000, ADDRESS_MOST_MS, ADDRESS_MOST_MS]
    assert delays.refused_for("b", now) == 0


def test_failures_are_forgotten_after_a_while() -> None:
    delays = LoginDelays()
    for _ in range(9):
        delays.failed("a", "ann", 0)
    assert (delays.refused_for("a", 1) > 0, delays.wait_for("ann", 1)) == (True, NAME_MOST_MS)
    assert (delays.refused_for("a", FORGET_MS), delays.wait_for("ann", FORGET_MS)) == (0, 0)
    delays.failed("a", "ann", FORGET_MS)
    assert delays.refused_for("a", FORGET_MS) == 0


@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from("abc")), max_size=200))
def test_whoever_knows_a_name_can_make_its_owner_wait_no_longer_than_the_bound(failures: list[tuple[int, str]]) -> None:
    delays, now = LoginDelays(), 0
    for step, address in failures:
        now += step
        delays.failed(address, "ann", now)
        assert 0 <= delays.wait_for("ann", now) <= NAME_MOST_MS
        # The owner, from an address of its own, is never refused.
        assert delays.refused_for("owner's", now) == 0
        assert delays.wait_for("bob", now) == 0
    if len(failures) < FREE_FAILURES:
        assert delays.wait_for("ann", now) == 0


def test_what_is_remembered_is_bounded() -> None:
    delays = LoginDelays()
    for number in range(MAX_REMEMBERED + 500):
        delays.failed(f"address {number}", f"name {number}", number)
    assert delays.remembered == 2 * MAX_REMEMBERED
