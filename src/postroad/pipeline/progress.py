"""How far a job is, counted in messages: workers count what they handled, and the driver reads the count now and then.

Spark delivers the count of a task when the task ends. Spark Connect delivers no counts; there the share of finished
tasks stands for the share of messages. A task that runs twice counts twice: the figure is for people who wait, and no
result depends on it.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    ShowProgress = Callable[[int, int], None]

__all__ = ["UNCOUNTED", "Tally", "counted"]

# A look costs next to nothing, and people see progress.
LOOK_SECONDS = 0.5


class Tally:
    """Counts messages: workers add, the driver reads.

    Attributes:
        total: how many there are in all, as far as the driver knows.
    """

    def __init__(self, accumulator: Any = None) -> None:
        self._accumulator = accumulator
        self._share = 0.0
        self.total = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return what workers get: they count, and know no total."""
        return {"_accumulator": self._accumulator, "_share": 0.0, "total": 0}

    def add(self, messages: int) -> None:
        """Count more handled messages; workers call this."""
        if self._accumulator is not None:
            self._accumulator.add(messages)

    def take(self, stages: Iterable[Any] | None, **_: object) -> None:
        """Take the progress that a Connect server reports for an operation."""
        known = list(stages or ())
        tasks = sum(stage.num_tasks for stage in known)
        self._share = sum(stage.num_completed_tasks for stage in known) / tasks if tasks else 0.0

    @property
    def done(self) -> int:
        """Return how many are handled so far; never more than there are."""
        found = int(self._share * self.total) if self._accumulator is None else int(self._accumulator.value)
        return min(found, self.total)


# For callers of a job's steps that do not show progress.
UNCOUNTED = Tally()


@contextmanager
def counted(spark: SparkSession, show: ShowProgress, total: int = 0) -> Iterator[Tally]:
    """Show how many messages are handled while Spark works, from another thread.

    Args:
        spark: the session.
        show: called with how many are handled, and how many there are.
        total: how many there are; a caller that learns it later sets `total` of the tally.
    """
    connected = not hasattr(spark, "_jsparkSession")
    tally = Tally(None if connected else spark.sparkContext.accumulator(0))
    tally.total = total
    ended = Event()

    def look() -> None:
        while not ended.wait(LOOK_SECONDS):
            if tally.total:
                show(tally.done, tally.total)

    if connected:
        spark.registerProgressHandler(tally.take)  # type: ignore[arg-type]
    beside = Thread(target=look, name="postroad-progress", daemon=True)
    beside.start()
    try:
        yield tally
    finally:
        ended.set()
        beside.join()
        if connected:
            spark.removeProgressHandler(tally.take)  # type: ignore[arg-type]
