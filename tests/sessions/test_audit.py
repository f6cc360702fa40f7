"""Refusals are counted one by one, and logged in bounded lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.sessions.audit import MOST_LINES, Audit

if TYPE_CHECKING:
    import pytest


def test_a_flood_of_refusals_is_counted_in_full_and_logged_in_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit()
    for number in range(MOST_LINES + 7):
        audit.refused("login refused", address=str(number))
    audit.doubted("subscription doubtful", topic="#")
    assert len(caplog.records) == MOST_LINES
    audit.look()
    last = caplog.records[-1]
    assert last.getMessage() == "more refused"
    assert (last.__dict__["login_refused"], last.__dict__["subscription_doubtful"]) == (7, 1)
    audit.look()
    audit.refused("login refused", address="later")
    assert len(caplog.records) == MOST_LINES + 2
