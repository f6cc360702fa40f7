"""`postroad pipeline JOB`: jobs over a whole trail, on Spark."""

from __future__ import annotations

import inspect
import logging
import signal
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from pathlib import Path  # noqa: TC003 (typer reads the types of options)
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from postroad.cli.match import point_out_doubts
from postroad.cli.output import AsJson, echo_json, echo_table
from postroad.cli.topics import check_written
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from postroad.pipeline import JobOptions, JobReport, SparkJob
    from postroad.pipeline.erasure import Erasure
    from postroad.pipeline.session import SparkStart

__all__ = [
    "audit",
    "compact",
    "erase",
    "follow",
    "match",
    "publish",
    "run",
    "serve",
    "storage",
    "timings",
    "trace",
]

# Ids that are traced before and after a change of the trail.
DEFAULT_SAMPLE = 1_000

Options = TypeVar("Options", bound="JobOptions")

TrailFolder = Annotated[
    str, typer.Option("--trail", metavar="DIR|URI", help="The trail: a directory, or file://, s3://, hdfs://.")
]
OutFolder = Annotated[
    str,
    typer.Option("--out", metavar="DIR|URI", help="The directory or URI for results; replaces those of earlier runs."),
]
Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs: spark://…, k8s://…, yarn, sc://…; here by default."),
]
Since = Annotated[str | None, typer.Option(help="Only messages from then on: 2026-01-31 or 2026-01-31T12:00, UTC.")]
Until = Annotated[str | None, typer.Option(help="Only messages before this time.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]
SkipDamaged = Annotated[bool, typer.Option("--skip-damaged", help="Skip unreadable files, and name them.")]


def moment(text: str | None, option: str) -> int | None:
    """Return a time in Unix ms."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise PostroadError(f"{option} {text!r}: write a date or a time, like 2026-01-31T12:00:00") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)


def settings_of(given: list[str] | None) -> dict[str, str]:
    """Return the settings of Spark given with `--conf`."""
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise PostroadError(f"--conf {text!r}: write a setting and its value, like spark.executor.memory=2g")
        found[name.strip()] = value
    return found


@dataclass(frozen=True)
class Given:
    """The options that all jobs share."""

    trail: TrailFolder
    out: OutFolder
    master: Master = None
    since: Since = None
    until: Until = None
    skip_damaged: SkipDamaged = False
    conf: Conf = None
    as_json: AsJson = False

    def run(
        self,
        name: str,
        job: SparkJob[Options],
        make: Callable[..., Options],
        start: SparkStart | None = None,
        **own: Any,
    ) -> None:
        """Run a job, and show its report; `make` builds the job's options from the shared ones and its own."""
        from postroad.cli.job_progress import JobProgress
        from postroad.pipeline import run_job
        from postroad.trail.locations import location

        since, until = moment(self.since, "--since"), moment(self.until, "--until")
        trail, out = location(self.trail), location(self.out)
        settings = settings_of(self.conf)
        options = make(trail, out, self.master, since, until, self.skip_damaged, settings, **own)
        with _quiet(), JobProgress(name) as progress:
            account = run_job(
                name,
                job,
                options,
                progress.tell,
                alert=lambda text: typer.echo(f"alert: {text}", err=True),
                start=start,
                show=progress.show,
            )
        show(account, self.as_json)


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore Ctrl-C while Spark starts: the bridge to Java would print tracebacks."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _command(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command with the options of all jobs, except some, besides its own; typer reads the signature."""
    hints = get_type_hints(Given, include_extras=True)
    shared = {
        field.name: inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(Given, field.name, inspect.Parameter.empty),
            annotation=hints[field.name],
        )
        for field in fields(Given)
        if field.name not in without
    }

    def made(job: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(job, eval_str=True).parameters.values()

        @wraps(job)
        def command(**options: Any) -> None:
            job(Given(**{name: options.pop(name) for name in shared}), **options)

        every = [*(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *shared.values()]
        command.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in every}
        return command

    return made


@_command()
def trace(
    given: Given,
    ids: Annotated[Path, typer.Option(help="Ids or aliases: Parquet or CSV with a column id, or text, one a line.")],
) -> None:
    """Where many messages went: one row for each id, in OUT/trace."""
    from postroad.pipeline.jobs.trace import TraceOptions, run

    given.run("trace", run, TraceOptions, ids=ids)


@_command()
def compact(
    given: Given,
    sample: Annotated[int | None, typer.Option(min=1, help="Ids to trace before and after; 1,000 by default.")] = None,
    keep_days: Annotated[float | None, typer.Option(min=0, help="Instead, remove files older than this.")] = None,
    erase: Annotated[
        str | None, typer.Option(metavar="BROKER/SUBSCRIPTION", help="Instead, erase one subscription from the record.")
    ] = None,
) -> None:
    """Passages into journeys, small files into large ones. The trail is changed; OUT is for files on the way."""
    from postroad.pipeline.jobs.compact import CompactOptions, run

    if keep_days is not None and erase is not None:
        raise PostroadError("--keep-days and --erase are two things; do one after the other")
    if keep_days is not None and sample is not None:
        raise PostroadError("--keep-days removes whole files, and traces nothing: leave out --sample")
    keep_ms = None if keep_days is None else int(keep_days * 86_400_000)
    sample = DEFAULT_SAMPLE if sample is None else sample
    given.run("compact", run, CompactOptions, sample=sample, keep_ms=keep_ms, erase=_whom(erase))


def _whom(text: str | None, option: str = "--erase") -> Erasure | None:
    from postroad.pipeline.erasure import Erasure

    if text is None:
        return None
    broker, _, subscription = text.partition("/")
    if not (broker.isdecimal() and subscription.isdecimal() and len(text) <= len(f"{2**64}/{2**64}")):
        raise PostroadError(
            f"{option} {text!r}: write the number of the broker and of the subscription there, like 3/17"
        )
    return Erasure(int(broker), int(subscription))


@_command("since", "until")
def erase(
    given: Given,
    subscription: Annotated[
        str | None, typer.Option(metavar="BROKER/SUBSCRIPTION", help="One subscription, by its number at its broker.")
    ] = None,
    principal: Annotated[str | None, typer.Option(help="All of one login: subscriptions, names, aliases.")] = None,
    sample: Annotated[int, typer.Option(min=1, help="Ids to trace before and after.")] = DEFAULT_SAMPLE,
) -> None:
    """Erase a subscription or a principal from the record. The trail is changed; says what is left, until when."""
    from postroad.pipeline.jobs.compact import CompactOptions, run

    if (subscription is None) == (principal is None):
        raise PostroadError("name whom to erase: either --subscription BROKER/SUBSCRIPTION or --principal NAME")
    given.run(
        "erase",
        run,
        CompactOptions,
        sample=sample,
        erase=principal if subscription is None else _whom(subscription, "--subscription"),
    )


@_command()
def audit(
    given: Given,
    ids: Annotated[Path | None, typer.Option(help="Reconcile these ids, instead of all of the exact record.")] = None,
) -> None:
    """Promised against measured accuracy, and what became of all messages, in OUT/accuracy and OUT/reconciliation."""
    from postroad.pipeline.jobs.audit import AuditOptions, run

    given.run("audit", run, AuditOptions, ids=ids)


@_command()
def storage(
    given: Given,
    plot: Annotated[
        Path | None, typer.Option(help="Draw bytes per message, by day and recorder, to this file, as SVG.")
    ] = None,
) -> None:
    """What the record costs, by broker, day and recorder, in OUT/storage."""
    from postroad.pipeline.jobs.storage import StorageOptions, run

    given.run("storage", run, StorageOptions, plot=plot)


@_command()
def timings(given: Given) -> None:
    """Service times fitted to what brokers measured, and latencies, in OUT/service_times and OUT/latencies."""
    from postroad.pipeline import JobOptions
    from postroad.pipeline.jobs.timings import run

    given.run("timings", run, JobOptions)


@_command("since", "until")
def publish(
    given: Given,
    catalogue: Annotated[
        str | None,
        typer.Option(
            metavar="URI|NAME",
            help="The catalogue: sqlite:////path, postgresql+psycopg2://…, https://… (REST), or one that PyIceberg's "
            "settings name. By default a file in the warehouse.",
        ),
    ] = None,
    warehouse: Annotated[
        str | None, typer.Option(metavar="DIR|URI", help="Where the tables are: a directory or URI; OUT/tables.")
    ] = None,
    namespace: Annotated[str, typer.Option(help="Of the tables.")] = "postroad",
) -> None:
    """Journeys, passages and the reports in OUT as Apache Iceberg tables. Again, or after a kill, it continues."""
    from postroad.pipeline.jobs.publish import PublishOptions, run
    from postroad.trail.locations import location

    place = None if warehouse is None else location(warehouse)
    given.run("publish", run, PublishOptions, catalogue=catalogue, warehouse=place, namespace=namespace)


@_command("since", "until", "skip_damaged")
def follow(
    given: Given,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="How often to look for commits; 10 by default.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when all existing commits are counted.")] = False,
) -> None:
    """Reconcile a trail as it grows, until Ctrl-C: OUT/links and OUT/alerts. Goes on where it stopped."""
    from postroad.pipeline.jobs.follow import FollowOptions, run

    if once and seconds is not None:
        raise PostroadError("--once looks once: leave out --seconds")
    seconds = FollowOptions.seconds if seconds is None else seconds
    given.run("follow", run, FollowOptions, seconds=seconds, once=once)


def match(
    archive: Annotated[Path, typer.Option(help="The directory that `postroad archive export` has written.")],
    out: OutFolder,
    where: Annotated[str, typer.Option(help="A selector, such as: price > 20 AND stock = 'S1'.")] = "",
    topic: Annotated[str, typer.Option(help="A pattern of topics.")] = ">",
    master: Master = None,
    since: Since = None,
    until: Until = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Which messages of an archive a subscription would have got, in OUT/match."""
    from postroad.cli.job_progress import JobProgress
    from postroad.pipeline.jobs.match import MatchOptions, run
    from postroad.trail.locations import location

    check_written(topic, pattern=True)
    point_out_doubts(where)
    first, last = moment(since, "--since"), moment(until, "--until")
    options = MatchOptions(archive, location(out), where, topic, master, first, last, settings_of(conf))
    with _quiet(), JobProgress("match") as progress:
        report = run(options, progress.tell, show=progress.show)
    show(report, as_json)


class SharedJob(StrEnum):
    """Jobs that may share a session."""

    TRACE = "trace"
    AUDIT = "audit"
    STORAGE = "storage"
    TIMINGS = "timings"
    COMPACT = "compact"
    PUBLISH = "publish"


@_command()
def run(
    given: Given,
    jobs: Annotated[list[SharedJob], typer.Argument(metavar="JOB", help="In this order.")],
    ids: Annotated[Path | None, typer.Option(help="The ids that `trace` asks for.")] = None,
) -> None:
    """Several jobs, one after the other, with one start of Spark."""
    from postroad.pipeline import JobOptions
    from postroad.pipeline.jobs import audit, compact, publish, storage, timings, trace
    from postroad.pipeline.session import SparkStart

    if SharedJob.TRACE in jobs and ids is None:
        raise PostroadError("`trace` asks for messages: name them with --ids FILE")
    if SharedJob.TRACE not in jobs and ids is not None:
        raise PostroadError("--ids is for `trace`, which is not among these jobs: add it, or leave --ids out")
    if SharedJob.PUBLISH in jobs and (given.since is not None or given.until is not None):
        raise PostroadError("`publish` publishes all of a trail: leave out --since and --until, or run it by itself")
    start = SparkStart(given.master, "postroad", settings_of(given.conf))
    try:
        for job in jobs:
            if job is SharedJob.TRACE:
                given.run(job.value, trace.run, trace.TraceOptions, start, ids=ids)
            elif job is SharedJob.AUDIT:
                given.run(job.value, audit.run, audit.AuditOptions, start)
            elif job is SharedJob.STORAGE:
                given.run(job.value, storage.run, storage.StorageOptions, start)
            elif job is SharedJob.TIMINGS:
                given.run(job.value, timings.run, JobOptions, start)
            elif job is SharedJob.PUBLISH:
                given.run(job.value, publish.run, publish.PublishOptions, start)
            else:
                given.run(job.value, compact.run, compact.CompactOptions, start)
    finally:
        start.stop()


def serve(
    master: Annotated[str, typer.Option(help="Where its Spark runs.")] = "local[*]",
    conf: Conf = None,
) -> None:
    """Keep Spark warm until Ctrl-C: commands without --master find it, and wait for no start."""
    from postroad.pipeline.session import LOCAL_MEMORY, check_java, is_local_master, surroundings
    from postroad.pipeline.warm_server import note_path, warm_server

    check_java()
    # Any signal that ends this process on purpose ends the server too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = {"spark.driver.memory": LOCAL_MEMORY, "spark.ui.enabled": "false", **settings_of(conf)}
    with warm_server(master, settings, surroundings(is_local_master(master))) as running:
        typer.echo(f"Spark is warm; {note_path()} says where", err=True)
        try:
            running.wait()
        except KeyboardInterrupt:
            return
    raise PostroadError("Spark's Connect server ended by itself")


# In the order of `postroad pipeline --help`.
def show(account: JobReport, as_json: bool) -> None:
    """Show the report of a run: a table for people, or one line of JSON."""
    for broker in account.absent:
        text = f"broker {broker} has no record in this trail, though others tell of it: what it alone knows is missing"
        typer.echo(f"postroad: warning: {text}", err=True)
    for lost in account.damaged:
        typer.echo(f"postroad: left out {lost.path}: {lost.problem}", err=True)
    figures = {
        **account.summary,
        "seconds": round(account.seconds, 1),
        "seconds_to_start": round(account.starting_seconds, 1),
        "files_left_out": len(account.damaged),
    }
    if as_json:
        damaged = [{"path": lost.path, "problem": lost.problem} for lost in account.damaged]
        echo_json(
            {"job": account.job, **figures, "written": account.written, "damaged": damaged, "absent": account.absent}
        )
    else:
        echo_table(f"{account.job}: {', '.join(account.written) or 'nothing written'}", figures)
