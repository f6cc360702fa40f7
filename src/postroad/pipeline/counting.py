"""Counts of what a file of the trail holds, by link and minute: small, and sums of them mean something.

What one broker handed to another in a minute of id time, and what the other says came from it, must be the same once
both have written their records of that minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from postroad.filters import filled_rate
from postroad.tracking import HERE, HistoryKind, HistorySettings
from postroad.trail import Reads, TrailFile, unpack_lists

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from postroad.trail import FileEntry

    Ints = NDArray[np.int64]

__all__ = ["BIN_MS", "COUNTED", "INCREMENTS", "counts_of_file"]

BIN_MS = 60_000
COUNTED = ("passages", "filters", "records", "shed")
# `number` and `other`: a link from the one to the other, or an origin and 0.
INCREMENTS = pa.schema(
    [
        ("about", pa.string()),
        ("number", pa.int64()),
        ("other", pa.int64()),
        ("bin", pa.int64()),
        ("messages", pa.int64()),
    ]
)
# A filter that errs this many times as often as it was made for is out of its budget: beyond what chance does to it.
_OUT_OF_BUDGET = 2.0
# Chance fills a filter of a few keys twice as much as it should; from here on it does not.
_ENOUGH_ENTRIES = 200
_OF_KINDS = {
    HistoryKind.PUBLISHED: "published",
    HistoryKind.FORWARDED: "handed",
    HistoryKind.ARRIVED: "arrived",
    HistoryKind.DELIVERED: "delivered",
}


def counts_of_file(root: Path, broker: int, entry: FileEntry) -> Any:
    """The counts of one file.

    Raises:
        TrailDamageError: the file is damaged.
    """
    file = TrailFile(root, entry, broker, Reads())
    count = {"passages": _passages, "filters": _filters, "records": _records, "shed": _shed}[entry.table]
    parts = [part for part in count(file, broker) if part.num_rows]
    return pa.concat_tables(parts) if parts else INCREMENTS.empty_table()


def _summed(about: str, number: Ints, other: Ints, time: Ints, messages: Ints | None = None) -> Any:
    rows = np.stack([number, other, time // BIN_MS], axis=1)
    known, place = np.unique(rows, axis=0, return_inverse=True)
    sums = np.bincount(place.ravel(), weights=messages, minlength=len(known)).astype(np.int64)
    names = pa.array([about] * len(known), pa.string())
    columns = [names, *(pa.array(known[:, at]) for at in range(3)), pa.array(sums)]
    return pa.Table.from_arrays(columns, schema=INCREMENTS)


def _passages(file: TrailFile, broker: int) -> list[Any]:
    rows = file.read(["time", "origin", "arrived_from", "next_hops", "subscribers"])
    time, origin, came = (rows.column(name).to_numpy() for name in ("time", "origin", "arrived_from"))
    place, hops = _lists(rows, "next_hops")
    taken, _ = _lists(rows, "subscribers")
    entered, passed = came == HERE, came > HERE
    return [
        _summed("published", origin[entered], np.zeros(int(entered.sum()), np.int64), time[entered]),
        _summed("handed", np.full(len(hops), broker), hops, time[place]),
        _summed("arrived", came[passed], np.full(int(passed.sum()), broker), time[passed]),
        _summed("delivered", np.full(len(taken), broker), np.zeros(len(taken), np.int64), time[taken]),
    ]


def _lists(rows: Any, name: str) -> tuple[Ints, Ints]:
    # A column that is empty throughout a file comes without a type.
    offsets, numbers = unpack_lists(rows.column(name).cast(pa.binary()))
    return np.repeat(np.arange(rows.num_rows), np.diff(offsets)), numbers


def _records(file: TrailFile, broker: int) -> list[Any]:
    rows = file.read(["time", "origin", "kind", "subject"])
    time, origin, kind, subject = (rows.column(name).to_numpy() for name in ("time", "origin", "kind", "subject"))
    found = []
    for which, about in _OF_KINDS.items():
        here = kind == which
        own, others = np.full(int(here.sum()), broker), subject[here]
        if about == "published":
            found.append(_summed(about, origin[here], np.zeros_like(own), time[here]))
        elif about == "arrived":
            found.append(_summed(about, others, own, time[here]))
        elif about == "handed":
            found.append(_summed(about, own, others, time[here]))
        else:
            found.append(_summed(about, own, np.zeros_like(own), time[here]))
    return found


def _shed(file: TrailFile, broker: int) -> list[Any]:
    rows = file.read(["time", "subscriber", "link"])
    time, subscriber, link = (rows.column(name).to_numpy() for name in ("time", "subscriber", "link"))
    at_queue, on_link = subscriber > 0, link > 0
    return [
        _summed("shed", np.full(int(at_queue.sum()), broker), np.zeros(int(at_queue.sum()), np.int64), time[at_queue]),
        # A link gave them back before the neighbour had them.
        _summed("returned", np.full(int(on_link.sum()), broker), link[on_link], time[on_link]),
    ]


def _filters(file: TrailFile, broker: int) -> list[Any]:
    """Filters know how many keys they got, but not of which link: sums by origin, over all links."""
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
        zero = np.zeros(int(here.sum()), np.int64)
        name = {"handed": "handed in all", "arrived": "arrived in all"}.get(about, about)
        number = np.full(len(zero), broker) if about == "delivered" else columns["origin"][here]
        # Of the ids of a filter only the range of times is known. What was handed on counts by the last of them and
        # what arrived by the first, so that up to any time arrivals are never missing, and no loss is made up.
        time = last if about == "handed" else first
        found.append(_summed(name, number, zero, time[here], columns["entries"][here]))
    budget = _OUT_OF_BUDGET * HistorySettings().rate
    shapes = zip(columns["method"], columns["bits"], columns["hashes"], columns["ones"], strict=True)
    rates = [filled_rate(int(m), int(k), int(ones)) if method == "bloom" else 0.0 for method, m, k, ones in shapes]
    over = (np.array(rates) > budget) & (columns["entries"] >= _ENOUGH_ENTRIES)
    count = int(over.sum())
    found.append(_summed("over budget", np.full(count, broker), np.zeros(count, np.int64), first[over]))
    return found
