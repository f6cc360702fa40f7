"""`postroad lab trail`: write a trail of any size, with what really happened beside it."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroad.cli.output import AsJson, echo_json, echo_table

if TYPE_CHECKING:
    from postroad.lab.trails import Scale, Written

__all__ = ["trail"]

# From here on a trail is written by a process for each core: to start one costs as much as some 200,000 messages.
MANY_MESSAGES = 1_000_000


class Kept(StrEnum):
    """What the brokers of a generated trail keep."""

    EXACT = "exact"
    SEALED = "sealed"
    BLOOM = "bloom"


def trail(
    out: Annotated[Path, typer.Option(help="The directory to write; new, or empty.")],
    brokers: Annotated[int, typer.Option(min=1, help="Brokers of the power-law network.")] = 20,
    messages: Annotated[int, typer.Option(min=1, help="Messages published in all.")] = 1_000_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed, the same trail.")] = 1,
    recorder: Annotated[Kept, typer.Option(help="What the brokers keep.")] = Kept.EXACT,
    publishers: Annotated[int, typer.Option(min=1, help="At each broker.")] = 200,
    subscriptions: Annotated[int, typer.Option(min=1, help="At each broker.")] = 25,
    seconds: Annotated[int, typer.Option(min=1, help="Over which the messages are spread.")] = 3_600,
    seal_seconds: Annotated[
        int, typer.Option(min=1, help="How often each broker seals and commits; few seconds make small files.")
    ] = 60,
    lost: Annotated[float, typer.Option(min=0, max=1, help="Share of messages that a link loses.")] = 0.0,
    shed: Annotated[
        float, typer.Option(min=0, max=1, help="Share that a full queue sheds for one subscription.")
    ] = 0.0,
    acknowledging: Annotated[float, typer.Option(min=0, max=1, help="Share of subscriptions that acknowledge.")] = 0.0,
    gaps: Annotated[int, typer.Option(min=0, help="Seal intervals of a broker that were not written.")] = 0,
    truth: Annotated[bool, typer.Option(help="Write what really happened to OUT/truth.")] = True,
    as_json: AsJson = False,
) -> None:
    """Write a trail of a made-up network, for jobs to be tried and measured on."""
    from postroad.lab.trails import Faults, Scale

    scale = Scale(
        brokers,
        messages,
        seed,
        recorder.value,
        publishers,
        subscriptions,
        seconds=seconds,
        seal_seconds=seal_seconds,
        faults=Faults(lost, shed, acknowledging, gaps),
    )
    written = _write(out, scale, truth, quiet=as_json)
    if as_json:
        echo_json({"trail": str(out), **summary(written)})
    else:
        echo_table(f"trail written to {out}", summary(written))


def _write(out: Path, scale: Scale, truth: bool, quiet: bool) -> Written:
    from rich.console import Console
    from rich.progress import Progress

    from postroad.lab.trails import write_trail

    console = Console(stderr=True, emoji=False)
    # Elsewhere a progress bar leaves an empty line.
    with Progress(console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        task = progress.add_task("writing", total=scale.slices)
        processes = (os.cpu_count() or 1) if scale.messages >= MANY_MESSAGES else 1
        return write_trail(out, scale, lambda done, _: progress.update(task, completed=done), truth, processes)


def summary(written: Written) -> dict[str, Any]:
    """Return the size of a trail."""
    return {
        "messages": written.messages,
        "brokers_visited_per_message": round(written.passages / written.messages, 2),
        "deliveries_per_message": round(written.deliveries / written.messages, 2),
        "files": written.files,
        "bytes": written.bytes,
        "bytes_per_message": round(written.bytes / written.messages, 2),
    }
