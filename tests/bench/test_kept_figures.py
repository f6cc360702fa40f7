"""Figures of a benchmark that was cut, and of sections that give none."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from bench.kept_figures import INTERRUPTED, NO_TIME, KeptFigures, NotMeasuredError, digest_of

from bench import pipeline

if TYPE_CHECKING:
    from pathlib import Path


def never() -> dict[str, Any]:
    raise AssertionError("measured again")


def test_run_that_was_cut_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = KeptFigures(tmp_path / "figures", "of these sources")

    def cut() -> dict[str, Any]:
        raise KeyboardInterrupt

    assert first.measure("one", lambda: {"figure": 1}) == {"figure": 1}
    assert first.measure("two", cut) is None
    assert first.measure("three", never) is None
    assert first.skipped == {"two": INTERRUPTED, "three": INTERRUPTED}
    again = KeptFigures(tmp_path / "figures", "of these sources")
    assert again.measure("one", never) == {"figure": 1}
    assert again.measure("two", lambda: {"figure": 2}) == {"figure": 2}
    assert sorted(again.loads()) == ["one", "two"]
    assert not again.skipped
    other = KeptFigures(tmp_path / "figures", "of other sources")
    assert other.of("one") is None


def test_section_that_fails_or_has_no_room_leaves_the_others(tmp_path: Path) -> None:
    kept = KeptFigures(tmp_path / "figures", "")

    def no_room() -> dict[str, Any]:
        raise NotMeasuredError("no room")

    def fails() -> dict[str, Any]:
        raise ValueError("wrong\nin many lines")

    assert kept.measure("large", no_room) is None
    assert kept.measure("wrong", fails) is None
    assert kept.measure("small", lambda: {"figure": 3}) == {"figure": 3}
    assert kept.skipped == {"large": "no room", "wrong": "failed: ValueError: wrong"}
    assert kept.failed == ["wrong"]


def test_file_that_was_cut_off_is_measured_anew(tmp_path: Path) -> None:
    (tmp_path / "figures").write_text('{"one": {"figures": {"fig')
    assert KeptFigures(tmp_path / "figures", "").measure("one", lambda: {"figure": 4}) == {"figure": 4}


def test_digest_changes_with_the_sources(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "one.py").write_text("1")
    before = digest_of([tmp_path])
    (tmp_path / "below" / "one.py").write_text("2")
    assert digest_of([tmp_path]) != before


def test_last_line_is_json_though_nothing_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--quick", "--only", "loop", "--minutes", "1e-9", "--work", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["pipeline", *words])
    with pytest.raises(SystemExit) as end:
        pipeline.main()
    assert end.value.code == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [told[name] for name in pipeline.TARGETS] == [None] * len(pipeline.TARGETS)
    assert told["not_measured"]["loop@200000"] == NO_TIME
    assert told["not_measured"]["small"].startswith("not asked for")
