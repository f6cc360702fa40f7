"""Trails to try jobs on, made once; and evidence brought together without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from postroad.lab.trails import Faults, Scale, read_truth, write_trail
from postroad.pipeline.evidence import ASKED, COLUMNS, JOURNEY, PASSAGE, RECORD, SHED
from postroad.pipeline.tables import ID
from postroad.tracking import Lists, Passages
from postroad.trail import pin
from postroad.trail.coverage import GapReason, run_of_file
from postroad.trail.locations import put_file, relative

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.trail.locations import Location

# Everything goes wrong in it: losses, queues that shed, acknowledgements, brokers without a record for some seconds.
TROUBLED = Scale(
    brokers=8,
    messages=3_000,
    seed=11,
    publishers=20,
    subscriptions=5,
    interests=200,
    seconds=120,
    seal_seconds=40,
    faults=Faults(lost=0.05, shed=0.05, acknowledging=0.4, gaps=2),
)

_ARROW = {"bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary(), "string": pa.string(), "double": pa.float64()}
EVIDENCE = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS.items()])

_TABLES: dict[str, tuple[int, dict[str, str]]] = {
    "journeys": (JOURNEY, {"path": "relayed_to"}),
    "passages": (PASSAGE, {}),
    "shed": (SHED, {}),
    "records": (RECORD, {"kind": "link", "subject": "subscription"}),
}


Told = tuple[int, int, int, list[int], list[int]]


def passages(*rows: Told) -> Passages:
    """What a broker saw of messages of publisher 7: origin, time, where from, where to, subscriptions."""
    told, none = sorted(rows), Lists(np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.int64))

    def lists(place: int) -> Lists:
        each: list[Any] = [row[place] for row in told]
        offsets = np.cumsum([0, *map(len, each)]).astype(np.int64)
        return Lists(offsets, np.array([number for one in each for number in one], np.int64))

    origin, time, came = (np.array([row[place] for row in told], np.int64) for place in range(3))
    publisher, counter = np.full(len(told), 7, np.int64), np.zeros(len(told), np.int32)
    return Passages(origin, time, publisher, counter, came, lists(3), lists(4), none, none, none)


def make_trail(folder: Path, scale: Scale = TROUBLED) -> Path:
    write_trail(folder, scale)
    return folder


def copied(trail: Path, place: Location) -> None:
    """Put all files of a trail into a store, as brokers ship them."""
    for path in sorted(trail.rglob("*")):
        if path.is_file() and path.parent != trail:
            put_file(place / relative(path, trail), memoryview(path.read_bytes()))


def as_of_the_trail(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Verdicts of a copy as its trail would give them: a copy cannot deny what may not be shipped yet."""

    def is_denied(row: dict[str, Any]) -> bool:
        reasons = {gap["reason"] for gap in row["gaps"]}
        return row["verdict"] == "not recorded" and reasons == {GapReason.NOT_SHIPPED.value}

    denied = {"verdict": "never accepted", "certainty": 1.0, "gaps": []}
    return [row | denied if is_denied(row) else row for row in rows]


def some_ids(trail: Path, count: int, seed: int = 1) -> list[tuple[int, ...]]:
    """Some ids of the trail, and as many that never existed."""
    truth = read_truth(trail)
    random = np.random.default_rng(seed)
    rows = truth.take(pa.array(random.choice(truth.num_rows, count, replace=False))).to_pylist()
    known = [tuple(row[name] for name in ID) for row in rows]
    return known + [(origin, time, publisher, 40_000) for origin, time, publisher, _ in known]


def evidence_of(trail: Path, ids: list[tuple[int, ...]]) -> Any:
    """What the trail has of some ids, sorted as jobs sort it."""
    rows: list[dict[str, Any]] = [
        {**dict(zip(ID, one, strict=True)), "source": ASKED, "asked": str(number)} for number, one in enumerate(ids)
    ]
    wanted = set(ids)
    for folder in sorted((trail / "manifests").iterdir()):
        broker = int(folder.name.partition("=")[2])
        for entry in pin(trail, broker).all_entries()[0]:
            if entry.table in _TABLES:
                rows += _rows(trail / entry.path, broker, *_TABLES[entry.table], wanted)
    rows.sort(key=lambda row: (*(row[name] for name in ID), row["source"], row.get("broker", 0)))
    return pa.Table.from_pylist(rows, schema=EVIDENCE)


def _rows(
    path: Path, broker: int, source: int, renamed: dict[str, str], wanted: set[tuple[int, ...]]
) -> list[dict[str, Any]]:
    found = pq.ParquetFile(path).read().to_pylist()
    return [
        {
            **{renamed.get(name, name): value for name, value in row.items()},
            "source": source,
            "broker": broker,
            "run": run_of_file(path.name),
        }
        for row in found
        if tuple(row[name] for name in ID) in wanted
    ]
