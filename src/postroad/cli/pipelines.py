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

__all__ = ["trace"]

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
        account = run_job(name, job, options, lambda text: status.update(f"{name}: {text}"))
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
