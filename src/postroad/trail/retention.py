"""Retention: removes old files by age and by size, and deletes files that no reader can be using any more.

Removing a file from the manifest and deleting it are two steps with a grace period between them: a reader that pinned
the manifest before can continue to read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from postroad.trail.columns import DAY_MS
from postroad.trail.coverage import FOREVER
from postroad.trail.durable_files import TEMPORARY
from postroad.trail.errors import TrailDamageError
from postroad.trail.ledger import Ledger
from postroad.trail.manifest import Checkpoint, change_name, checkpoint_name, decoded, numbers
from postroad.trail.paths import delete_below
from postroad.trail.schemas import STANDING_TABLES, TABLES

if TYPE_CHECKING:
    from postroad.trail.files import FileEntry
    from postroad.trail.snapshot import Pinned

__all__ = ["DEFAULT_GRACE_MS", "Expired", "expire", "sweep", "sweep_leftovers", "sweep_manifests"]

# A trace takes milliseconds, a job over all of the trail an hour: a reader that pinned a manifest is done by then.
DEFAULT_GRACE_MS = 6 * 3_600_000
# A broker that crashed is started again within this time, or what it left unfinished stays: some files at most.
CRASHED_LATELY_MS = 7 * DAY_MS
# A message may have passed a broker so long before its id's time, by the broker's clock (`reader.DEFAULT_SKEW_MS`).
CLOCKS_APART_MS = 5_000


class Expired(NamedTuple):
    """What retention took out of a manifest."""

    files: int
    bytes: int
    retained_since: int


def expire(
    root: str | Path, broker: int, now: int, max_age_ms: int | None = None, max_bytes: int | None = None
) -> Expired:
    """Take out whole files: all whose rows are older than an age, then the oldest until the rest is small enough.

    Raises:
        TrailWriteError: the disk does not take the new manifest; nothing changed.
        TrailConflictError: another writer took one of the files out in the meantime; call again.
    """
    ledger = Ledger(Path(root), broker)
    state = ledger.pin()
    if max_bytes is None and (max_age_ms is None or _oldest_day(state) * DAY_MS >= now - max_age_ms):
        return Expired(0, 0, state.retained_since)
    entries = sorted(state.all_entries()[0], key=lambda entry: (entry.time_to, entry.path))
    cutoff = 0 if max_age_ms is None else now - max_age_ms
    excess = 0 if max_bytes is None else sum(entry.size for entry in entries) - max_bytes
    going: list[FileEntry] = []
    for entry in entries:
        if entry.table in STANDING_TABLES or _is_needed(entry, state):
            continue
        if entry.time_to < cutoff or excess > 0:
            going.append(entry)
            excess -= entry.size
    # Of messages up to the latest one that went, others may be left: no answer about them is complete.
    about_messages = [entry.time_to + 1 for entry in going if TABLES[entry.table].origin]
    since = max([state.retained_since, *about_messages])
    going += [entry for entry in entries if entry.table in STANDING_TABLES and _outlived(entry, max(cutoff, since))]
    if not going:
        return Expired(0, 0, state.retained_since)
    ledger.replace(now, [entry.path for entry in going], retained_since=since)
    return Expired(len(going), sum(entry.size for entry in going), since)


def _oldest_day(state: Pinned) -> int:
    """The first day that any file has something of: known without reading the parts of the manifest."""
    parts = state.checkpoint.parts if state.checkpoint else ()
    return min(
        [
            *(max(part.day, 0) for part in parts),
            *(entry.time_from // DAY_MS for change in state.changes for entry in change.added),
        ],
        default=FOREVER,
    )


def _outlived(entry: FileEntry, kept: int) -> bool:
    """Whether no question about a message that is kept needs to know who came or went then.

    Filters are asked about those who were there, and what stands is repeated with each day.
    """
    return (entry.time_to // DAY_MS + 1) * DAY_MS + CLOCKS_APART_MS <= kept


def _is_needed(entry: FileEntry, state: Pinned) -> bool:
    """Publishers of the run that continues were named when they came, perhaps long ago."""
    return entry.table == "names" and bool(state.runs) and entry.time_to >= state.runs[-1].since


def sweep_manifests(ledger: Ledger, before: int) -> int:
    """Delete manifests that a checkpoint has summed up since before a time; returns how many files went."""
    folder = ledger.folder.relative_to(ledger.root).as_posix()
    return sum(delete_below(ledger.root, f"{folder}/{name}") for name in _summed_up(ledger, before))


def sweep(root: str | Path, broker: int, now: int, grace_ms: int = DEFAULT_GRACE_MS) -> int:
    """Delete what no manifest has named for a grace period, and manifests that a checkpoint has summed up since then.

    Answers how many files went. What cannot be deleted is left for the next time.
    """
    base = Path(root)
    ledger = Ledger(base, broker)
    state = ledger.pin()
    doomed = [(one.path, one.since) for one in (state.checkpoint.doomed if state.checkpoint else ())]
    doomed += [(gone.path, change.at) for change in state.changes for gone in change.removed]
    gone = [path for path, since in doomed if since + grace_ms <= now]
    return sum(delete_below(base, path) for path in gone) + sweep_manifests(ledger, now - grace_ms)


def _summed_up(ledger: Ledger, before: int) -> list[str]:
    """Manifests and parts that only readers of before a time can need, from the folder of the manifests."""
    folder = ledger.folder
    changes, checkpoints = numbers(folder)
    kept: list[Checkpoint] = []
    enough = False
    for number in reversed(checkpoints):
        path = folder / checkpoint_name(number)
        try:
            kept.append(decoded(path.read_bytes(), Checkpoint, path, ledger.broker))
        except (OSError, TrailDamageError):
            return []
        # One more than needed is kept, with all changes since: should the later be damaged, nothing is lost.
        if enough:
            break
        enough = kept[-1].at <= before
    else:
        return []
    base = kept[-1].number
    named = {part.path for checkpoint in kept for part in checkpoint.parts}
    parts = [path for path in folder.glob("parts/*.parquet") if f"parts/{path.name}" not in named]
    # A part that no checkpoint names yet may be of one that is being made.
    old = [f"parts/{path.name}" for path in parts if _part_number(path) < base]
    found = [change_name(number) for number in changes if number <= base]
    found += [checkpoint_name(number) for number in checkpoints if number < base]
    return [*found, *old]


def _part_number(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def sweep_leftovers(root: str | Path, broker: int, run: int) -> int:
    """Delete what runs before the given one left unfinished. For the start of a broker, off its loop.

    Only files named after an earlier run go: others may be a compaction's, not committed yet. It looks at all files,
    but only after a recent crash; and where a part of the manifest cannot be read, it deletes nothing, because any
    file may be named there.
    """
    base = Path(root)
    state = Ledger(base, broker).pin()
    begun = next((one.since for one in state.runs if one.number == run), FOREVER)
    earlier = [one for one in state.runs if one.number < run and one.through >= begun - CRASHED_LATELY_MS]
    if all(one.closed for one in earlier):
        return 0
    entries, unread = state.all_entries()
    if unread or state.warnings or state.other_version:
        return 0
    live = {entry.path for entry in entries}
    live |= {one.path for one in (state.checkpoint.doomed if state.checkpoint else ())}
    live |= {gone.path for change in state.changes for gone in change.removed}
    found = 0
    for table in TABLES:
        for path in (base / table / f"broker={broker}").glob("date=*/*"):
            owner = path.name.partition("-")[0]
            ours = owner.isdecimal() and int(owner) < run
            name = path.relative_to(base).as_posix()
            if ours and (path.name.endswith(TEMPORARY) or name not in live):
                found += delete_below(base, name)
    return found
