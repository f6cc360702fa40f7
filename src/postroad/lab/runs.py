"""Runs experiments: trials one after the other, raw events to disk, summaries by Spark."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, NamedTuple

from postroad.lab.errors import BrokenOffError, LabError
from postroad.lab.experiments.experiment import LOAD_AVERAGE, PROCESSORS, Results, RunRequest, TimedTell
from postroad.lab.run_folder import COMPLETE, RunFolder
from postroad.lab.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from postroad.lab.experiments.experiment import Experiment
    from postroad.lab.raw_events import RawEvents

__all__ = [
    "RunOutcome",
    "Watch",
    "is_complete",
    "read_results",
    "request_of",
    "run_experiment",
    "run_folder",
    "summarise_played",
]

# A run has a few million events at most: fewer, larger tasks than for a trail.
_SPARK = {"spark.sql.shuffle.partitions": "8"}


class RunOutcome(NamedTuple):
    """The outcome of a run.

    Attributes:
        folder: where it is.
        state: complete or partial.
        played: cells that were played now.
        kept: cells that an earlier start of the run had played.
    """

    folder: RunFolder
    state: str
    played: list[str]
    kept: list[str]


class Watch(NamedTuple):
    """Callbacks for progress.

    Attributes:
        trial: a trial begins: its key, its number, and how many there are.
        share: which share of it is done.
        line: anything else.
    """

    trial: Callable[[str, int, int], None] = lambda key, number, count: None
    share: Callable[[float], None] = lambda share: None
    line: Callable[[str], None] = lambda text: None


def run_folder(out: Path, experiment: Experiment, mode: str) -> RunFolder:
    """Return where the runs of an experiment are, below a directory for all."""
    return RunFolder(out / f"{experiment.name}-{mode}")


def run_experiment(
    experiment: Experiment,
    request: RunRequest,
    out: Path,
    watch: Watch | None = None,
    *,
    fresh: bool = False,
    spark: SparkSession | None = None,
) -> RunOutcome:
    """Run an experiment, or continue an interrupted run, and summarise it.

    Args:
        experiment: which.
        request: how.
        out: the directory for runs.
        watch: is told what happens.
        fresh: delete an earlier run.
        spark: a session to use; by default one is started, and stopped afterwards.

    Raises:
        LabError: it cannot be run in this mode, the directory holds another run, or the disk is full.
    """
    watch = watch or Watch()
    if request.mode not in experiment.modes:
        modes = " or ".join(f"--{mode}" for mode in experiment.modes)
        raise LabError(f"{experiment.name} runs {modes}, not --{request.mode}")
    if not 0 < request.scale <= 1:
        raise LabError(f"--scale is above 0 and at most 1, the paper's size; not {request.scale:g}")
    trials = {trial.key: trial for trial in experiment.trials(request)}
    folder = run_folder(out, experiment, request.mode)
    asked = {"experiment": experiment.name, **request.settings()}
    todo = folder.begin(
        asked | {"trials": {key: one.parameters for key, one in trials.items()}}, list(trials), fresh=fresh
    )
    kept = [key for key in trials if key not in todo]
    try:
        with _terminable():
            for number, key in enumerate(todo, start=1 + len(kept)):
                watch.trial(key, number, len(trials))
                with folder.cell(key) as events:
                    _put_machine(request, events)
                    trials[key].play(events, TimedTell(watch.share))
                    _put_machine(request, events)
    except KeyboardInterrupt:
        raise BrokenOffError(
            f"{folder.root}: broken off; {_progress(folder)}; start the same run again to go on"
        ) from None
    finally:
        state = folder.finish()
    summarise_played(folder, watch, spark)
    return RunOutcome(folder, state, todo, kept)


def _put_machine(request: RunRequest, events: RawEvents) -> None:
    """What else the machine does, before and after a live cell: it changes what the cell shows."""
    if request.mode == "live":
        events.measure(LOAD_AVERAGE, os.getloadavg()[0])
        events.measure(PROCESSORS, len(os.sched_getaffinity(0)))


def _progress(folder: RunFolder) -> str:
    played, cells = folder.progress()
    return f"{played} of {cells} cells are kept"


def request_of(folder: RunFolder) -> RunRequest:
    """Return the request of a run, to continue it."""
    return RunRequest.of(folder.read()["asked"])


def summarise_played(folder: RunFolder, watch: Watch | None = None, spark: SparkSession | None = None) -> None:
    """Summarise the cells of a run that were played, unless that is done; a run without such cells is left alone.

    Raises:
        LabError: Spark cannot, for example because the disk is full.
    """
    from postroad.pipeline import session

    watch = watch or Watch()
    if not folder.progress()[0] or folder.is_summarised:
        return

    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    watch.line("starting Spark")
    own = session(name="postroad lab", settings=_SPARK) if spark is None else None
    try:
        used = own or spark
        assert used is not None
        summarise(used, folder, watch.line)
    except (Py4JJavaError, PySparkException) as error:
        raise LabError(
            f"{folder.root}: Spark could not make the summaries: {_reason(str(error))}; raw events are kept, and "
            "`postroad lab report` tries again"
        ) from None
    finally:
        if own is not None:
            own.stop()


def _reason(output: str) -> str:
    """What Spark failed at, in a line: the last cause that it names."""
    if "No space left on device" in output:
        return "the disk is full; free some space"
    causes = [line.removeprefix("Caused by: ") for line in output.splitlines() if line.startswith("Caused by: ")]
    return (causes or output.splitlines() or ["it does not say why"])[-1 if causes else 0].strip()


@contextmanager
def _terminable() -> Iterator[None]:
    """End in order on SIGTERM: events so far are kept, as after Ctrl-C."""
    if current_thread() is not main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def read_results(folder: RunFolder) -> Results:
    """Return the summaries of a run.

    Raises:
        LabError: there is no run, or it has not been summarised.
    """
    said = folder.read()
    return Results(folder.summary, said["asked"], said["cells"])


def is_complete(folder: RunFolder) -> bool:
    """Return whether a run exists, complete and summarised."""
    return folder.exists and folder.state == COMPLETE and folder.is_summarised
