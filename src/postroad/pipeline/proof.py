"""The proof before a compaction commits: a sample of ids is traced in the old trail and in the new one.

Every id must have the same brokers and subscriptions as before. A merged filter may only add doubted answers within the
error rate that the filters were planned for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.pipeline.erasure import ERASED, Erased
from postroad.pipeline.errors import PipelineError
from postroad.pipeline.jobs.trace import trace_ids
from postroad.pipeline.sources import SourceFile
from postroad.pipeline.tables import ID, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from postroad.pipeline.changes import Changes
    from postroad.pipeline.job_run import JobRun

__all__ = ["differences", "drawn", "prove", "same_rows", "sample_of"]

# Ids of the sample that never existed have counters shifted by this: a negative answer must stay negative.
_STRANGE = 30_000
_EXACT = ("verdict", "certainty", "brokers", "delivered", "acknowledged", "lost")


def same_rows(what: str, before: int, after: int) -> None:
    """Refuse to continue unless every row that is removed is in what replaces it.

    Raises:
        PipelineError: rows are missing, or there are more of them.
    """
    if before != after:
        raise PipelineError(
            f"{what}: {before:,} rows would be taken out, and what takes their place has {after:,} of them; "
            "nothing was changed, the trail is as it was"
        )


def prove(run: JobRun[Any], changes: Changes, size: int, *, without: Erased | None = None) -> dict[str, int]:
    """Trace a sample of what is removed in both trails; after an erasure, the erased subscriptions must be gone.

    Raises:
        PipelineError: the answers differ; nothing was committed.
    """
    run.tell(f"proving on a sample of {size:,} ids that the answers stay the same")
    sample = sample_of(run, changes, size)
    if not sample:
        return {"ids_proven": 0}
    ids = run.spark.createDataFrame(sample, "asked string, origin bigint, time bigint, publisher bigint, counter int")
    trails = (run.sources, changes.applied(run.sources))
    before_rows, after_rows = (_answers(trace_ids(run.spark, sources, ids)) for sources in trails)
    if without is not None:
        for row in before_rows.values():
            _forget(row, without)
    found = differences(before_rows, after_rows)
    if found:
        raise PipelineError(f"{len(found):,} of {len(sample):,} ids would be answered differently: {found[0]}")
    return {"ids_proven": len(sample)}


def _forget(row: dict[str, Any], what: Erased) -> None:
    """Change an answer to what it should be after the erasure."""
    for name in ("delivered", "acknowledged"):
        for one in row[name]:
            if (one["broker"], one["subscription"]) in what.subscriptions:
                one["subscription"] = ERASED
        # Two subscriptions of one broker that were erased appear as one.
        known = {(one["broker"], one["subscription"]): one for one in row[name]}
        row[name] = [known[key] for key in sorted(known)]


def sample_of(run: JobRun[Any], changes: Changes, size: int) -> list[tuple[Any, ...]]:
    """Return ids of the files that are removed, evenly over them, and as many that never existed."""
    from pyspark.sql import functions as f

    found: list[tuple[Any, ...]] = []
    for name in ("passages", "journeys", "records"):
        files = [SourceFile(broker, entry) for broker, gone in changes.removed.items() for entry in gone]
        files = [source for source in files if source.entry.table == name]
        rows = sum(source.entry.rows for source in files)
        if rows:
            # A message leaves several passages: draw generously, then cut to size.
            every = max(1, rows // (10 * size))
            some = table(run.spark, run.sources, name, files, whole_files=True)
            ids = some.where(f.pmod(f.xxhash64(*ID), f.lit(every)) == 0).select(*ID).distinct()
            # Random order: the first rows of all files are not better known than others.
            found += [tuple(row) for row in ids.orderBy(f.xxhash64(f.lit(size), *ID)).limit(size).collect()]
    known = drawn(found, size)
    strange = [(origin, time, publisher, counter + _STRANGE) for origin, time, publisher, counter in known]
    strange += _strangers(run, size)
    return [("", *one) for one in [*known, *strange] if one[3] < 2**16]


def drawn(found: Iterable[tuple[int, ...]], size: int) -> list[tuple[int, ...]]:
    """Draw that many ids, each with the same chance whatever its origin; the same ones each time."""
    known = sorted(set(found))
    chosen = np.random.default_rng(size).permutation(len(known))[:size]
    return [known[at] for at in sorted(chosen.tolist())]


def _strangers(run: JobRun[Any], size: int) -> list[tuple[int, int, int, int]]:
    """Return ids that never existed, at times that filters cover. Filters cannot list the ids that did."""
    groups = [group for source in run.sources.of("filters") for group in source.entry.groups if group.rows]
    if not groups:
        return []
    random = np.random.default_rng(size)
    found = []
    for at in sorted({int(one) for one in random.integers(0, len(groups), size)}):
        group = groups[at]
        time = int(random.integers(group.time_from, group.time_to + 1))
        found.append((group.origin, time, 1, _STRANGE + at % 1_000))
    return found


def _answers(traced: DataFrame) -> dict[tuple[int, ...], dict[str, Any]]:
    rows = traced.select(*ID, *_EXACT).collect()
    return {tuple(row[name] for name in ID): row.asDict(recursive=True) for row in rows}


def differences(before: dict[Any, dict[str, Any]], after: dict[Any, dict[str, Any]]) -> list[str]:
    """Return what would be answered differently, each in words.

    With an exact record nothing may differ. With filters, a hit may become more or less certain within the same answer:
    brokers, subscriptions and verdict stay.
    """
    found = []
    for id, old in before.items():
        new = after.get(id)
        if new is None:
            found.append(f"{id} is gone")
            continue
        for name in _EXACT:
            if _essence(name, old[name]) != _essence(name, new[name]):
                found.append(f"{id}: {name} was {old[name]}, would be {new[name]}")
                break
    return found


def _essence(name: str, value: Any) -> Any:
    """Return the part of an answer that must stay: doubts move when filters are merged."""
    if name == "certainty":
        return value == 1.0 or round(value, 2)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [{key: item for key, item in one.items() if key != "doubt"} for one in value]
    return value
