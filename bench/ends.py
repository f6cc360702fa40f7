"""The pipeline at both ends of the scale: ten ids of a large trail, jobs on a small one, the driver's memory, a store.

Sections of `bench.pipeline`. Processor seconds are of a whole tree of processes: the program, the JVM and its workers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]

from bench.bulk import answered, compacted, warm_session
from bench.stores import has_rclone, in_moto, in_rclone
from postroad.pipeline import run_job
from postroad.pipeline.jobs import trace
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.pipeline.sources import open_sources
from postroad.pipeline.warm_server import warm_address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.pipeline_trails import Trails
    from postroad.trail.locations import Location

__all__ = ["driver_memory_growth", "in_a_store", "small_jobs", "ten_ids"]

TEN = 10
# Traces of a directory and of a store, one after the other.
TURNS = 4
_PROGRAM = [sys.executable, "-c", "from postroad.cli import main; main()"]
# What a warm server may take to start on a machine that is busy.
SERVING_SECONDS = 600
_SAMPLES_PER_SECOND = 20
# A session that does nothing of ours: reads a Parquet file, writes a Parquet file.
_BARE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
spark.read.parquet(sys.argv[1]).write.mode("overwrite").parquet(sys.argv[2])
spark.stop()
"""


def ten_ids(trails: Trails, messages: int) -> dict[str, Any]:
    """What the trace of ten ids reads of a trail of a day, manifests included, as a share of its bytes."""
    trail = trails.day(messages)
    report = run_job("trace", trace.run, TraceOptions(trail, trails.work / "out-ten", ids=trails.asked(trail, TEN)))
    size = sum(entry.size for here in open_sources(trail).all_entries().values() for entry in here)
    print(f"ten ids of {messages:,} messages over a day: {report.bytes_read:,} of {size:,} bytes", flush=True)
    return {
        "ten_ids_bytes_read_share": round(report.bytes_read / size, 5),
        "ten_ids_bytes_read": report.bytes_read,
        "ten_ids_seconds": round(report.seconds, 2),
    }


def small_jobs(trails: Trails) -> dict[str, Any]:
    """Jobs on a trail as a demonstration leaves it, beside a session that does nothing of ours."""
    trail, work = trails.demo(), trails.work
    asked = trails.asked(trail, 100)
    where = ["--trail", str(trail), "--out", str(work / "out-demo")]
    bare, _ = _processor_seconds([sys.executable, "-c", _BARE, str(asked), str(work / "out-bare")])
    spent = {}
    for job in (["trace", "--ids", str(asked)], ["audit"], ["storage"], ["timings"]):
        spent[job[0]] = _processor_seconds([*_PROGRAM, "pipeline", *job, *where])[0]
    with _served(work):
        began = time.perf_counter()
        subprocess.run([*_PROGRAM, "pipeline", "timings", *where], check=True, capture_output=True)
        warm = time.perf_counter() - began
    print(
        f"processor seconds: bare session {bare:.1f}, "
        + ", ".join(f"{name} {seconds:.1f}" for name, seconds in spent.items()),
        flush=True,
    )
    return {
        "bare_session_cpu_s": round(bare, 1),
        **{f"small_{name}_cpu_s": round(seconds, 1) for name, seconds in spent.items()},
        "small_job_vs_bare_session": round(max(spent["trace"], spent["audit"]) / bare, 2),
        "small_spark_job_vs_bare_session": round(spent["timings"] / bare, 2),
        "warm_small_job_seconds": round(warm, 1),
    }


def driver_memory_growth(trails: Trails, messages: int) -> dict[str, Any]:
    """How the memory of the driver's process grows with ten times the trail, for the same ids."""
    trail, peaks = trails.of(messages), []
    asked = trails.asked(trail, trails.ids)
    for one in (trails.of(messages // 10), trail):
        command = [*_PROGRAM, "pipeline", "trace", "--ids", str(asked), "--trail", str(one)]
        _, peak = _processor_seconds([*command, "--out", str(trails.work / "out-memory")])
        peaks.append(peak)
    return {"driver_memory_bytes": peaks[1], "driver_memory_growth_10x": round(peaks[1] / peaks[0], 2)}


def in_a_store(trails: Trails, messages: int) -> dict[str, Any]:
    """A bulk trace of a trail in local S3 servers, against the same in a directory; warm, in turns.

    The figure is that of a real server, where there is one; with moto's it is mostly about that server.
    """
    trail, session = trails.of(messages), warm_session()
    asked, out = trails.asked(trail, min(trails.ids, messages // 10)), trails.work / "out-store"

    def turns(near: Path, far: Location) -> tuple[float, float]:
        found = [(answered(session, near, asked, out), answered(session, far, asked, out)) for _ in range(TURNS)]
        # The first of each is not warm.
        seconds = [min(turn[side].seconds for turn in found[1:]) for side in range(2)]
        return seconds[0], seconds[1]

    with in_moto(trail) as place:
        near, far = turns(trail, place)
    figures = {"s3_vs_local": round(far / near, 2), "s3_vs_local_moto": round(far / near, 2)}
    if has_rclone():
        with in_rclone(trail, trails.work) as place:
            near, far = turns(trail, place)
        figures["s3_vs_local"] = round(far / near, 2)
    figures |= {"trace_in_a_directory_s": round(near, 2), "trace_in_a_store_s": round(far, 2)}
    if has_rclone():
        compact = trails.copy(trail)
        compacted(session, compact, out)
        with in_rclone(compact, trails.work) as place:
            near, far = turns(compact, place)
        figures["s3_vs_local_compacted"] = round(far / near, 2)
        figures["compacted_trace_in_a_store_s"] = round(far, 2)
    return figures


@contextmanager
def _served(work: Path) -> Iterator[None]:
    os.environ["XDG_RUNTIME_DIR"] = str(work.absolute() / "run")
    # Not a pipe: nobody would read it, and what Spark says there would fill it.
    with (
        (work / "serve.log").open("wb") as log,
        subprocess.Popen([*_PROGRAM, "pipeline", "serve"], stderr=log) as serving,
    ):
        try:
            end = time.monotonic() + SERVING_SECONDS
            while warm_address() is None:
                if serving.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"the warm server did not start; {work / 'serve.log'} says why")
                time.sleep(0.1)
            yield
        finally:
            serving.terminate()
            serving.wait()
            del os.environ["XDG_RUNTIME_DIR"]


def _processor_seconds(command: list[str]) -> tuple[float, int]:
    """Processor seconds of a command and all that it starts, and the most memory of its own process."""
    spent: dict[int, float] = {}
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        own, ended = psutil.Process(running.pid), threading.Event()

        def wait() -> None:
            running.wait()
            ended.set()

        threading.Thread(target=wait, daemon=True).start()
        try:
            while not ended.wait(1 / _SAMPLES_PER_SECOND):
                with suppress(psutil.Error):
                    for one in (own, *own.children(recursive=True)):
                        times = one.cpu_times()
                        spent[one.pid] = times.user + times.system
                    peak = max(peak, own.memory_info().rss)
        finally:
            # It is over, or this run is.
            running.terminate()
        if running.returncode:
            raise RuntimeError(f"{command} ended with {running.returncode}")
    return sum(spent.values()), peak
