"""An erased subscription or principal is nowhere in the trail, and the job says what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.pipeline import PipelineError, run_job
from postroad.pipeline.erasure import ERASED, Erased, Erasure, without
from postroad.pipeline.jobs import compact
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.tracking import LEFT_OUT
from postroad.trail import sweep, unpack
from postroad.trail.shipper import Shipper
from tests.cli.programs import here
from tests.pipeline.filter_rows import rows_of
from tests.pipeline.small_trails import people
from tests.trail.samples import NOON

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from postroad.pipeline import JobReport


def erase(spark: SparkSession, trail: Path, who: Erasure | str) -> tuple[JobReport, list[str]]:
    said: list[str] = []
    options = CompactOptions(trail, trail.parent / "out", now=NOON + 120_000, erase=who)
    return run_job("erase", compact.run, options, spark=spark, alert=said.append), said


def words(trail: Path, broker: int, table: str, column: str) -> list[Any]:
    found: list[Any] = rows_of(trail, table, broker).column(column).to_pylist()
    return found


def test_erased_principal_leaves_it_on_record_that_aliases_were_left_out() -> None:
    ids = {"origin": [1] * 3, "time": [NOON] * 3, "publisher": [7, 7, 8], "counter": [1, 2, 3]}
    rows = pa.table({"alias": ["ann-1", LEFT_OUT, "bob-1"], **ids})
    left = without("aliases", 1, rows, Erased(frozenset(), publishers=frozenset({(1, 7)})))
    assert left.column("alias").to_pylist() == [LEFT_OUT, "bob-1"]


def test_erased_principal_is_nowhere_by_name_number_or_alias(spark: SparkSession, tmp_path: Path) -> None:
    trail = tmp_path / "trail"
    people(trail)
    for place in ("first", "second"):
        Shipper(trail, 1, tmp_path / place).ship(NOON)
    account, said = erase(spark, trail, "ann")
    assert (account.summary["subscriptions_erased"], account.summary["names_erased"]) == (2, 1)
    assert account.summary["old_files_deleted_after"].endswith("UTC")
    assert [one for one in said if f"{tmp_path / 'first'} was shipped to before" in one] == said
    assert len(said) == 1
    for broker in (1, 2):
        assert words(trail, broker, "subscriptions", "principal") == ["bob"]
        assert words(trail, broker, "names", "name") == ["bob"]
        assert words(trail, broker, "aliases", "alias") == ["order-2"]
        assert [unpack(one) for one in words(trail, broker, "passages", "delivered")] == [(6, ERASED), (6,)]
    sweep_all = [sweep(trail, broker, NOON + 8 * 3_600_000) for broker in (1, 2)]
    assert min(sweep_all) > 0
    files = [path for path in trail.rglob("*.parquet") if "parts" not in path.parts]
    assert not any("ann" in str(pq.read_table(path, partitioning=None).to_pylist()) for path in files)
    with pytest.raises(PipelineError, match="no record of a principal 'ann'"):
        erase(spark, trail, "ann")


def test_name_stays_as_long_as_another_subscription_of_it_does(spark: SparkSession, tmp_path: Path) -> None:
    trail = tmp_path / "trail"
    people(trail)
    account, said = erase(spark, trail, Erasure(1, 5))
    assert account.summary["names_erased"] == 0
    assert said == ["other subscriptions of 'ann' stay, and its name with them; --principal erases all of them"]
    assert (words(trail, 1, "names", "name"), words(trail, 1, "subscriptions", "principal")) == (
        ["ann", "bob"],
        ["bob"],
    )
    account, said = erase(spark, trail, Erasure(2, 5))
    assert (account.summary["names_erased"], said) == (1, [])
    assert words(trail, 1, "names", "name") == words(trail, 2, "names", "name") == ["bob"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "name whom to erase"),
        (("--subscription", "1/5", "--principal", "ann"), "name whom to erase"),
        (("--subscription", "5"), "--subscription '5': write the number of the broker"),
    ],
)
def test_erasure_of_nobody_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    outcome = here(monkeypatch, "pipeline", "erase", "--trail", str(tmp_path), "--out", str(tmp_path), *options)
    assert (outcome.code, said in outcome.err) == (2, True)
