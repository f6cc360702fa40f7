"""Jobs of the pipeline under a clock: seconds, processor seconds, bytes shuffled, peak memory.

Processor seconds are of all processes that this one started: on a machine that others use too they tell more.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]

from postroad.pipeline import run_job, session
from postroad.pipeline.jobs import compact, trace
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.pipeline.sources import open_sources

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from postroad.trail.locations import Location

__all__ = [
    "Answered",
    "Compacted",
    "Joined",
    "Session",
    "answered",
    "compacted",
    "fresh_session",
    "plain_join",
    "stop_session",
    "warm_session",
]

MEMORY = "8g"
_SAMPLES_PER_SECOND = 4


@dataclass
class Answered:
    """One bulk trace."""

    ids: int
    seconds: float
    cpu_seconds: float
    bytes_shuffled: int
    peak_memory: int


@dataclass
class Joined:
    """One plain join."""

    seconds: float
    cpu_seconds: float


@dataclass
class Compacted:
    """One compaction."""

    seconds: float
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    bytes_of_journeys: int


class Session:
    """A Spark session of its own on all cores, with its start timed."""

    def __enter__(self) -> Session:
        began = time.perf_counter()
        # The status pages are where Spark tells what a stage shuffled; on loopback only.
        settings = {"spark.driver.memory": MEMORY, "spark.ui.enabled": "true", "spark.driver.host": "127.0.0.1"}
        self.spark = session("local[*]", name="bench", settings=settings)
        self.spark.range(1).collect()
        self.starting_seconds = time.perf_counter() - began
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.spark.stop()

    def shuffled(self) -> int:
        """Bytes shuffled by all stages so far."""
        context: Any = self.spark.sparkContext
        url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages?status=complete"
        with urllib.request.urlopen(url, timeout=30) as answer:
            stages = json.load(answer)
        return sum(int(one["shuffleWriteBytes"]) for one in stages)


_running: list[Session] = []


def fresh_session() -> Session:
    """Start a session, in the place of one that runs: its first job is a cold one."""
    stop_session()
    _running.append(Session().__enter__())
    return _running[0]


def warm_session() -> Session:
    """Return the session that runs; start one if there is none. A start takes longer than most jobs."""
    return _running[0] if _running else fresh_session()


def stop_session() -> None:
    """Stop the session that runs, if any."""
    while _running:
        # Whoever interrupts a run may have ended its JVM too.
        with suppress(Exception):
            _running.pop().__exit__(None, None, None)


class _Memory(threading.Thread):
    """The most memory that this process's children (the JVM and its Python workers) had together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._done = threading.Event()

    def run(self) -> None:
        own = psutil.Process()
        while not self._done.wait(1 / _SAMPLES_PER_SECOND):
            total = 0
            for child in own.children(recursive=True):
                try:
                    total += child.memory_info().rss
                except psutil.Error:
                    continue
            self.peak = max(self.peak, total)

    def stop(self) -> int:
        self._done.set()
        self.join()
        return self.peak


def _cpu_seconds() -> float:
    """Processor seconds of the JVM and its workers so far; those of a worker that ended are its parent's."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            total += sum(child.cpu_times()[:4])
    return total


def answered(own: Session, trail: Location, asked: Path, out: Path) -> Answered:
    """Trace the ids in a file."""
    before = own.shuffled()
    memory = _Memory()
    memory.start()
    began, spent = time.perf_counter(), _cpu_seconds()
    account = run_job("trace", trace.run, TraceOptions(trail, out, ids=asked), spark=own.spark)
    seconds, spent = time.perf_counter() - began, _cpu_seconds() - spent
    peak = memory.stop()
    own.spark.catalog.clearCache()
    return Answered(account.summary["ids"], seconds, spent, own.shuffled() - before, peak)


def compacted(own: Session, trail: Path, out: Path) -> Compacted:
    """Compact a trail."""
    began = time.perf_counter()
    account = run_job("compact", compact.run, CompactOptions(trail, out), spark=own.spark)
    seconds = time.perf_counter() - began
    entries = [entry for here in open_sources(trail).all_entries().values() for entry in here]
    journeys = sum(entry.size for entry in entries if entry.table == "journeys")
    told = account.summary
    files, sizes = ((told[f"{name}_before"], told[f"{name}_after"]) for name in ("files", "bytes"))
    return Compacted(seconds, *files, *sizes, journeys)


def plain_join(own: Session, trail: Path, asked: Path, records: Path) -> Joined:
    """What Spark does on its own: one row for each record, joined with the ids and grouped, no hint given."""
    from pyspark.sql import functions as f

    from postroad.pipeline.tables import ID, table

    spark = own.spark
    if not (records / "_SUCCESS").exists():
        passages = table(spark, open_sources(trail), "passages")
        entered = passages.select(*ID, "broker", f.lit(0).alias("kind"), f.col("arrived_from").alias("subject"))
        numbers = f.expr(
            "transform(sequence(0, length(delivered) div 4 - 1), i -> "
            "cast(conv(hex(substring(delivered, 4 * i + 1, 4)), 16, 10) as bigint))"
        )
        delivered = passages.where("delivered is not null").select(
            *ID, "broker", f.lit(1).alias("kind"), f.explode(numbers).alias("subject")
        )
        entered.unionByName(delivered).write.mode("overwrite").parquet(f"file://{records.resolve()}")
    out = records.with_name("out-plain")
    began, spent = time.perf_counter(), _cpu_seconds()
    spark.conf.set("spark.sql.join.preferSortMergeJoin", "true")
    ids = spark.read.parquet(f"file://{asked.resolve()}").select(*ID)
    rows = spark.read.parquet(f"file://{records.resolve()}")
    found = (
        ids.join(rows, list(ID), how="left")
        .groupBy(*ID)
        .agg(
            f.sort_array(f.collect_set("broker")).alias("brokers"),
            f.sort_array(f.collect_set(f.when(f.col("kind") == 1, f.struct("broker", "subject")))).alias("subscribers"),
        )
    )
    found.write.mode("overwrite").parquet(f"file://{out.resolve()}")
    seconds, spent = time.perf_counter() - began, _cpu_seconds() - spent
    spark.conf.set("spark.sql.join.preferSortMergeJoin", "false")
    shutil.rmtree(out, ignore_errors=True)
    return Joined(seconds, spent)
