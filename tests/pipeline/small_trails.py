"""Trails of a few messages, for tests of stores and of erasure; and ids to ask about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.lab.trails import Scale
from postroad.messages import MessageId
from postroad.tracking import Aliases, Names, SubscriptionChanges
from postroad.trail import TrailWriter
from tests.pipeline.trails import some_ids
from tests.trail.samples import NOON, passages

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Scale(brokers=3, messages=200, seed=5, publishers=5, subscriptions=3, interests=30, seconds=60, seal_seconds=30)


def asked(trail: Path, folder: Path) -> Path:
    ids = some_ids(trail, 20, seed=2)
    texts = [str(MessageId(publisher, origin, time, counter)) for origin, time, publisher, counter in ids]
    (folder / "ids.txt").write_text("\n".join(texts) + "\n")
    return folder / "ids.txt"


def people(root: Path) -> None:
    """At two brokers: ann subscribes twice and publishes with aliases, bob subscribes and publishes."""
    for broker in (1, 2):
        writer = TrailWriter(root, broker, NOON)
        numbers, times, begins = np.array([5, 6]), np.array([NOON, NOON]), np.array([1, 1], np.int32)
        who = SubscriptionChanges(numbers, times, begins, ["ann", "bob"], ["t", "t"], ["a = 1", ""])
        names = Names(["publisher"] * 2, np.array([7, 8]), times, ["ann", "bob"])
        aliases = Aliases(
            ["order-1", "order-2"], np.array([broker] * 2), times, np.array([7, 8]), np.zeros(2, np.int32)
        )
        rows = passages([(broker, NOON, 7, 0), (broker, NOON, 8, 0)], delivered=[[5, 6], [6]])
        writer.write([who, names, aliases, rows], NOON + 60_000)
        writer.close(NOON + 60_000)
