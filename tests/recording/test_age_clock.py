"""The clock by which things are too old: a clock that is set forward by mistake deletes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from postroad.config import BrokerConfig, TrackingConfig
from postroad.recording import AgeClock, make_record
from postroad.recording.age_clock import KEEP_MS, MOST_AWAY_MS, SETTLED_MS
from postroad.trail import TrailWriter, pin
from tests.trail.samples import NOON, passages

if TYPE_CHECKING:
    from pathlib import Path

START = 1_800_000_000_000
HOUR, DAY = 3_600_000, 86_400_000


class Machine:
    """A clock that can be set, and the time that has really gone by."""

    def __init__(self, now: int = START) -> None:
        self.wall = now
        self.elapsed = 7

    def go_on(self, ms: int) -> None:
        self.wall += ms
        self.elapsed += ms

    def ages(self, file: Path | None = None) -> AgeClock:
        return AgeClock(lambda: self.wall, lambda: self.elapsed, file)


def test_age_clock_goes_with_a_clock_that_is_only_adjusted() -> None:
    machine = Machine()
    ages = machine.ages()
    for adjusted in (0, 4_000, -4_000, 900):
        machine.go_on(HOUR)
        machine.wall += adjusted
        assert ages() == machine.wall


def test_age_clock_leaves_out_a_jump_for_a_day(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    ages = machine.ages()
    machine.go_on(HOUR)
    machine.wall += 30 * DAY
    assert ages() == START + HOUR
    assert [record.message for record in caplog.records] == ["clock went forward"]
    machine.go_on(SETTLED_MS - 1)
    assert ages() == START + HOUR + SETTLED_MS - 1
    machine.go_on(1)
    assert ages() == machine.wall
    assert caplog.records[-1].message == "clock is believed again"


def test_age_clock_waits_for_another_day_after_each_jump() -> None:
    machine = Machine()
    ages = machine.ages()
    machine.wall += DAY
    ages()
    machine.go_on(SETTLED_MS - HOUR)
    machine.wall += DAY
    ages()
    machine.go_on(HOUR)
    assert ages() == machine.wall - 2 * DAY


def test_clock_that_is_set_right_again_takes_its_jump_back() -> None:
    machine = Machine()
    ages = machine.ages()
    machine.wall += 30 * DAY
    ages()
    machine.go_on(HOUR)
    machine.wall -= 30 * DAY
    assert ages() == machine.wall == START + HOUR
    # Further back than it had jumped: nothing gets older by it.
    machine.wall -= DAY
    assert ages() == machine.wall


def test_time_between_two_processes_counts_up_to_a_day(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine, file = Machine(), tmp_path / "ages.json"
    ages = machine.ages(file)
    ages.begin()
    ages.keep()
    machine.go_on(MOST_AWAY_MS)
    ages = machine.ages(file)
    ages.begin()
    assert ages() == machine.wall
    assert not caplog.records
    # The machine was off, or its clock is wrong: nobody can tell.
    machine.go_on(10 * DAY)
    ages = machine.ages(file)
    ages.begin()
    assert ages() == START + MOST_AWAY_MS
    assert [record.message for record in caplog.records] == ["broker was away for long, or the clock is wrong"]
    machine.go_on(SETTLED_MS)
    assert ages() == machine.wall


def test_jump_is_left_out_by_the_next_process_too(tmp_path: Path) -> None:
    machine, file = Machine(), tmp_path / "ages.json"
    ages = machine.ages(file)
    machine.wall += 30 * DAY
    ages.keep()
    machine.go_on(KEEP_MS - 1)
    ages.keep()
    ages = machine.ages(file)
    ages.begin()
    assert ages() == START + MOST_AWAY_MS


@pytest.mark.parametrize("text", ["", "{}", '{"time": "x"}', "\0"])
def test_file_that_cannot_be_read_says_nothing(tmp_path: Path, text: str) -> None:
    machine, file = Machine(), tmp_path / "ages.json"
    file.write_text(text)
    ages = machine.ages(file)
    ages.begin()
    assert ages() == START


def test_jump_of_the_clock_takes_no_records_out_of_the_trail(tmp_path: Path) -> None:
    machine = Machine(NOON)
    writer = TrailWriter(tmp_path / "trail", 1, NOON)
    writer.write([passages([(1, NOON + row, 7, 0) for row in range(50)])], NOON + HOUR)
    tracking = TrackingConfig(trail=str(tmp_path / "trail"), keep_days=3)
    config = BrokerConfig(number=1, data=str(tmp_path / "data"), tracking=tracking)
    record = make_record(config, lambda: machine.wall, machine.ages())
    assert record is not None

    def passed() -> int:
        return sum(entry.table == "passages" for entry in pin(tmp_path / "trail", 1).all_entries()[0])

    machine.wall += 30 * DAY
    record.expire()
    assert passed() == 1
    machine.go_on(SETTLED_MS)
    record.expire()
    assert passed() == 0
