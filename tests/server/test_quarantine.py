"""How long a neighbour that misbehaves is kept out."""

from __future__ import annotations

from postroad.server.quarantine import FIRST_MS, FORGIVEN_MS, LONGEST_MS, Barred, Quarantine


def test_quarantine_doubles_up_to_its_limit() -> None:
    quarantine, now = Quarantine(), 0
    for expected in [FIRST_MS << shift for shift in range(9)]:
        assert quarantine.offend(2, "it lies", now) == min(expected, LONGEST_MS)
        now += min(expected, LONGEST_MS)
    assert quarantine.counts(2) == (9, 9)


def test_neighbour_is_barred_until_its_time_is_over() -> None:
    quarantine = Quarantine()
    quarantine.offend(2, "it lies", 5)
    assert quarantine.barred(2, 5) == Barred(2, FIRST_MS, "it lies")
    assert quarantine.all_barred(FIRST_MS) == [Barred(2, 5, "it lies")]
    assert quarantine.barred(2, FIRST_MS + 5) is None
    assert quarantine.barred(3, 5) is None


def test_good_conduct_is_rewarded() -> None:
    quarantine = Quarantine()
    quarantine.offend(2, "it lies", 0)
    assert quarantine.offend(2, "it lies", FIRST_MS) == 2 * FIRST_MS
    assert quarantine.offend(2, "it lies", 3 * FIRST_MS + FORGIVEN_MS + 1) == FIRST_MS


def test_refusals_of_what_honest_neighbours_send_keep_nobody_out() -> None:
    quarantine = Quarantine()
    for _ in range(1_000):
        quarantine.count(2)
    assert quarantine.counts(2) == (1_000, 0)
    assert quarantine.barred(2, 0) is None
