"""Progress is counted in messages, by the workers."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from postroad.messages import MessageId
from postroad.pipeline import progress, run_job
from postroad.pipeline.jobs import audit, compact, trace
from postroad.pipeline.jobs.audit import AuditOptions
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.pipeline.progress import Tally
from tests.pipeline.trails import TROUBLED, make_trail, some_ids

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession


def test_jobs_count_the_messages_that_their_workers_have_handled(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tallies: list[Tally] = []
    real = progress.Tally

    def made(accumulator: object = None) -> Tally:
        tallies.append(real(accumulator))
        return tallies[-1]

    monkeypatch.setattr(progress, "Tally", made)
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.01)
    scale = replace(TROUBLED, brokers=4, messages=600, seconds=60, interests=40)
    trail = make_trail(tmp_path / "trail", scale)
    shown: list[tuple[int, int]] = []

    def show(done: int, total: int) -> None:
        shown.append((done, total))

    ids = tmp_path / "ids.txt"
    ids.write_text("\n".join(_texts(trail)) + "\n")
    run_job("trace", trace.run, TraceOptions(trail, tmp_path / "out", ids=ids), spark=spark, show=show)
    assert (tallies[-1].done, tallies[-1].total) == (80, 80)
    run_job("audit", audit.run, AuditOptions(trail, tmp_path / "out"), spark=spark, show=show)
    # What is shed or acknowledged later has rows of its own at the origin: the total is about right, and not below.
    assert tallies[-1].done == min(scale.messages, tallies[-1].total) <= tallies[-1].total < 2 * scale.messages
    run_job("compact", compact.run, CompactOptions(trail, tmp_path / "out", sample=10), spark=spark, show=show)
    assert 0 < tallies[-1].done <= scale.messages
    assert {total for _, total in shown} == {tally.total for tally in tallies}
    assert all(0 <= done <= total for done, total in shown)


def _texts(trail: Path) -> list[str]:
    ids = some_ids(trail, 40)
    return [str(MessageId(publisher, origin, time, counter)) for origin, time, publisher, counter in ids]


def test_share_of_tasks_stands_for_messages_where_spark_brings_no_counts() -> None:
    tally = Tally()
    tally.total = 1_000
    assert tally.done == 0
    stages = [SimpleNamespace(num_tasks=3, num_completed_tasks=3), SimpleNamespace(num_tasks=1, num_completed_tasks=0)]
    # As the client of Connect calls it.
    tally.take(stages=stages, inflight_tasks=1, operation_id="operation", done=False)
    assert tally.done == 750
    tally.take(stages=None, inflight_tasks=0, operation_id=None, done=True)
    assert tally.done == 0
    # Workers get the counter alone.
    assert pickle.loads(pickle.dumps(tally)).total == 0
