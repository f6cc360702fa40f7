"""Who was there when: repeated so that a reader need not go back to the beginning, and not known behind a hole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.tracking import Verdict
from postroad.trail import DAY_MS, Trail, TrailWriter, expire
from postroad.trail.coverage import GapReason, Hole, Run, gaps_around
from postroad.trail.manifest import change_name, manifest_folder
from postroad.trail.standing_rows import standing_holes
from tests.trail.samples import HOUR, NOON
from tests.trail.subscribed import MIDNIGHT, MINUTE, attached, filters, sent

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.messages import MessageId


def verdict(root: Path, message: MessageId) -> Verdict:
    return Trail(root).trace(message).journey.verdict


def test_filters_are_not_asked_about_everybody_where_the_change_that_says_who_came_is_lost(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 1, NOON)
    writer.write([attached(NOON + 1)], NOON + MINUTE)
    writer.write([], NOON + 2 * MINUTE)
    early, next_day = sent(NOON + HOUR), sent(MIDNIGHT + HOUR)
    writer.write(filters(early), NOON + 2 * HOUR)
    writer.write(filters(next_day), MIDNIGHT + 2 * HOUR)
    assert verdict(tmp_path, early) is Verdict.DELIVERED
    (manifest_folder(tmp_path, 1) / change_name(2)).unlink()
    assert verdict(tmp_path, early) is Verdict.RECORDED_IN_PART
    assert verdict(tmp_path, next_day) is Verdict.DELIVERED


@pytest.mark.parametrize("given_up", [NOON, MIDNIGHT - MINUTE])
def test_what_stands_is_repeated_as_of_the_end_of_a_commit_that_was_given_up(tmp_path: Path, given_up: int) -> None:
    writer = TrailWriter(tmp_path, 1, given_up - HOUR)
    writer.drop(writer.prepare([attached(given_up - MINUTE)], given_up), "the disk was full")
    message = sent(given_up + 5 * MINUTE)
    writer.write(filters(message), given_up + HOUR)
    assert verdict(tmp_path, message) is Verdict.DELIVERED


def test_filters_that_are_kept_can_be_asked_about_those_who_came_before_what_is_kept(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 1, NOON)
    writer.write([attached(NOON + 1)], NOON + MINUTE)
    message = sent(NOON + 2 * HOUR)
    writer.write(filters(message), NOON + 3 * HOUR)
    expire(tmp_path, 1, NOON + HOUR + DAY_MS, max_age_ms=DAY_MS)
    assert verdict(tmp_path, message) is Verdict.DELIVERED
    assert expire(tmp_path, 1, NOON + 3 * DAY_MS, max_age_ms=DAY_MS).files > 0
    assert Trail(tmp_path).files("subscriptions", 1)[0] == []


def test_what_stands_is_unknown_until_it_is_repeated() -> None:
    hole = Hole(NOON, NOON + MINUTE, "damaged")
    runs = [Run(1, NOON - HOUR, NOON + DAY_MS)]

    def ends(*repeated: int, again: tuple[Run, ...] = ()) -> list[int]:
        return [one.until for one in standing_holes([*runs, *again], [hole], repeated)]

    assert ends() == [MIDNIGHT]
    assert ends(NOON - 1, NOON + HOUR, NOON + 2 * HOUR) == [NOON + HOUR]
    assert ends(again=(Run(9, NOON + 2 * HOUR, NOON + 3 * HOUR),)) == [NOON + 2 * HOUR]
    assert standing_holes(runs, [Hole(NOON, NOON + MINUTE, GapReason.SET_BACK)]) == []
    gone = Hole(0, NOON + 1, GapReason.GONE)
    assert standing_holes([Run(4, NOON, NOON + HOUR)], [gone]) == [gone]


def test_a_message_that_waits_may_have_met_its_end_in_any_later_gap() -> None:
    at = NOON + MINUTE
    window = at - 5_000, at + 15_000
    hole = Hole(NOON + HOUR, NOON + HOUR + MINUTE, "damaged")
    closed, crashed = Run(1, NOON, NOON + 2 * HOUR, closed=True), Run(1, NOON, NOON + 2 * HOUR)
    later = Run(3, NOON + 3 * HOUR, NOON + 4 * HOUR, closed=True)

    def reasons(runs: list[Run], holes: list[Hole], handled: tuple[int, ...], *, waits: bool) -> set[str]:
        gaps, ends = gaps_around(runs, holes, at, *window, handled, waits)
        assert gaps == ()
        return {gap.reason for gap in ends}

    # Whether its passage is on record, or filters alone know of it.
    for handled in ((1,), ()):
        assert reasons([closed], [], handled, waits=True) == set()
        assert reasons([closed], [hole], handled, waits=True) == {"damaged"}
        assert reasons([crashed], [], handled, waits=True) == {GapReason.NOT_YET_WRITTEN}
        assert reasons([crashed, later], [], handled, waits=True) == {GapReason.CRASHED}
        assert reasons([crashed, later], [hole], handled, waits=False) == set()
        assert reasons([closed], [Hole(NOON - HOUR, NOON, "damaged")], handled, waits=True) == set()
