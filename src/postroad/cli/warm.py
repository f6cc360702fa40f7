"""`postroad warm`: compile what would otherwise be compiled at the first start."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from postroad.cli.output import AsJson, echo_json

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["warm"]


def warm(
    processes: Annotated[
        int | None, typer.Option(min=1, help="How many processes compile; by default one for each processor.")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Also archive the classes of Spark, which then starts faster.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compile all kernels for this machine, once: for images, and before a first start.

    Machine code is kept beside the sources, in the user's cache where those cannot be written, or in the folder that
    NUMBA_CACHE_DIR names. Whoever starts from an image with it does not compile, even where nothing can be written.
    """
    from postroad.kernels import compile_everything, kernel_folder

    begun = time.monotonic()
    count, compiled = compile_everything(_progress(as_json), processes)
    seconds = time.monotonic() - begun
    folder = kernel_folder()
    archive = _archived(as_json) if spark else None
    if as_json:
        figures = {"kernels": count, "compiled": compiled, "seconds": round(seconds, 1), "folder": str(folder)}
        echo_json(figures | ({"spark": archive} if archive else {}))
    elif compiled:
        typer.echo(f"compiled {compiled} of {count} kernels in {seconds:.0f} s; they are kept in {folder}")
    else:
        typer.echo(f"all {count} kernels are compiled")


def _archived(as_json: bool) -> str:
    from postroad.pipeline import check_java
    from postroad.pipeline.java_options import make_archive

    check_java()
    archive = str(make_archive())
    if not as_json:
        typer.echo(f"archived the classes of Spark in {archive}")
    return archive


def _progress(as_json: bool) -> Callable[[int, int], None] | None:
    """Return a growing line for a terminal; log lines elsewhere."""
    if as_json or not sys.stderr.isatty():
        return None

    def show(done: int, count: int) -> None:
        end = "\n" if done == count else ""
        sys.stderr.write(f"\rcompiling, once, about half a minute: {done} of {count} kernels{end}")
        sys.stderr.flush()

    return show
