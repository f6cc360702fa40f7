"""How far a job is: a bar in a terminal, lines in a log, and nothing for a job that takes no time."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from rich.progress import Progress

from postroad.cli.job_progress import LINE_SECONDS, JobProgress

if TYPE_CHECKING:
    import pytest


class Watch:
    """A clock that goes when it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_log_gets_a_line_now_and_then_with_how_many_messages_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch()
    with JobProgress("trace", watch, is_terminal=False) as progress:
        progress.tell("reading the ids")
        for done in range(0, 100, 10):
            progress.show(done * 1_000, 100_000)
            watch.now += LINE_SECONDS / 4
        progress.tell("writing trace")
    assert capsys.readouterr().err.splitlines() == [
        "postroad: trace: 40,000 of 100,000 messages",
        "postroad: trace: 80,000 of 100,000 messages",
    ]


def test_terminal_gets_a_bar_that_counts_messages_and_starts_anew_with_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    bars: list[Progress] = []

    def made(*columns: Any, **options: Any) -> Progress:
        bars.append(Progress(*columns, **options))
        return bars[-1]

    monkeypatch.setattr("rich.progress.Progress", made)
    with JobProgress("audit", is_terminal=True) as progress:
        progress.tell("reconciling")
        progress.show(1_500, 3_000)
        (bar,) = bars
        (task,) = bar.tasks
        assert (task.description, task.completed, task.total) == ("audit: reconciling", 1_500, 3_000)
        bar.refresh()
        progress.tell("writing reconciliation")
        assert (task.completed, task.fields["counts"]) == (0, "")
    shown = screen.getvalue()
    assert "1,500 of 3,000 messages" in shown
