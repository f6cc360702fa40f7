"""The pipeline at both ends of the scale: ten ids of a large trail, jobs on a small one, a store, a hundred million.

Figures that `bench.pipeline` prints with its own. Processor seconds are of a whole tree of processes: the program, the
JVM and its workers.
"""

from __future__ import annotations

import http.client
import logging
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]
import pyarrow.parquet as pq

from bench.bulk import Session, answered
from postroad.lab.trails import Scale, sample_ids, write_trail
from postroad.pipeline import run_job
from postroad.pipeline.jobs import trace
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.pipeline.sources import open_sources
from postroad.pipeline.warm_server import note_path
from postroad.trail.locations import location, put_file, relative

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["driver_memory_growth", "hundred_million", "in_a_store", "small_jobs", "ten_ids"]

DAY_SECONDS = 86_400
TEN = 10
LARGE = 1_000_000
DEMO = Scale(brokers=5, messages=3_000, publishers=10, subscriptions=5, interests=50, seconds=120)
_PROGRAM = [sys.executable, "-c", "from postroad.cli import main; main()"]
_SAMPLES_PER_SECOND = 20
# A session that does nothing of ours: reads a Parquet file, writes a Parquet file.
_BARE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
spark.read.parquet(sys.argv[1]).write.mode("overwrite").parquet(sys.argv[2])
spark.stop()
"""


def ten_ids(work: Path, messages: int, seed: int) -> dict[str, float]:
    """What the trace of ten ids reads of a trail of a day, manifests included, as a share of its bytes."""
    trail = work / f"day-{messages}-{seed}"
    if not (trail / "done").exists():
        # A file for each broker and minute: few brokers where it is only to see that all runs.
        brokers = Scale().brokers if messages >= LARGE else 2
        write_trail(trail, Scale(brokers=brokers, messages=messages, seed=seed, seconds=DAY_SECONDS))
        (trail / "done").touch()
    asked = work / "ten.parquet"
    pq.write_table(sample_ids(trail, TEN), asked)
    report = run_job("trace", trace.run, TraceOptions(trail, work / "out-ten", ids=asked))
    size = sum(entry.size for here in open_sources(trail).all_entries().values() for entry in here)
    print(f"ten ids of {messages:,} messages over a day: {report.bytes_read:,} of {size:,} bytes")
    return {
        "ten_ids_bytes_read_share": round(report.bytes_read / size, 5),
        "ten_ids_seconds": round(report.seconds, 2),
    }


def small_jobs(work: Path) -> dict[str, float]:
    """Jobs on a trail as a demonstration leaves it, beside a session that does nothing of ours."""
    trail, asked = work / "demo", work / "demo.parquet"
    if not trail.exists():
        write_trail(trail, DEMO)
    pq.write_table(sample_ids(trail, 100), asked)
    where = ["--trail", str(trail), "--out", str(work / "out-demo")]
    bare, _ = _processor_seconds([sys.executable, "-c", _BARE, str(asked), str(work / "out-bare")])
    traced, _ = _processor_seconds([*_PROGRAM, "pipeline", "trace", "--ids", str(asked), *where])
    audited, _ = _processor_seconds([*_PROGRAM, "pipeline", "audit", *where])
    stored, _ = _processor_seconds([*_PROGRAM, "pipeline", "storage", *where])
    with _served(work):
        began = time.perf_counter()
        subprocess.run([*_PROGRAM, "pipeline", "storage", *where], check=True, capture_output=True)
        warm = time.perf_counter() - began
    print(f"processor seconds: bare {bare:.1f}, trace {traced:.1f}, audit {audited:.1f}, storage {stored:.1f}")
    return {
        "bare_session_cpu_s": round(bare, 1),
        "small_trace_cpu_s": round(traced, 1),
        "small_audit_cpu_s": round(audited, 1),
        "small_storage_cpu_s": round(stored, 1),
        "small_job_vs_bare_session": round(max(traced, audited) / bare, 2),
        "small_spark_job_vs_bare_session": round(stored / bare, 2),
        "warm_small_job_seconds": round(warm, 1),
    }


def driver_memory_growth(work: Path, small: Path, large: Path, asked: Path) -> dict[str, float]:
    """How the memory of the driver's process grows with ten times the trail, for the same ids."""
    peaks = []
    for trail in (small, large):
        command = [*_PROGRAM, "pipeline", "trace", "--ids", str(asked), "--trail", str(trail)]
        _, peak = _processor_seconds([*command, "--out", str(work / "out-memory")])
        peaks.append(peak)
    return {"driver_memory_bytes": peaks[1], "driver_memory_growth_10x": round(peaks[1] / peaks[0], 2)}


def in_a_store(work: Path, trail: Path, asked: Path) -> dict[str, float]:
    """A bulk trace of a trail in a local S3 server, against the same in a directory; both warm."""
    with _s3_server() as place, Session() as session:
        for path in sorted(trail.rglob("*")):
            if path.is_file() and path.parent != trail:
                put_file(place / relative(path, trail), memoryview(path.read_bytes()))
        near, far = (
            min(answered(session, one, asked, work / "out-store").seconds for _ in range(2)) for one in (trail, place)
        )
    return {"trace_in_a_store_s": round(far, 1), "s3_vs_local": round(far / near, 2)}


@contextmanager
def _s3_server() -> Iterator[Any]:
    from moto.server import ThreadedMotoServer

    # It would write a line for each request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    os.environ.update({"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"})
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        connection = http.client.HTTPConnection(host, port, timeout=60)
        connection.request("PUT", "/bench")
        connection.getresponse().read()
        connection.close()
        yield location(f"s3://bench/trail?endpoint_override=http://{host}:{port}&region=us-east-1")
    finally:
        server.stop()


@contextmanager
def _served(work: Path) -> Iterator[None]:
    os.environ["XDG_RUNTIME_DIR"] = str(work.absolute() / "run")
    with subprocess.Popen([*_PROGRAM, "pipeline", "serve"], stderr=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stderr is not None
            serving.stderr.readline()
            assert note_path().exists()
            yield
        finally:
            serving.terminate()
            serving.communicate()
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
        while not ended.wait(1 / _SAMPLES_PER_SECOND):
            try:
                for one in (own, *own.children(recursive=True)):
                    times = one.cpu_times()
                    spent[one.pid] = times.user + times.system
                peak = max(peak, own.memory_info().rss)
            except psutil.Error:
                continue
        if running.returncode:
            raise SystemExit(f"{command} ended with {running.returncode}")
    return sum(spent.values()), peak


def hundred_million(work: Path, ids: int, seed: int, of_ten: float) -> dict[str, float]:
    """A bulk trace of a hundred million messages, against that of ten million."""
    trail = work / f"exact-100000000-{seed}"
    if not (trail / "done").exists():
        write_trail(trail, replace(Scale(), messages=100_000_000, seed=seed))
        (trail / "done").touch()
    asked = work / f"hundred-{ids}.parquet"
    pq.write_table(sample_ids(trail, ids), asked)
    with Session() as session:
        seconds = min(answered(session, trail, asked, work / "out-hundred").seconds for _ in range(2))
    return {"trace_100m_s": round(seconds, 1), "growth_trail_100m": round(seconds / of_ten, 2)}
