"""Counts of what a file of the trail holds, by link and minute. They are small and can be added up.

What one broker relayed to another in a minute of id time, and what the other says arrived from it, must be equal once
both have written their records of that minute.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.capacity import ROUND_MS
from postroad.filters import filled_rate
from postroad.pipeline.tables import ID
from postroad.tracking import HERE, HistoryKind, HistorySettings
from postroad.tracking.reasons import Detour
from postroad.trail import Reads, TrailFile, unpack_lists

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from postroad.trail import FileEntry
    from postroad.trail.locations import Location

    Ints = NDArray[np.int64]

__all__ = ["ABOUT", "BIN_MS", "COUNTED", "INCREMENTS", "begun_at", "counts_of_file", "retold_after"]

BIN_MS = 60_000
COUNTED = ("passages", "filters", "records", "shed", "timings")
# `number` and `other` hold: for a link, its two ends; for an origin, the origin and 0; for messages relayed according
# to filters, the origin and the filter's first minute; for the start of following, the broker and the time.
INCREMENTS = pa.schema(
    [
        ("about", pa.string()),
        ("number", pa.int64()),
        ("other", pa.int64()),
        ("bin", pa.int64()),
        ("messages", pa.int64()),
    ]
)
# What a count may be about. An earlier format used other words.
ABOUT = frozenset(
    {
        "begun",
        "accepted",
        "relayed",
        "relayed in all",
        "arrived",
        "arrived in all",
        "delivered",
        "shed",
        "returned",
        "over budget",
        "timed reads",
        "timed messages",
        "timed nanoseconds",
        "publisher squares",
        "accepted squares",
    }
)
# A filter with this many times its planned error rate is out of budget: chance alone does not cause that.
_OUT_OF_BUDGET = 2.0
# Chance can fill a filter of few keys twice as much as planned; from this size on it does not.
_ENOUGH_ENTRIES = 200
_OF_KINDS = {
    HistoryKind.ACCEPTED: "accepted",
    HistoryKind.RELAYED: "relayed",
    HistoryKind.ARRIVED_FROM: "arrived",
    HistoryKind.DELIVERED: "delivered",
}


class Earlier(NamedTuple):
    """Rows of the files that were there before a journal was replayed."""

    files: tuple[TrailFile, ...]

    def without(self, rows: Any, names: list[str]) -> Any:
        """Return the rows that none of the earlier files has."""
        for file in self.files:
            rows = rows.join(file.read(names), keys=names, join_type="left anti")
        return rows


def retold_after(entry: FileEntry) -> int | None:
    """Return the manifest number after which a journal was replayed into this file; None for an ordinary file.

    A run names its files by its number and a count. If it was resumed after a crash, the manifest number is in between.
    """
    words = PurePath(entry.path).stem.split("-")
    return int(words[1]) if len(words) == 3 and all(word.isdecimal() for word in words) else None


def counts_of_file(root: Location, broker: int, entry: FileEntry, earlier: Iterable[FileEntry] | None = None) -> Any:
    """The counts of one file.

    Args:
        root: the trail.
        broker: whose file.
        entry: the file.
        earlier: for a file with a replayed journal, files that may hold the same rows; those rows are not counted
            again.

    Raises:
        TrailDamageError: the file is damaged.
    """
    file = TrailFile(root, entry, broker, Reads())
    known = None
    if earlier is not None:
        same = [one for one in earlier if one.table == entry.table and (root / one.path).exists()]
        near = [one for one in same if one.time_from <= entry.time_to and one.time_to >= entry.time_from]
        known = Earlier(tuple(TrailFile(root, one, broker, Reads()) for one in near))
    count = {"passages": _passages, "filters": _filters, "records": _records, "shed": _shed, "timings": _timings}[
        entry.table
    ]
    parts = [part for part in count(file, broker, known) if part.num_rows]
    return pa.concat_tables(parts) if parts else INCREMENTS.empty_table()


def begun_at(broker: int, through: int) -> Any:
    """Record that a broker is followed from a time on: what it committed before can no longer be told apart."""
    return pa.Table.from_arrays([pa.array([value]) for value in ("begun", broker, through, 0, 1)], schema=INCREMENTS)


def _summed(about: str, number: Ints, other: Ints, time: Ints, messages: Ints | None = None) -> Any:
    rows = np.stack([number, other, time // BIN_MS], axis=1)
    known, place = np.unique(rows, axis=0, return_inverse=True)
    sums = np.bincount(place.ravel(), weights=messages, minlength=len(known)).astype(np.int64)
    names = pa.array([about] * len(known), pa.string())
    columns = [names, *(pa.array(known[:, at]) for at in range(3)), pa.array(sums)]
    return pa.Table.from_arrays(columns, schema=INCREMENTS)


def _passages(file: TrailFile, broker: int, earlier: Earlier | None) -> list[Any]:
    names = ["time", "origin", "arrived_from", "relayed_to", "delivered", "publisher"]
    if earlier is not None:
        names += ["counter"]
    rows = file.read(names)
    facts = _facts(rows)
    for one in () if earlier is None else earlier.files:
        known = one.read(names)
        known_facts = _facts(known)
        facts = {about: _fresh(rows, here, known, known_facts[about]) for about, here in facts.items()}
    time, origin = rows.column("time").to_numpy(), rows.column("origin").to_numpy()
    (entered, zero), (place, hops), (passed, came), (taken, _) = facts.values()
    return [
        _summed("accepted", origin[entered], zero, time[entered]),
        _summed("relayed", np.full(len(hops), broker), hops, time[place]),
        _summed("arrived", came, np.full(len(came), broker), time[passed]),
        _summed("delivered", np.full(len(taken), broker), np.zeros(len(taken), np.int64), time[taken]),
        *_squares(broker, rows.column("publisher").to_numpy()[entered], time[entered]),
    ]


def _squares(broker: int, publisher: Ints, time: Ints) -> list[Any]:
    """Return sums of squares per ten minutes, in all and by publisher; they give the effective number of publishers.

    They are taken within one file, which holds about a minute. Sums over files keep the meaning of their ratio.
    """
    spots = time // ROUND_MS * ROUND_MS
    known, counts = np.unique(np.stack([spots, publisher], axis=1), axis=0, return_counts=True)
    every, totals = np.unique(spots, return_counts=True)
    return [
        _summed(about, np.full(len(at), broker), np.zeros(len(at), np.int64), at, amount.astype(np.int64) ** 2)
        for about, at, amount in (("publisher squares", known[:, 0], counts), ("accepted squares", every, totals))
    ]


def _timings(file: TrailFile, broker: int, earlier: Earlier | None) -> list[Any]:
    names = ["at", "messages", "nanoseconds"]
    rows = file.read(names) if earlier is None else earlier.without(file.read(names), names)
    at, messages, nanoseconds = (rows.column(name).to_numpy().astype(np.int64) for name in names)
    spots, own, zero = at // ROUND_MS * ROUND_MS, np.full(len(at), broker), np.zeros(len(at), np.int64)
    sums = {"timed reads": None, "timed messages": messages, "timed nanoseconds": nanoseconds}
    return [_summed(about, own, zero, spots, amount) for about, amount in sums.items()]


def _facts(rows: Any) -> dict[str, tuple[Ints, Ints]]:
    """Return what passages say, by kind of fact: the row, and the broker or subscription it is about."""
    came = rows.column("arrived_from").to_numpy()
    entered, passed = np.flatnonzero(came == HERE), np.flatnonzero(came > HERE)
    return {
        "accepted": (entered, np.zeros(len(entered), np.int64)),
        "relayed": _lists(rows, "relayed_to"),
        "arrived": (passed, came[passed]),
        "delivered": _lists(rows, "delivered"),
    }


def _fresh(rows: Any, facts: tuple[Ints, Ints], known: Any, known_facts: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Return the facts that no other row has already given."""

    def keys(of: Any, place: Ints, other: Ints) -> Any:
        return of.select(list(ID)).take(pa.array(place)).append_column("other", pa.array(other))

    here = keys(rows, *facts).append_column("place", pa.array(facts[0]))
    left = here.join(keys(known, *known_facts), keys=[*ID, "other"], join_type="left anti")
    return left.column("place").to_numpy(), left.column("other").to_numpy()


def _lists(rows: Any, name: str) -> tuple[Ints, Ints]:
    # A column that is empty in the whole file has no type.
    offsets, numbers = unpack_lists(rows.column(name).cast(pa.binary()))
    return np.repeat(np.arange(rows.num_rows), np.diff(offsets)), numbers


def _records(file: TrailFile, broker: int, earlier: Earlier | None) -> list[Any]:
    rows = _rows(file, ["time", "origin", "kind", "subject"], earlier)
    time, origin, kind, subject = (rows.column(name).to_numpy() for name in ("time", "origin", "kind", "subject"))
    found = []
    for which, about in _OF_KINDS.items():
        here = kind == which
        own, others = np.full(int(here.sum()), broker), subject[here]
        if about == "accepted":
            found.append(_summed(about, origin[here], np.zeros_like(own), time[here]))
        elif about == "arrived":
            found.append(_summed(about, others, own, time[here]))
        elif about == "relayed":
            found.append(_summed(about, own, others, time[here]))
        else:
            found.append(_summed(about, own, np.zeros_like(own), time[here]))
    return found


def _rows(file: TrailFile, names: list[str], earlier: Earlier | None) -> Any:
    """Return rows of messages that no earlier file has."""
    if earlier is None:
        return file.read(names)
    wanted = [*names, *(name for name in ID if name not in names)]
    return earlier.without(file.read(wanted), wanted)


def _shed(file: TrailFile, broker: int, earlier: Earlier | None) -> list[Any]:
    rows = _rows(file, ["time", "subscription", "link", "reason"], earlier)
    time, subscription, link = (rows.column(name).to_numpy() for name in ("time", "subscription", "link"))
    # Messages that did not fit into a link were never relayed over it.
    at_queue, on_link = subscription > 0, (link > 0) & pc.equal(rows.column("reason"), Detour.RETURNED.value).to_numpy()
    return [
        _summed("shed", np.full(int(at_queue.sum()), broker), np.zeros(int(at_queue.sum()), np.int64), time[at_queue]),
        # A link returned these before the neighbour had them.
        _summed("returned", np.full(int(on_link.sum()), broker), link[on_link], time[on_link]),
    ]


def _filters(file: TrailFile, broker: int, earlier: Earlier | None) -> list[Any]:
    """Count what filters hold: they know how many keys they got, but not from which link, so sums are by origin.

    They do not know which keys an earlier filter also has. So only arrivals count for a replayed journal.
    """
    names = [
        "kind",
        "origin",
        "time_from",
        "time_to",
        "opened",
        "entries",
        "capacity",
        "method",
        "bits",
        "hashes",
        "ones",
    ]
    rows = file.read(names)
    columns = {name: rows.column(name).to_numpy(zero_copy_only=False) for name in names}
    bounded = columns["time_from"] <= columns["time_to"]
    first, last = (np.where(bounded, columns[name], columns["opened"]) for name in ("time_from", "time_to"))
    found = []
    for which, about in _OF_KINDS.items():
        here = columns["kind"] == which
        if about == "relayed" and earlier is not None:
            continue
        zero = np.zeros(int(here.sum()), np.int64)
        name = {"relayed": "relayed in all", "arrived": "arrived in all"}.get(about, about)
        number = np.full(len(zero), broker) if about == "delivered" else columns["origin"][here]
        # A filter only gives the time range of its ids. Relayed messages count at the end of the range and arrived
        # messages at its start. So up to any time no arrival is missing, and no false loss is reported.
        time = last if about == "relayed" else first
        other = first[here] // BIN_MS if about == "relayed" else zero
        found.append(_summed(name, number, other, time[here], columns["entries"][here]))
    budget = _OUT_OF_BUDGET * HistorySettings().rate
    shapes = zip(columns["method"], columns["bits"], columns["hashes"], columns["ones"], strict=True)
    rates = [filled_rate(int(m), int(k), int(ones)) if method == "bloom" else 0.0 for method, m, k, ones in shapes]
    over = (np.array(rates) > budget) & (columns["entries"] >= _ENOUGH_ENTRIES)
    count = int(over.sum())
    found.append(_summed("over budget", np.full(count, broker), np.zeros(count, np.int64), first[over]))
    return found
