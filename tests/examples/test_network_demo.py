"""The demonstration of a network: the whole story without Spark, and how it looks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from examples.demo_view import DemoView

from examples import demo

if TYPE_CHECKING:
    import pytest


def test_demo_kills_a_broker_and_traces_messages_of_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--messages", "100", "--without-spark", "--json"]) == 0
    output = capsys.readouterr()
    *traces, report = output.out.splitlines()
    figures = json.loads(report)
    assert figures["messages"] >= 100 + demo.ROUND_MESSAGES
    assert figures["deliveries_seen_by_clients"] > 0
    told = "\n".join(traces)
    for verdict in ("delivered", "matched nobody", "never accepted"):
        assert verdict in told
    for part in ("kill -9", "were wanted, and arrived", "stopped 5 brokers", "left out: you asked for it"):
        assert part in output.err
    assert "\x1b" not in output.err


def test_report_tells_what_to_try_next() -> None:
    text = demo.text_of({"messages": 1, "deliveries_seen_by_clients": 2})
    assert "What to try next" in text
    assert "Spark," not in text


def test_demo_is_plain_in_a_log_and_coloured_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for terminal in (False, True):
        view = DemoView(terminal)
        view.chapter("A chapter")
        view.command("postroad trace [x]")
        view.output("├── [not markup]")
        with view.busy("working"):
            pass
        told = capsys.readouterr().err
        assert "postroad trace [x]" in told
        assert "├── [not markup]" in told
        assert ("\x1b[" in told) is terminal
