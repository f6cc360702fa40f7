"""`follow`: a growing trail, reconciled as it grows.

Structured Streaming remembers which manifests it has seen (its checkpoint); a batch that was begun when the job was
killed is done again with the same files, and its counts take the place of those of the first try. So everything counts
once, however often the job dies. Alerts are made from the sums, after every batch and while nothing comes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from postroad.pipeline.alerts import refresh, store_increments
from postroad.pipeline.counting import INCREMENTS
from postroad.pipeline.stream import FORMAT, TrailChanges

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from postroad.pipeline.running import Run

__all__ = ["run", "started", "stored"]

DEFAULT_SECONDS = 10.0
_CHECKPOINT = "checkpoint"


def stored(out: Path) -> Callable[[DataFrame, int], None]:
    """What happens with each batch: its counts are summed up and kept under its number."""

    def store(rows: DataFrame, batch: int) -> None:
        import pyarrow as pa
        from pyspark.sql import functions as f

        sums = rows.groupBy(*INCREMENTS.names[:4]).agg(f.sum("messages").alias("messages")).collect()
        store_increments(out, batch, pa.Table.from_pylist([row.asDict() for row in sums], schema=INCREMENTS))

    return store


def started(spark: SparkSession, trail: Path, out: Path, seconds: float = DEFAULT_SECONDS) -> StreamingQuery:
    """The running query. It goes on from where an earlier one with the same `out` stopped."""
    spark.dataSource.register(TrailChanges)
    (out / _CHECKPOINT).mkdir(parents=True, exist_ok=True)
    changes = spark.readStream.format(FORMAT).option("path", str(trail)).load()
    writer = changes.writeStream.foreachBatch(stored(out)).trigger(processingTime=f"{seconds} seconds")
    return writer.option("checkpointLocation", f"file://{(out / _CHECKPOINT).resolve()}").start()


def run(run: Run) -> dict[str, Any]:
    """Follow until interrupted, or with `more["once"]` until all that is there is counted."""
    more = run.options.more
    seconds = float(more.get("seconds") or DEFAULT_SECONDS)
    trail, out = run.sources.root, run.options.out
    query = started(run.spark, trail, out, seconds)
    alerts: list[dict[str, Any]] = []
    told: set[tuple[Any, ...]] = set()
    try:
        while query.isActive:
            if more.get("once"):
                query.processAllAvailable()
            else:
                query.awaitTermination(int(max(1, seconds)))
            alerts = refresh(trail, out, int(time.time() * 1_000))
            fresh = [alert for alert in alerts if _what(alert) not in told]
            for alert in fresh:
                run.alert(f"{alert['alert']}: {alert['text']}")
            # Those that are over are forgotten, and told again should they come back.
            told = {_what(alert) for alert in alerts}
            run.tell(f"{len(alerts):,} alerts; waiting for commits")
            if more.get("once"):
                break
    except KeyboardInterrupt:
        pass
    finally:
        query.stop()
    run.account.written += [str(out / "links"), str(out / "alerts")]
    return {"alerts": len(alerts), **_by_kind(alerts)}


def _what(alert: dict[str, Any]) -> tuple[Any, ...]:
    """What an alert is about. Its text says how long a broker has been quiet, and is another one each time."""
    return tuple(alert[name] for name in ("alert", "broker", "neighbour", "since", "messages"))


def _by_kind(alerts: list[dict[str, Any]]) -> dict[str, int]:
    kinds = sorted({alert["alert"] for alert in alerts})
    return {kind: sum(alert["alert"] == kind for alert in alerts) for kind in kinds}
