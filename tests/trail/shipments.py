"""Trails to ship, and what is in a place that one was shipped to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.messages import MessageId
from postroad.trail import Trail, TrailWriter, pin
from postroad.trail.ledger import CHECKPOINT_EVERY
from postroad.trail.locations import relative
from tests.trail.samples import HOUR, NOON, passages

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.tracking import Verdict
    from postroad.trail import FileEntry
    from postroad.trail.locations import Location

LATER = NOON + HOUR


def written(root: Path, commits: int = 3, broker: int = 1) -> TrailWriter:
    """A trail of some commits, one message each, told as complete up to the last."""
    writer = TrailWriter(root, broker, NOON - HOUR)
    for commit in range(commits):
        more(writer, commit)
    return writer


def more(writer: TrailWriter, commit: int) -> None:
    at = NOON + 60_000 * commit
    writer.write([passages([(writer.broker, at, 7, 0)], delivered=[[3]])], at + 30_000)
    writer.maintain(at + 30_000)


def message(commit: int, broker: int = 1) -> MessageId:
    return MessageId(7, broker, NOON + 60_000 * commit, 0)


def files_below(root: Location) -> dict[str, bytes]:
    """What is in a trail, but for what only shipping needs."""
    folders = [one for one in root.iterdir() if one.is_dir() and one.name not in ("shipped", "locks")]
    found = {}
    while folders:
        for one in folders.pop().iterdir():
            if one.is_dir():
                folders.append(one)
            else:
                found[relative(one, root)] = one.read_bytes()
    return found


def first_file(root: Path) -> FileEntry:
    return min(pin(root, 1).all_entries("passages")[0], key=lambda one: one.time_from)


def verdict(root: Location, commit: int) -> tuple[Verdict, float]:
    told = Trail(root).trace(message(commit)).journey
    return told.verdict, told.certainty


def idle(writer: TrailWriter, at: int) -> None:
    """Commits in which nothing is told, and their checkpoint."""
    for commit in range(CHECKPOINT_EVERY):
        writer.write([], at + commit)
        writer.maintain(at + commit)
