"""`postroad pipeline JOB`: jobs over a whole trail, on Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.output import AsJson, echo_json, echo_table
from postroad.errors import PostroadError

if TYPE_CHECKING:
    from postroad.pipeline import Account, Job
    from postroad.pipeline.erasing import Erasure

__all__ = ["audit", "compact", "follow", "storage", "timings", "trace"]

TrailFolder = Annotated[Path, typer.Option("--trail", help="The directory of the trail.")]
OutFolder = Annotated[Path, typer.Option("--out", help="The directory for results; those of earlier runs go.")]
Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs: spark://…, k8s://…, yarn, sc://…; here by default."),
]
Since = Annotated[str | None, typer.Option(help="Only messages from then on: 2026-01-31 or 2026-01-31T12:00, UTC.")]
Until = Annotated[str | None, typer.Option(help="Only messages before this time.")]
SkipDamaged = Annotated[bool, typer.Option("--skip-damaged", help="Leave out unreadable files, and tell which.")]


def moment(text: str | None, option: str) -> int | None:
    """A time in Unix ms."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise PostroadError(f"{option} {text!r}: write a date or a time, like 2026-01-31T12:00:00") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)


def trace(
    ids: Annotated[Path, typer.Option(help="Ids or aliases: Parquet or CSV with a column id, or text, one a line.")],
    trail: TrailFolder,
    out: OutFolder,
    master: Master = None,
    since: Since = None,
    until: Until = None,
    skip_damaged: SkipDamaged = False,
    as_json: AsJson = False,
) -> None:
    """Where many messages went: one row for each id, in OUT/trace."""
    from postroad.pipeline.jobs.trace import run

    _run("trace", run, trail, out, master, since, until, skip_damaged, as_json, {"ids": ids})


def compact(
    trail: TrailFolder,
    out: OutFolder,
    sample: Annotated[int, typer.Option(min=1, help="Ids to trace before and after.")] = 1_000,
    keep_days: Annotated[float | None, typer.Option(min=0, help="Instead, take out files older than this.")] = None,
    erase: Annotated[
        str | None, typer.Option(metavar="BROKER/SUBSCRIBER", help="Instead, erase one subscriber from the record.")
    ] = None,
    master: Master = None,
    since: Since = None,
    until: Until = None,
    skip_damaged: SkipDamaged = False,
    as_json: AsJson = False,
) -> None:
    """Passages into journeys, small files into large ones. The trail is changed; OUT is for files on the way."""
    from postroad.pipeline.jobs.compact import run

    if keep_days is not None and erase is not None:
        raise PostroadError("--keep-days and --erase are two things; do one after the other")
    more = {"sample": sample, "keep_ms": None if keep_days is None else int(keep_days * 86_400_000)}
    _run("compact", run, trail, out, master, since, until, skip_damaged, as_json, more | {"erase": _whom(erase)})


def _whom(text: str | None) -> Erasure | None:
    from postroad.pipeline.erasing import Erasure

    if text is None:
        return None
    broker, _, subscriber = text.partition("/")
    if not (broker.isdecimal() and subscriber.isdecimal()):
        raise PostroadError(f"--erase {text!r}: write the number of the broker and of the subscriber there, like 3/17")
    return Erasure(int(broker), int(subscriber))


def audit(
    trail: TrailFolder,
    out: OutFolder,
    ids: Annotated[Path | None, typer.Option(help="Reconcile these ids, instead of all of the exact record.")] = None,
    master: Master = None,
    since: Since = None,
    until: Until = None,
    skip_damaged: SkipDamaged = False,
    as_json: AsJson = False,
) -> None:
    """Promised against measured accuracy, and what became of all messages, in OUT/accuracy and OUT/reconciliation."""
    from postroad.pipeline.jobs.audit import run

    _run("audit", run, trail, out, master, since, until, skip_damaged, as_json, {"ids": ids})


def storage(
    trail: TrailFolder,
    out: OutFolder,
    master: Master = None,
    since: Since = None,
    until: Until = None,
    skip_damaged: SkipDamaged = False,
    as_json: AsJson = False,
) -> None:
    """What the record costs, by broker, day and recorder, in OUT/storage."""
    from postroad.pipeline.jobs.storage import run

    _run("storage", run, trail, out, master, since, until, skip_damaged, as_json)


def timings(
    trail: TrailFolder,
    out: OutFolder,
    master: Master = None,
    since: Since = None,
    until: Until = None,
    skip_damaged: SkipDamaged = False,
    as_json: AsJson = False,
) -> None:
    """Service times fitted to what brokers measured, and latencies, in OUT/service_times and OUT/latencies."""
    from postroad.pipeline.jobs.timings import run

    _run("timings", run, trail, out, master, since, until, skip_damaged, as_json)


def follow(
    trail: TrailFolder,
    out: OutFolder,
    seconds: Annotated[float, typer.Option(min=0.1, help="How often to look for commits.")] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="End when all that is there is counted.")] = False,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Reconcile a trail as it grows, until Ctrl-C: OUT/links and OUT/alerts. Goes on where it stopped."""
    from postroad.pipeline.jobs.follow import run

    _run("follow", run, trail, out, master, None, None, False, as_json, {"seconds": seconds, "once": once})


def _run(
    name: str,
    job: Job,
    trail: Path,
    out: Path,
    master: str | None,
    since: str | None,
    until: str | None,
    skip_damaged: bool,
    as_json: bool,
    more: dict[str, Any] | None = None,
) -> None:
    from rich.console import Console

    from postroad.pipeline import Options, run_job

    options = Options(
        trail, out, master, moment(since, "--since"), moment(until, "--until"), skip_damaged, more=more or {}
    )
    with Console(stderr=True).status("starting") as status:
        account = run_job(
            name,
            job,
            options,
            lambda text: status.update(f"{name}: {text}"),
            alert=lambda text: typer.echo(f"alert: {text}", err=True),
        )
    show(account, as_json)


def show(account: Account, as_json: bool) -> None:
    """What a run did: a table for people, or one line of JSON."""
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
        echo_json({"job": account.job, **figures, "written": account.written, "damaged": damaged})
    else:
        echo_table(f"{account.job}: {', '.join(account.written) or 'nothing written'}", figures)
