"""Runs a job from beginning to end: session, trail, output, and a report of what was done.

Each job is a function that takes a `JobRun` and returns a summary; it writes its tables through the run. Errors of
Spark become one line: the file that could not be read, or the first line of the error.
"""

from __future__ import annotations

import re
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from postroad.pipeline.errors import DamagedFileError, PipelineError
from postroad.pipeline.output import (
    discard_output,
    output_by_tasks,
    read_output,
    replace_output,
    replace_output_by,
    small_output,
)
from postroad.pipeline.progress import counted
from postroad.pipeline.session import SparkStart
from postroad.pipeline.sources import Damage, Sources, open_sources
from postroad.trail import TrailDamageError
from postroad.trail.locations import location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from postroad.pipeline.arrow_output import ArrowOutput
    from postroad.pipeline.progress import Tally
    from postroad.trail.locations import Location

__all__ = [
    "SMALL_BYTES",
    "JobOptions",
    "JobReport",
    "JobRun",
    "SparkJob",
    "run_job",
    "spark_work",
]

_OF_WORKER = re.compile(r"^[\w.]+(?:Error|Exception): .+$", re.MULTILINE)
# How many lines of a Spark error to show: the worker's traceback, without the Java frames.
MAX_LINES = 40
_OF_JAVA = ("\tat ", "\t...")
_UNREADABLE = re.compile(r"file:/+([^\s,;]+\.parquet)")
# Size of a trail that Spark processes without code generation in less time than Spark takes to start.
SMALL_BYTES = 32 << 20
# A worker that read a file itself names the file and what is wrong with it.
_DAMAGED = re.compile(r"^postroad\.trail\.errors\.Trail(?:Damage|Version)Error: (\S+): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class JobOptions:
    """Options of every job; a job with further options has a subclass.

    Attributes:
        trail: the directory of the trail, or a folder of a store (`postroad.trail.locations.location`).
        out: the directory for results, or a folder of a store.
        master: where Spark runs; this machine by default.
        since: the first id time that counts, in Unix ms.
        until: the first that does not.
        skip_damaged: leave out files that cannot be read, and say so.
        settings: further settings of Spark.
    """

    trail: Location
    out: Location
    master: str | None = None
    since: int | None = None
    until: int | None = None
    skip_damaged: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_small(self) -> bool:
        """Return whether the options, apart from the trail, make little work."""
        return True


Options = TypeVar("Options", bound="JobOptions")


@dataclass
class JobReport:
    """Report of a run.

    Attributes:
        job: its name.
        seconds: in all, and the start of Spark as part of it.
        summary: figures of the job itself.
        written: the tables it wrote.
        damaged: files that were left out.
        absent: brokers that other records name, and that have no record in this trail.
        bytes_read: of the trail, by the driver itself.
    """

    job: str
    seconds: float = 0.0
    starting_seconds: float = 0.0
    summary: dict[str, Any] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    bytes_read: int = 0


@dataclass
class JobRun(Generic[Options]):
    """One run of a job.

    Attributes:
        start: returns the session; starts it on first use.
        sources: the trail, pinned.
        options: of the job.
        tell: called with a line about the current step.
        account: the report so far.
        alert: called with what somebody should look at; used by jobs that run on and on.
        show: called with how many messages are handled, and how many there are.
    """

    start: SparkStart
    sources: Sources
    options: Options
    tell: Callable[[str], None]
    account: JobReport
    alert: Callable[[str], None] = lambda _: None
    show: Callable[[int, int], None] = lambda *_: None

    def counted(self, total: int = 0) -> AbstractContextManager[Tally]:
        """Show how many messages are handled while Spark works."""
        return counted(self.spark, self.show, total)

    @property
    def spark(self) -> SparkSession:
        """The session."""
        if self.start.made is None:
            self.tell("starting Spark")
            self.start.is_small = self.start.is_here and self.options.is_small and self.sources.is_small(SMALL_BYTES)
        self.sources.workers = self.start()
        return self.sources.workers

    @property
    def may_do_without(self) -> bool:
        """Return whether to do small work here: Spark is not started yet, and would serve this process alone."""
        return self.start.made is None and self.start.is_here

    def write_table(self, rows: Any, name: str) -> Location:
        """Write an Arrow table of results, replace an earlier one, and return its location."""
        self.tell(f"writing {name}")
        place = replace_output_by(rows, self.options.out, name)
        self.account.written.append(str(place))
        return place

    def write(self, rows: DataFrame, name: str, *, by: tuple[str, ...] = ()) -> Location:
        """Write a table of results, replace an earlier one, and return its location."""
        self.tell(f"writing {name}")
        place = replace_output(rows, self.options.out, name, by=by)
        self.account.written.append(str(place))
        return place

    @contextmanager
    def written_by_tasks(self, name: str, schema: Any) -> Iterator[ArrowOutput]:
        """A table of results that tasks write themselves, in the place of an earlier one."""
        with output_by_tasks(self.options.out, name, schema) as output:
            yield output
            self.tell(f"writing {name}")
        self.account.written.append(str(location(self.options.out) / name))

    def read(self, place: Location, schema: StructType | str | None = None) -> DataFrame:
        """Read a table of results; only some of its columns, if a schema names them."""
        return read_output(self.spark, place, schema)

    def read_small(self, place: Location, columns: Sequence[str] | None = None) -> Any:
        """Read a small table of results as an Arrow table, without Spark."""
        return small_output(place, columns)

    def discard(self, place: Location) -> None:
        """Delete an intermediate table, which is not a result."""
        self.account.written.remove(str(place))
        discard_output(place)


class SparkJob(Protocol[Options]):
    """A job: reads the trail of the run, writes its tables, and returns a summary for people."""

    def __call__(self, run: JobRun[Options]) -> dict[str, Any]: ...


def run_job(
    name: str,
    job: SparkJob[Options],
    options: Options,
    tell: Callable[[str], None] = lambda _: None,
    spark: SparkSession | None = None,
    alert: Callable[[str], None] = lambda _: None,
    start: SparkStart | None = None,
    show: Callable[[int, int], None] = lambda *_: None,
) -> JobReport:
    """Run a job.

    Args:
        name: of the job.
        job: the function to run.
        options: its options.
        tell: called with a line about the current step.
        spark: a session to use; by default one is started on first use, and stopped afterwards.
        alert: called with what somebody should look at.
        start: returns a session that other jobs use too; it is not stopped here.
        show: called now and then with how many messages are handled, and how many there are; from another thread.

    Raises:
        PipelineError: the job cannot run; the text says why.
    """
    began = time.monotonic()
    account = JobReport(name)
    tell("reading the manifests")
    sources = open_sources(options.trail, options.since, options.until, skip_damaged=options.skip_damaged)
    own = spark is None and start is None
    if start is None:
        start = SparkStart(options.master, f"postroad {name}", options.settings)
        start.made = spark
    reading, spent = time.monotonic() - began, start.seconds
    with spark_work(start, own):
        try:
            account.summary = job(JobRun(start, sources, options, tell, account, alert, show))
        finally:
            account.starting_seconds = reading + start.seconds - spent
    account.damaged = list(sources.damaged)
    account.bytes_read = sources.reads.bytes
    account.seconds = time.monotonic() - began
    return account


@contextmanager
def spark_work(start: SparkStart, own: bool) -> Iterator[None]:
    """What every job does around its work: stop an own session afterwards, and tell errors of Spark in plain words.

    Raises:
        PipelineError: the job cannot run, or Spark gave up.
        KeyboardInterrupt: Ctrl-C stopped the session, whatever error that became in the work.
    """
    with _stopped_by_interrupts(start, own) as interrupted:
        try:
            yield
        except PipelineError:
            raise
        except Exception as error:
            if interrupted.is_set():
                raise KeyboardInterrupt from None
            raise _told_error(error) from error
        finally:
            if own and not interrupted.is_set():
                start.stop()


@contextmanager
def _stopped_by_interrupts(start: SparkStart, own: bool) -> Iterator[Event]:
    """Let Ctrl-C stop Spark from another thread; the running call into Spark then fails, and with it the job.

    An exception in the middle of a call into Spark would break the connection to it, and print a hundred lines. A
    second Ctrl-C ends the process at once.
    """
    interrupted = Event()
    if not own or current_thread() is not main_thread():
        yield interrupted
        return

    def stop(*_: object) -> None:
        if interrupted.is_set() or start.made is None:
            raise KeyboardInterrupt
        interrupted.set()
        Thread(target=start.stop, daemon=True).start()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _told_error(error: Exception) -> Exception:
    """Return an error of Spark in plain words: a file that went bad while it was read, or Spark's first line."""
    from pyspark.errors import PySparkException

    if isinstance(error, TrailDamageError):
        return DamagedFileError(error.path, error.problem)
    # PySpark does not translate all errors of the JVM; the others arrive as errors of the gateway.
    if not isinstance(error, PySparkException) and not type(error).__module__.startswith("py4j"):
        return error
    text = str(error)
    damaged = _DAMAGED.search(text)
    if damaged is not None:
        return DamagedFileError(damaged[1], damaged[2].strip())
    unreadable = _UNREADABLE.search(text)
    if unreadable is not None:
        return DamagedFileError("/" + unreadable[1].lstrip("/"), "cannot be read: its contents are damaged")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(_OF_JAVA)]
    first = lines[0] if lines else type(error).__name__
    # The error of a Python worker is at the end of its traceback, further below.
    of_worker = _OF_WORKER.findall(text) if "Python worker" in first else []
    found = PipelineError(f"Spark gave up: {(of_worker or [first])[-1].strip()}")
    found.details = "\n".join(lines[1:MAX_LINES])
    return found
