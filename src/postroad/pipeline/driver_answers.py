"""Small questions that the driver answers itself, with the functions that workers run: no job, no session, no Java.

Starting Spark costs more than reading a few megabytes. If a question touches no more than that, the driver reads the
files. The same code as in Spark collects, judges and counts the evidence, so the answers are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.asked_file import ASKED_SCHEMA
from postroad.pipeline.evidence import ASKED, JOURNEY, PASSAGE, SHED
from postroad.pipeline.judgement import ANSWER_SCHEMA, VERDICT_SCHEMA, judged, with_text
from postroad.pipeline.lookup import EXACT, as_evidence, evidence_of, rows_of
from postroad.pipeline.reconciler import COUNTS_SCHEMA, asked_once, counts_of
from postroad.pipeline.tables import ID
from postroad.tracking import HERE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.pipeline.context import Context
    from postroad.pipeline.sources import SourceFile, Sources

__all__ = [
    "MAX_BYTES",
    "counts_in",
    "is_small",
    "unanswered",
    "verdicts_on",
]

# Compressed size of the files. Decoded: some hundred megabytes at most, and some seconds, about Spark's start.
MAX_BYTES = 8 << 20
_ORDER = [(name, "ascending") for name in ("time", "origin", "publisher", "counter", "source", "broker")]


def is_small(files: Iterable[SourceFile]) -> bool:
    """Return whether the driver should read these files itself."""
    total = 0
    for source in files:
        total += source.entry.size
        if total > MAX_BYTES:
            return False
    return True


# --- answers --------------------------------------------------------------------------------------------------------


def verdicts_on(sources: Sources, context: Context, asked: Any) -> Any:
    """Return the verdicts on ids, with the id as text, as `trace_ids` does.

    Raises:
        TrailDamageError: a file is missing or differs from what was written.
    """
    if not asked.num_rows:
        return with_text(VERDICT_SCHEMA.empty_table())
    files = [one for name in (*EXACT, "filters") for one in sources.of(name)]
    evidence = evidence_of(sources.root, context, asked, files, sources.journalled, sources.reads)
    return with_text(judged(context, evidence))


def unanswered(asked: Any, why: Any) -> Any:
    """Return a row for each text or id of which nothing is known, and why; it claims nothing, so nothing is certain.

    Args:
        asked: the texts and ids.
        why: the verdict on each.
    """
    count = asked.num_rows
    given = {name: asked.column(name) for name in ASKED_SCHEMA.names}
    given["verdict"] = why
    given["certainty"] = pa.repeat(pa.scalar(0.0), count)
    columns = [given.get(field.name, pa.nulls(count, field.type)) for field in VERDICT_SCHEMA]
    rows = pa.Table.from_arrays(columns, schema=VERDICT_SCHEMA)
    is_id = pc.is_valid(asked.column("origin"))
    texts = rows.filter(pc.invert(is_id))
    named = texts.append_column(ANSWER_SCHEMA.field("id"), pa.nulls(texts.num_rows, pa.string()))
    return pa.concat_tables([with_text(rows.filter(is_id)), named])


def _all_rows(sources: Sources, name: str, files: Iterable[SourceFile]) -> Any:
    return rows_of(sources.root, name, files, sources.journalled.get(name), sources.reads)


def _sorted(parts: list[Any]) -> Any:
    return pa.concat_tables(parts).sort_by(_ORDER).combine_chunks()


def counts_in(sources: Sources, context: Context, passages: list[SourceFile], journeys: list[SourceFile]) -> Any:
    """Count the verdicts on every message of the exact record, as `audit.reconciliation` does.

    Raises:
        TrailDamageError: a file is missing or differs from what was written.
    """
    parts = []
    rows = _between(sources, _all_rows(sources, "passages", passages))
    if rows is not None:
        entered = rows.filter(pc.equal(rows.column("arrived_from"), HERE))
        parts += [as_evidence(entered.select(list(ID)), ASKED), as_evidence(rows, PASSAGE)]
    rows = _between(sources, _all_rows(sources, "journeys", journeys))
    if rows is not None:
        parts.append(as_evidence(rows.select(list(ID)), ASKED))
        parts.append(as_evidence(rows.drop(["run"]), JOURNEY, EXACT["journeys"][1]))
    shed = _all_rows(sources, "shed", sources.of("shed", always=True))
    if shed is not None:
        parts.append(as_evidence(_between(sources, shed).drop(["run"]), SHED))
    counts = counts_of(judged(context, asked_once(_sorted(parts))))
    keys = COUNTS_SCHEMA.names[:4]
    sums = counts.group_by(keys).aggregate([(name, "sum") for name in COUNTS_SCHEMA.names[4:]])
    columns = [sums.column(name) for name in (*keys, *(f"{name}_sum" for name in COUNTS_SCHEMA.names[4:]))]
    return pa.Table.from_arrays(columns, names=COUNTS_SCHEMA.names).cast(COUNTS_SCHEMA)


def _between(sources: Sources, rows: Any) -> Any:
    if rows is None or not sources.is_bounded:
        return rows
    time = rows.column("time").to_numpy()
    return rows.filter(pa.array((time >= sources.since) & (time < sources.until)))
