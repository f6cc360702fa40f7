"""Trails that grow while they are followed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from postroad.lab.trails import Faults, Scale, read_truth
from postroad.pipeline.alerts import read_totals
from postroad.pipeline.counts import BIN_MS

if TYPE_CHECKING:
    from pathlib import Path


SCALE = Scale(
    brokers=5,
    messages=800,
    seed=31,
    publishers=10,
    subscriptions=4,
    interests=60,
    seconds=240,
    seal_seconds=40,
    faults=Faults(lost=0.02),
)


LATER = SCALE.end + 10_000_000


def expected(trail: Path) -> dict[str, Counter[tuple[int, int, int]]]:
    """What the truth says was relayed and what arrived, by link and minute."""
    relayed: Counter[tuple[int, int, int]] = Counter()
    arrived: Counter[tuple[int, int, int]] = Counter()
    accepted: Counter[tuple[int, int, int]] = Counter()
    for row in read_truth(trail).to_pylist():
        spot = row["time"] // BIN_MS
        accepted[row["origin"], 0, spot] += 1
        for hop in row["path"]:
            arrived[hop >> 32, hop & 0xFFFFFFFF, spot] += 1
    return {"accepted": accepted, "arrived": arrived, "relayed": relayed}


def check(trail: Path, out: Path) -> None:
    truth, totals = expected(trail), read_totals(out)
    assert totals.of("accepted") == truth["accepted"]
    assert totals.of("arrived") == truth["arrived"]
    lost = sum(row["lost"] > 0 for row in read_truth(trail).to_pylist())
    assert sum(totals.of("relayed").values()) - sum(totals.of("arrived").values()) == lost > 0
