"""Turns compared with the turns beside them, and brokers that are given time to rest."""

from __future__ import annotations

import pytest
from bench.paired import Spread, against_neighbours, spread
from bench.settling import settle


def test_turn_is_compared_with_both_turns_beside_it() -> None:
    turns = [("none", 10.0), ("exact", 9.0), ("none", 20.0), ("bloom", 5.0), ("none", 30.0)]
    assert against_neighbours(turns, "none") == {"exact": [0.6], "bloom": [0.2]}


def test_even_drift_does_not_change_a_ratio() -> None:
    speeds = [100.0 + 7 * place for place in range(9)]
    turns = [("none", speed) if place % 2 == 0 else ("exact", 0.9 * speed) for place, speed in enumerate(speeds)]
    assert against_neighbours(turns, "none")["exact"] == pytest.approx([0.9] * 4)


@pytest.mark.parametrize(
    "turns",
    [
        [("exact", 1.0), ("none", 1.0)],
        [("none", 1.0), ("exact", 1.0)],
        [("none", 1.0), ("exact", 1.0), ("bloom", 1.0), ("none", 1.0)],
    ],
)
def test_turn_that_is_not_between_two_of_the_base_is_refused(turns: list[tuple[str, float]]) -> None:
    with pytest.raises(ValueError, match="does not stand between two of none"):
        against_neighbours(turns, "none")


def test_spread_gives_quartiles_and_takes_a_single_value() -> None:
    assert spread([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(2.0, 3.0, 4.0)
    assert spread([0.7]) == Spread(0.7, 0.7, 0.7)
    with pytest.raises(ValueError, match="need a value"):
        spread([])


def test_settling_waits_until_processes_have_stopped_working() -> None:
    spent = [0.0]

    def works_for_four_looks(pids: list[int]) -> float:
        assert pids == [4, 5]
        spent[0] = min(spent[0] + 0.1, 0.4)
        return spent[0]

    assert settle([4, 5], 0.2, works_for_four_looks) >= 0.2
    assert spent[0] == pytest.approx(0.4)


def test_settling_gives_up_on_processes_that_never_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.settling.MOST_SECONDS", 0.5)
    spent = [0.0]

    def works(pids: list[int]) -> float:
        spent[0] += 1
        return spent[0]

    with pytest.raises(RuntimeError, match="still at work"):
        settle([1], 0.2, works)
