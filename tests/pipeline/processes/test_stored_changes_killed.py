"""Jobs that change a trail in a store, as programs that are killed in the middle: nothing is denied, all is done."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from postroad.lab.trails import write_trail
from postroad.messages import MessageId
from postroad.pipeline import PipelineError, run_job
from postroad.pipeline.erasure import ERASED
from postroad.pipeline.java_options import SMALL as SMALL_JAVA
from postroad.pipeline.jobs import compact, trace
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.pipeline.sources import open_sources
from tests.cli.programs import PROGRAM, SECONDS
from tests.pipeline.conftest import SETTINGS
from tests.pipeline.small_trails import SMALL, asked, people
from tests.pipeline.trails import as_of_the_trail, copied
from tests.trail.samples import NOON

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from postroad.trail.locations import Location
    from tests.trail.stores import Request, Store


def kill(store: Store, is_due: Callable[[Request], bool], given: list[str], out: Path, arrives: bool) -> None:
    """Run a job, and kill it and its JVM while it asks the store for something; that arrives or does not."""
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": " ".join(SMALL_JAVA)}
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [*PROGRAM, "pipeline", *given, "--out", str(out), "--master", "local[1]", "--sample", "5", *conf]
    errors = out.parent / "errors"
    with (
        errors.open("w") as file,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, start_new_session=True) as running,
    ):

        def fault(request: Request) -> str:
            if not is_due(request):
                return ""
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            return "" if arrives else "500"

        store.fault = fault
        try:
            assert running.wait(SECONDS) == -signal.SIGKILL, errors.read_text()
        finally:
            store.fault = lambda _: ""
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def nth(count: int, is_meant: Callable[[Request], bool]) -> Callable[[Request], bool]:
    """From the request of this number on, among some; later ones are of processes that have not ended yet."""
    seen = 0

    def is_due(request: Request) -> bool:
        nonlocal seen
        seen += is_meant(request)
        return seen >= count

    return is_due


def puts_manifest(request: Request) -> bool:
    return request.method == "PUT" and "/manifests/" in request.path and request.path.endswith(".json")


def deletes(request: Request) -> bool:
    return request.method == "DELETE"


def answers(place: Location, ids: Path, folder: Path) -> list[dict[str, Any]]:
    run_job("trace", trace.run, TraceOptions(place, folder / "traced", ids=ids))
    rows = pq.read_table(folder / "traced" / "trace").to_pylist()
    return sorted(as_of_the_trail(rows), key=str)


def named(place: Location, table: str) -> set[str]:
    """What the manifests name of a table; all of it is there, and nothing is damaged."""
    sources = open_sources(place)
    assert not sources.damaged
    found = {source.entry.path for source in sources.of(table, always=True)}
    assert all((place / path).exists() for path in found)
    return found


# Spark starts twice, on a machine that may have much else to do.
@pytest.mark.timeout(2 * SECONDS)
def test_compaction_that_is_killed_denies_nothing_and_is_done_by_the_next(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    trail, place, out = tmp_path / "trail", store.place("killed-compaction"), tmp_path / "out"
    write_trail(trail, SMALL)
    copied(trail, place)
    ids = asked(trail, tmp_path)
    expected = answers(trail, ids, tmp_path)
    assert {"delivered", "never accepted"} <= {row["verdict"] for row in expected}
    before = named(place, "passages")
    where = ["compact", "--trail", place.uri]  # type: ignore[union-attr]
    # In the middle of what is added, and in the middle of what is taken out.
    for is_due, arrives in ((nth(2, puts_manifest), True), (nth(5, puts_manifest), False)):
        kill(store, is_due, where, out, arrives)
        assert answers(place, ids, tmp_path) == expected
        assert named(place, "passages")
    assert named(place, "journeys")
    options = CompactOptions(place, out, sample=20)
    run_job("compact", compact.run, options, spark=spark)
    assert answers(place, ids, tmp_path) == expected
    assert not named(place, "passages") & before


@pytest.mark.parametrize(("step", "arrives"), [("manifest", True), ("manifest", False), ("delete", True)])
def test_erasure_that_is_killed_denies_nothing_of_others_and_is_done_by_the_next(
    spark: SparkSession, store: Store, tmp_path: Path, step: str, arrives: bool
) -> None:
    trail, place, out = tmp_path / "trail", store.place(f"killed-erasure-{step}-{arrives}"), tmp_path / "out"
    people(trail)
    copied(trail, place)
    ids = tmp_path / "ids.txt"
    # Both publish at both brokers; there is no publisher 9.
    ids.write_text("".join(f"{MessageId(number, broker, NOON, 0)}\n" for number in (7, 8, 9) for broker in (1, 2)))
    expected = answers(trail, ids, tmp_path)
    assert {"delivered", "never accepted"} <= {row["verdict"] for row in expected}
    is_due = nth(2, puts_manifest if step == "manifest" else deletes)
    kill(store, is_due, ["erase", "--principal", "ann", "--trail", place.uri], out, arrives)  # type: ignore[union-attr]

    def without_ann(rows: list[dict[str, Any]]) -> list[tuple[str, str, float, list[int]]]:
        def others(row: dict[str, Any]) -> list[int]:
            return sorted(one["subscription"] for one in row["delivered"] if one["subscription"] not in (5, ERASED))

        return [(row["id"], row["verdict"], row["certainty"], others(row)) for row in rows]

    assert without_ann(answers(place, ids, tmp_path)) == without_ann(expected)
    with suppress(PipelineError):
        # All manifests may be there already, and only what they replaced is left to be deleted.
        run_job("erase", compact.run, CompactOptions(place, out, erase="ann", sample=5), spark=spark)
    found = answers(place, ids, tmp_path)
    assert without_ann(found) == without_ann(expected)
    told = {one["subscription"] for row in found for one in row["delivered"]}
    assert 5 not in told
    assert 6 in told
