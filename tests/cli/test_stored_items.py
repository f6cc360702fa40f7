"""What `postroad queues show` and `postroad subscriptions show` print of an item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.cli.stored_items import echo_fields

if TYPE_CHECKING:
    import pytest


def test_times_are_printed_for_people_and_nothing_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    echo_fields("a/b", {"created": 1_794_998_202_255, "stopped": 0, "session_now": None, "shed": 2, "topic": "a\x1b"})
    rows = {name.strip(): value.strip() for _, name, value, _ in (line.split("│") for line in _lines(capsys))}
    assert rows["created"] == "2026-11-18 10:36:42.255 UTC"
    assert (rows["stopped"], rows["session now"], rows["shed"]) == ("no", "none", "2")
    assert "\x1b" not in rows["topic"]


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
