"""Spark for the demonstration: a process that starts it while the network runs, and then does jobs as told.

A session of Spark takes some seconds to start. As a process of its own it starts beside everything else, and serves
both jobs. Each line of its input is a job, `{"job": "trace", …}`; each line of its output what came of it.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["SparkHelper", "java_is_there", "main"]


def java_is_there() -> str:
    """Empty if Spark can run here; otherwise why it cannot."""
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        return "pyspark is not installed (pip install 'postroad[spark]')"
    from postroad.errors import PostroadError
    from postroad.pipeline import check_java

    try:
        check_java()
    except PostroadError as error:
        return str(error)
    return ""


class SparkHelper:
    """The process, as the demonstration sees it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.demo_spark"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, job: str, trail: Path, out: Path, ids: Path | None = None) -> dict[str, Any]:
        """The figures of a job.

        Raises:
            RuntimeError: it failed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"job": job, "trail": str(trail), "out": str(out), "ids": None if ids is None else str(ids)}
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # Its empty answer says it.
        answer = self._process.stdout.readline()
        found = json.loads(answer) if answer else {"failed": self._said()}
        if "failed" in found:
            raise RuntimeError(f"`postroad pipeline {job}` failed: {found['failed']}")
        figures: dict[str, Any] = found
        return figures

    def _said(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read()[-2_000:]

    def close(self) -> None:
        """End it; it stops Spark first."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


def _done(spark: Any, asked: dict[str, Any]) -> dict[str, Any]:
    from postroad.errors import PostroadError
    from postroad.pipeline import run_job
    from postroad.pipeline.jobs import audit, trace

    trail, out = Path(asked["trail"]), Path(asked["out"])
    try:
        if asked["job"] == "trace":
            options = trace.TraceOptions(trail, out, ids=Path(asked["ids"]))
            report = run_job("trace", trace.run, options, spark=spark)
        else:
            report = run_job("audit", audit.run, audit.AuditOptions(trail, out), spark=spark)
    except PostroadError as error:
        return {"failed": str(error)}
    return {"seconds": round(report.seconds, 1), **report.summary}


def main() -> None:
    """Start Spark, then do the jobs that come."""
    logging.disable(logging.ERROR)
    from postroad.pipeline import session
    from postroad.pipeline.jobs import audit, trace  # noqa: F401  # loaded while Java starts

    spark = session(name="postroad demo")
    try:
        for line in sys.stdin:
            print(json.dumps(_done(spark, json.loads(line))), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
