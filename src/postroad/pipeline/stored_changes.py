"""Runs a job that changes a trail on one in a store: on a copy of its manifests, the changes of which are shipped back.

A job that dies before it ships has changed nothing there. One that dies while it ships leaves a whole trail: each
broker's manifest is that of before or that of after, and journeys are there before the passages go that they replace.
The next job begins with what is there.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroad.pipeline.errors import PipelineError
from postroad.pipeline.sources import moment, open_sources
from postroad.trail.access import make_folders
from postroad.trail.locations import StoredPath, location
from postroad.trail.stored_trail import StoredTrail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from postroad.pipeline.job_run import JobRun
    from postroad.pipeline.jobs.compact import CompactOptions

__all__ = ["changed_in_store"]


def changed_in_store(
    run: JobRun[CompactOptions], work: Callable[[JobRun[CompactOptions]], dict[str, Any]]
) -> dict[str, Any]:
    """Change a trail in a store by a job for directories.

    After an erasure, what was replaced is deleted at once: nobody is left who would do it later.

    Raises:
        PipelineError: the trail cannot be changed; nothing was.
        TrailError: the store does not answer, or a broker ships to it.
    """
    place, options = run.sources.root, run.options
    assert isinstance(place, StoredPath)
    now = options.now or int(time.time() * 1_000)
    with _folder(run) as folder:
        run.tell("copying the manifests")
        trail = StoredTrail(place, folder, now, at_once=options.erase is not None)
        # Of an erasure that was broken off, this may be all that is left to do.
        deleted = trail.delete_left()
        run.options = replace(options, trail=folder, now=now)
        run.sources = open_sources(folder, options.since, options.until, skip_damaged=options.skip_damaged)
        summary = work(run)
        run.tell("putting what changed into the store")
        summary["files_deleted"] = deleted + trail.ship()
        if options.erase is not None:
            summary["old_files_deleted_after"] = moment(now)
    run.account.written = [str(place) if one == str(folder) else one for one in run.account.written]
    return summary


@contextmanager
def _folder(run: JobRun[CompactOptions]) -> Iterator[Path]:
    """A folder that all workers reach, for the time of the job."""
    out = location(run.options.out)
    if isinstance(out, Path):
        make_folders(out)
        parent: Path | None = out.absolute()
    elif run.start.is_here:
        parent = None
    else:
        raise PipelineError(
            f"{out}: on a cluster, a job that changes a trail in a store needs an --out that is a directory, which "
            "all workers reach: new files are written there first"
        )
    folder = Path(tempfile.mkdtemp(prefix=".changing-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
