"""Thousands of crashes, each checked against what the owner of the store was told."""

from __future__ import annotations

import os

import pytest

from tests.store.oracle import Fsync, Owner

SEEDS = range(400) if os.environ.get("POSTROAD_THOROUGH") else range(8)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("fsync", "power"), [("always", True), ("always", False), ("interval", True), ("never", False)]
)
def test_crash_between_any_two_steps_leaves_what_was_promised(seed: int, fsync: Fsync, power: bool) -> None:
    owner = Owner(seed, fsync, power)
    while owner.crash_points < 120:
        # At each crash point the owner compares what comes back with what was promised.
        owner.act()
    assert owner.sent, "there was something to lose"
