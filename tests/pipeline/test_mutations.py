"""Jobs over harmed trails: damaged files are named, answers are right or vague, nothing is certain beside damage."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from postroad.messages import MessageId
from postroad.pipeline import DamagedFileError, run_job
from postroad.pipeline.jobs import audit, trace
from postroad.pipeline.jobs.audit import AuditOptions
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.pipeline.sources import open_sources
from postroad.tracking import Verdict
from postroad.trail import Trail
from tests.trail.mutations import VAGUE, Known, good_trail, harmed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Without Spark, so that many can be looked at.
LOOKS = 150
SEEN = {Verdict.LOST_AFTER_HOP.value, Verdict.DROPPED.value, Verdict.SHED.value}
HONEST = SEEN | {verdict.value for verdict in VAGUE} | {"unknown alias"}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[MessageId]]:
    root = tmp_path_factory.mktemp("good") / "trail"
    return root, good_trail(root, "sealed")


def answers(spark: SparkSession, root: Path, out: Path, asked: list[str], **more: Any) -> tuple[dict[str, Any], Any]:
    ids = out.with_suffix(".txt")
    ids.write_text("\n".join(asked) + "\n")
    account = run_job("trace", trace.run, TraceOptions(root, out, ids=str(ids), **more), spark=spark)  # type: ignore[arg-type]
    rows = spark.read.parquet(f"file://{out / 'trace'}").collect()
    return {row["asked"]: row for row in rows}, account


def delivered(row: Any) -> set[tuple[int, int]]:
    return {(one["broker"], one["subscription"]) for one in row["delivered"] or ()}


def test_a_job_on_a_harmed_trail_names_the_file_or_tells_nothing_but_the_truth(
    spark: SparkSession, good: tuple[Path, list[MessageId]], tmp_path: Path
) -> None:
    whole, ids = good
    root = tmp_path / "trail"
    shutil.copytree(whole, root)
    some = random.Random(2).sample(range(len(ids)), 12)
    by_text = {str(ids[place]): ids[place] for place in some}
    by_text |= {f"alias-{place}": ids[place] for place in some}
    by_text |= {str(ghost): ghost for ghost in (MessageId(*_parts(ids[place]), 60_000) for place in some)}
    truth = {text: Known.of(Trail(root).trace(one).journey) for text, one in by_text.items()}
    assert len({known.verdict for known in truth.values()}) >= 3
    chance = random.Random(3)
    harms = [harmed(root, chance, table) for table in ("aliases", "subscriptions", "filters", "manifests", "shed")]
    found, account = answers(spark, root, tmp_path / "out", [*by_text, "nobody's"], skip_damaged=True)
    assert found.keys() == {*by_text, "nobody's"}
    assert (found["nobody's"]["verdict"], found["nobody's"]["certainty"]) == ("unknown alias", 0)
    wrong = 0
    for text, known in truth.items():
        row = found[text]
        if row["verdict"] != known.verdict.value or delivered(row) != known.delivered:
            wrong += 1
            assert row["verdict"] in HONEST, (harms, text, known, row)
            assert delivered(row) <= known.delivered, (harms, text)
    assert wrong
    assert {row["certainty"] for row in found.values() if row["verdict"] == "unknown alias"} == {0.0}
    # Where a part of a manifest is lost, the files that it names are not looked for.
    named = {Path(one.path) for one in account.damaged}
    assert any(harm.path in named for harm in harms)
    assert named <= {harm.path for harm in harms}


def _parts(one: MessageId) -> tuple[int, int, int]:
    return one.publisher, one.broker, one.time


def test_every_harm_to_a_file_is_found_before_a_job_reads_it(
    good: tuple[Path, list[MessageId]], tmp_path: Path
) -> None:
    whole, _ = good
    root = tmp_path / "trail"
    shutil.copytree(whole, root)
    chance = random.Random(4)
    for _ in range(LOOKS):
        harm = harmed(root, chance)
        changed = not harm.path.exists() or (harm.path.is_file() and harm.path.read_bytes() != harm.before)
        table = harm.path.relative_to(root).parts[0]
        try:
            if (
                changed
                and harm.path.suffix == ".parquet"
                and table not in ("manifests", "names", "timings", "latencies")
            ):
                with pytest.raises(DamagedFileError) as failure:  # noqa: PT012 (whichever of them reads it)
                    sources = open_sources(root)
                    sources.check()
                    sources.of("aliases", always=True)
                assert failure.value.path == str(harm.path)
        finally:
            harm.undo()


def test_an_audit_names_brokers_that_are_not_there(
    spark: SparkSession, good: tuple[Path, list[MessageId]], tmp_path: Path
) -> None:
    whole, _ = good
    root = tmp_path / "trail"
    shutil.copytree(whole, root)
    for folder in root.glob("*/broker=2"):
        shutil.rmtree(folder)
    account = run_job("audit", audit.run, AuditOptions(root, tmp_path / "out"), spark=spark)
    assert account.absent == [2]
    assert account.summary["brokers_absent"] == 1
