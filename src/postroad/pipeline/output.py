"""What a job writes: Parquet, put in place in one step, so that a run that is repeated or killed leaves no half."""

from __future__ import annotations

import ctypes
import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from postroad.pipeline.errors import PipelineError
from postroad.trail.access import close_to_others, make_folders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["replace_output"]

# renameat2(2): exchange two names in one step.
_HERE = -100
_EXCHANGE = 2


def replace_output(rows: DataFrame, out: str | Path, name: str, *, by: tuple[str, ...] = ()) -> Path:
    """Write a table as `out/name`; one of an earlier run goes, in the same step that puts this one in place.

    Args:
        rows: the table.
        out: the directory of results.
        name: of the table in it.
        by: columns to partition it by.

    Raises:
        PipelineError: the directory cannot be written.
    """
    folder = Path(out)
    fresh = folder / f".{name}-{uuid.uuid4().hex}"
    try:
        make_folders(folder)
    except OSError as error:
        raise PipelineError(f"{folder}: cannot be made ({error.strerror})") from None
    try:
        writer = rows.write.mode("error")
        (writer.partitionBy(*by) if by else writer).parquet(f"file://{fresh.resolve()}")
        close_to_others(fresh)
        _put(fresh, folder / name)
        return folder / name
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _put(fresh: Path, place: Path) -> None:
    """Put a directory in the place of another, in one step where the system can."""
    if not place.exists():
        fresh.rename(place)
        return
    if not _exchanged(fresh, place):
        # Two steps: a crash between them leaves nothing in place, and the old table under the other name.
        aside = fresh.with_name(fresh.name + "-old")
        place.rename(aside)
        fresh.rename(place)
        aside.rename(fresh)
    shutil.rmtree(fresh, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    try:
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return int(exchange(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)) == 0
