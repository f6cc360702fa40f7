"""Runs a job from beginning to end: session, trail, output, and an account of what was done.

Each job is a function that takes a `Run` and gives out a summary; what it writes it writes through the run. Errors of
Spark are told in a line: the file that could not be read, or the first line of what went wrong.
"""

from __future__ import annotations

import re
import shutil
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from postroad.pipeline.errors import DamagedFileError, PipelineError
from postroad.pipeline.output import replace_output
from postroad.pipeline.session import session
from postroad.pipeline.sources import Damage, Sources, open_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JobOptions", "JobReport", "JobRun", "SparkJob", "run_job", "stopped_by_interrupts", "told_error"]

_OF_WORKER = re.compile(r"^[\w.]+(?:Error|Exception): .+$", re.MULTILINE)
# Lines of Spark's own account of an error that are shown: a worker's traceback, and not where in Java it went through.
MAX_LINES = 40
_OF_JAVA = ("\tat ", "\t...")
_UNREADABLE = re.compile(r"file:/+([^\s,;]+\.parquet)")


@dataclass(frozen=True)
class JobOptions:
    """What every job is told; a job that needs to know more has a class of its own below this one.

    Attributes:
        trail: the directory of the trail.
        out: the directory for results.
        master: where Spark runs; this machine by default.
        since: the first id time that counts, in Unix ms.
        until: the first that does not.
        skip_damaged: leave out files that cannot be read, and say so.
        settings: further settings of Spark.
    """

    trail: Path
    out: Path
    master: str | None = None
    since: int | None = None
    until: int | None = None
    skip_damaged: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


Told = TypeVar("Told", bound="JobOptions")


@dataclass
class JobReport:
    """What a run did.

    Attributes:
        job: its name.
        seconds: in all, and for the start of Spark among them.
        summary: figures of the job's own.
        written: the tables it wrote.
        damaged: files that were left out.
        absent: brokers that others tell of, and that have no record in this trail.
    """

    job: str
    seconds: float = 0.0
    starting_seconds: float = 0.0
    summary: dict[str, Any] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)


@dataclass
class JobRun(Generic[Told]):
    """One run of a job.

    Attributes:
        spark: the session.
        sources: the trail, pinned.
        options: what the job was told.
        tell: says what happens now.
        account: what was done so far.
        alert: says what somebody should look at; jobs that go on and on need it.
    """

    spark: SparkSession
    sources: Sources
    options: Told
    tell: Callable[[str], None]
    account: JobReport
    alert: Callable[[str], None] = lambda _: None

    def write(self, rows: DataFrame, name: str, *, by: tuple[str, ...] = ()) -> Path:
        """Write a table of results in the place of an earlier one, and answer where it is."""
        self.tell(f"writing {name}")
        place = replace_output(rows, self.options.out, name, by=by)
        self.account.written.append(str(place))
        return place

    def discard(self, place: Path) -> None:
        """Delete a table that was written on the way, and is no result."""
        self.account.written.remove(str(place))
        shutil.rmtree(place, ignore_errors=True)


class SparkJob(Protocol[Told]):
    """A job: reads the trail of the run, writes its tables, answers a summary for people."""

    def __call__(self, run: JobRun[Told]) -> dict[str, Any]: ...


def run_job(
    name: str,
    job: SparkJob[Told],
    options: Told,
    tell: Callable[[str], None] = lambda _: None,
    spark: SparkSession | None = None,
    alert: Callable[[str], None] = lambda _: None,
) -> JobReport:
    """Run a job.

    Args:
        name: of the job.
        job: what to do.
        options: what it is told.
        tell: called with what happens now.
        spark: a session to use; by default one is started, and stopped afterwards.
        alert: called with what somebody should look at.

    Raises:
        PipelineError: it cannot be done; the text says why.
    """
    began = time.monotonic()
    account = JobReport(name)
    tell("reading the manifests")
    sources = open_sources(options.trail, options.since, options.until, skip_damaged=options.skip_damaged)
    own = spark is None
    if spark is None:
        tell("starting Spark")
        spark = session(options.master, name=f"postroad {name}", settings=options.settings)
    account.starting_seconds = time.monotonic() - began
    with stopped_by_interrupts(spark, own) as interrupted:
        try:
            account.summary = job(JobRun(spark, sources, options, tell, account, alert))
        except PipelineError:
            raise
        except Exception as error:
            if interrupted.is_set():
                raise KeyboardInterrupt from None
            raise told_error(error) from error
        finally:
            if own and not interrupted.is_set():
                spark.stop()
    account.damaged = list(sources.damaged)
    account.seconds = time.monotonic() - began
    return account


@contextmanager
def stopped_by_interrupts(spark: SparkSession, own: bool) -> Iterator[Event]:
    """Ctrl-C stops Spark, from a thread beside, whereupon what is under way there fails, and with it the job.

    An exception in the middle of a call into Spark would break the connection to it, and be told in a hundred lines. A
    second Ctrl-C waits for nothing.
    """
    interrupted = Event()
    if not own or current_thread() is not main_thread():
        yield interrupted
        return

    def stop(*_: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        Thread(target=spark.stop, daemon=True).start()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def told_error(error: Exception) -> Exception:
    """An error of Spark in words: a file that went bad while it was read, or what Spark says first."""
    from pyspark.errors import PySparkException

    # Not all errors of the JVM come translated; those that do not are the gateway's own.
    if not isinstance(error, PySparkException) and not type(error).__module__.startswith("py4j"):
        return error
    text = str(error)
    unreadable = _UNREADABLE.search(text)
    if unreadable is not None:
        return DamagedFileError("/" + unreadable[1].lstrip("/"), "cannot be read: its contents are damaged")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(_OF_JAVA)]
    first = lines[0] if lines else type(error).__name__
    # What went wrong in a Python worker stands below, at the end of its traceback.
    of_worker = _OF_WORKER.findall(text) if "Python worker" in first else []
    found = PipelineError(f"Spark gave up: {(of_worker or [first])[-1].strip()}")
    found.details = "\n".join(lines[1:MAX_LINES])
    return found
