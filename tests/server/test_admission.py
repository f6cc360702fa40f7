"""Who may be at the other end of a link."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from postroad.config import NetworkConfig
from postroad.server.admission import LOGGED_MS, LinkAdmission

if TYPE_CHECKING:
    import pytest


def test_refusals_of_a_neighbour_are_all_counted_and_seldom_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A neighbour that is refused a thousand times in a second does not fill the disk with it."""
    times = [*range(1_000), LOGGED_MS, LOGGED_MS + 1]
    clock = iter([times[0], *times])
    admission = LinkAdmission(NetworkConfig(), lambda: next(clock))
    with caplog.at_level(logging.INFO, "postroad.links"):
        admission.refused(2, "another neighbour has a line of its own")
        for _ in times:
            admission.refused(1, "a record of nobody")
    assert admission.counts(1) == (len(times), 0)
    assert [vars(record)["neighbour"] for record in caplog.records] == [2, 1, 1]
