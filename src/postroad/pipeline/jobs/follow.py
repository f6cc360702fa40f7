"""`follow`: reconciles a trail while it grows.

The checkpoint of Structured Streaming remembers which manifests it has seen. If the job is killed during a batch, it
does the batch again with the same files, and the new counts replace those of the first try. So everything counts once,
however often the job dies. Alerts are computed from the sums, after every batch and while nothing arrives.
"""

from __future__ import annotations

import json
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, Any

from postroad.pipeline.alerts import news, record_through, refresh, store_increments
from postroad.pipeline.counts import INCREMENTS
from postroad.pipeline.errors import PipelineError
from postroad.pipeline.job_run import JobOptions
from postroad.pipeline.stream import FORMAT, TrailChanges, heads
from postroad.trail.access import make_folders
from postroad.trail.locations import StoredPath, file_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from postroad.pipeline.job_run import JobRun
    from postroad.trail.locations import Location

__all__ = ["FollowOptions", "run", "started", "stored"]

DEFAULT_SECONDS = 10.0
_CHECKPOINT = "checkpoint"


def stored(trail: Location, out: Path) -> Callable[[DataFrame, int], None]:
    """Return what to do with each batch: add up its counts and store them under its number."""

    def store(rows: DataFrame, batch: int) -> None:
        import pyarrow as pa
        from pyspark.sql import functions as f

        sums = rows.groupBy(*INCREMENTS.names[:4]).agg(f.sum("messages").alias("messages")).collect()
        counts = pa.Table.from_pylist([row.asDict() for row in sums], schema=INCREMENTS)
        store_increments(out, batch, counts, record_through(trail))

    return store


def started(
    spark: SparkSession, trail: Location, out: Path, seconds: float = DEFAULT_SECONDS, *, once: bool = False
) -> StreamingQuery:
    """Start the query. It continues where an earlier one with the same `out` stopped.

    With `once` it ends with what is committed now. Otherwise brokers that keep writing would never let it end.
    """
    spark.dataSource.register(TrailChanges)
    make_folders(out / _CHECKPOINT)
    reader = spark.readStream.format(FORMAT)
    reader = reader.option("path", trail.uri if isinstance(trail, StoredPath) else str(trail))
    changes = (reader.option("through", json.dumps(heads(trail))) if once else reader).load()
    writer = changes.writeStream.foreachBatch(stored(trail, out)).trigger(processingTime=f"{seconds} seconds")
    return writer.option("checkpointLocation", file_uri(out / _CHECKPOINT)).start()


@dataclass(frozen=True, kw_only=True)
class FollowOptions(JobOptions):
    """Options of `follow`.

    Attributes:
        seconds: how often to look for commits.
        once: end when everything that is there now is counted.
    """

    seconds: float = DEFAULT_SECONDS
    once: bool = False

    @property
    def is_small(self) -> bool:
        """A job that runs for days is worth compiling."""
        return self.once


def run(run: JobRun[FollowOptions]) -> dict[str, Any]:
    """Follow until interrupted, or, with `once`, until everything that is there now is counted."""
    seconds, once = run.options.seconds, run.options.once
    trail, out = run.sources.root, run.options.out
    if not isinstance(out, Path):
        raise PipelineError(f"{out}: `follow` keeps in --out how far it came; give a directory")
    alerts: list[dict[str, Any]] = []
    reported: dict[tuple[Any, ...], int] = {}
    with _interrupts() as interrupted:
        query = started(run.spark, trail, out, seconds, once=once)
        try:
            while query.isActive and not interrupted.is_set():
                if once:
                    query.processAllAvailable()
                else:
                    interrupted.wait(seconds)
                alerts = refresh(trail, out, int(time.time() * 1_000))
                for text in news(alerts, reported):
                    run.alert(text)
                run.tell(f"{len(alerts):,} alerts; waiting for commits")
                if once:
                    break
            if not query.isActive:
                # It ended by itself: this raises the reason.
                query.awaitTermination(1)
        finally:
            query.stop()
    run.account.written += [str(out / name) for name in ("links", "capacity", "alerts")]
    return {"alerts": len(alerts), **_by_kind(alerts)}


@contextmanager
def _interrupts() -> Iterator[Event]:
    """Yield an event that Ctrl-C sets. An exception in the middle of a call into Spark would stop the session."""
    asked = Event()
    if current_thread() is not main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _by_kind(alerts: list[dict[str, Any]]) -> dict[str, int]:
    kinds = sorted({alert["alert"] for alert in alerts})
    return {kind: sum(alert["alert"] == kind for alert in alerts) for kind in kinds}
