"""A trail in a store is compacted and erased from there, as long as no broker ships to it; nothing comes back."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroad.lab.trails import write_trail
from postroad.pipeline import PipelineError, run_job
from postroad.pipeline.erasure import ERASED
from postroad.pipeline.jobs import compact, trace
from postroad.pipeline.jobs.compact import CompactOptions
from postroad.pipeline.jobs.trace import TraceOptions
from postroad.pipeline.sources import open_sources
from postroad.trail import DEFAULT_GRACE_MS, Reads, TrailError, TrailFile, unpack
from postroad.trail.ledger import Ledger
from postroad.trail.locations import StoredPath
from postroad.trail.shipper import Shipper
from postroad.trail.stored_trail import QUIET_MS, StoredTrail
from tests.pipeline.compactions import rows_of
from tests.pipeline.small_trails import SMALL, asked, people
from tests.pipeline.trails import as_of_the_trail, copied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from postroad.trail.locations import Location
    from tests.trail.stores import Request, Store

HOUR_MS = 3_600_000


@pytest.fixture
def later() -> int:
    """When no broker has shipped for a while: objects have the times of the store's own clock."""
    return int(time.time() * 1_000) + 2 * QUIET_MS


def erase(spark: SparkSession, place: Location, out: Path, now: int) -> dict[str, Any]:
    options = CompactOptions(place, out, now=now, erase="ann", sample=10)
    return run_job("erase", compact.run, options, spark=spark).summary


def shipped(trail: Path, place: Location, brokers: tuple[int, ...] = (1, 2)) -> list[Shipper]:
    shippers = [Shipper(trail, broker, place) for broker in brokers]
    for shipper in shippers:
        shipper.ship(0)
    return shippers


def objects(place: Location) -> Iterator[StoredPath]:
    assert isinstance(place, StoredPath)
    for one in place.iterdir():
        if one.is_dir():
            yield from objects(one)
        else:
            yield one


def contents(place: Location) -> dict[str, bytes]:
    return {one.path: one.read_bytes() for one in objects(place)}


def rows_in(place: Location) -> str:
    """All rows of all objects, whether a manifest names them or not."""
    files = [one for one in objects(place) if one.name.endswith(".parquet") and one.parent.name != "parts"]
    return str([pq.read_table(pa.BufferReader(one.read_bytes())).to_pylist() for one in files])


def words(place: Location, broker: int, table: str, column: str) -> list[Any]:
    entries = open_sources(place).pins[broker].all_entries(table)[0]
    found = [TrailFile(place, entry, broker, Reads()).read([column]).column(0).to_pylist() for entry in entries]
    return [word for words in found for word in words]


def check_erased(place: Location) -> None:
    for broker in (1, 2):
        assert words(place, broker, "names", "name") == ["bob"]
        assert words(place, broker, "subscriptions", "principal") == ["bob"]
        assert words(place, broker, "aliases", "alias") == ["order-2"]
        assert [unpack(one) for one in words(place, broker, "passages", "delivered")] == [(6, ERASED), (6,)]
    assert "ann" not in rows_in(place)


def test_principal_is_erased_where_its_brokers_shipped_to_before(
    spark: SparkSession, store: Store, tmp_path: Path, later: int
) -> None:
    trail, former = tmp_path / "trail", store.place("former")
    people(trail)
    shipped(trail, former)
    shipped(trail, store.place("present"))
    summary = erase(spark, former, tmp_path / "out", later)
    assert (summary["subscriptions_erased"], summary["names_erased"]) == (2, 1)
    check_erased(former)
    assert list((tmp_path / "out").iterdir()) == []
    before = contents(former)
    with pytest.raises(PipelineError, match="no record of a principal 'ann'"):
        erase(spark, former, tmp_path / "out", later)
    assert contents(former) == before
    # A broker that is set back to that place, with all that it had, brings nothing back.
    for shipper in (Shipper(trail, 1, former), Shipper(trail, 2, former)):
        with pytest.raises(TrailError, match="no broker ships there any more: ship to another place"):
            shipper.ship(later)
    assert contents(former) == before


def test_trail_that_brokers_ship_to_is_left_to_them(
    spark: SparkSession, store: Store, tmp_path: Path, later: int
) -> None:
    trail, place = tmp_path / "trail", store.place("present")
    people(trail)
    shippers = shipped(trail, place)
    before = contents(place)
    with pytest.raises(TrailError, match=r"broker \d ships here, .*change the directory that it writes its trail to"):
        erase(spark, place, tmp_path / "out", int(time.time() * 1_000))
    assert contents(place) == before
    # One that was away for long, and goes on shipping, sees that the trail was taken over.
    erase(spark, place, tmp_path / "out", later)
    after = contents(place)
    Ledger(trail, 1).append(later)
    with pytest.raises(TrailError, match="no broker ships there any more"):
        shippers[0].ship(later)
    assert contents(place) == after


def test_trail_that_changes_while_a_job_works_is_given_back(store: Store, tmp_path: Path, later: int) -> None:
    trail, place = tmp_path / "trail", store.place("meanwhile")
    assert isinstance(place, StoredPath)
    people(trail)
    shippers = shipped(trail, place)
    mine, theirs = (StoredTrail(place, tmp_path / name, later, at_once=True) for name in ("mine", "theirs"))
    Ledger(tmp_path / "mine", 1).append(later)
    Ledger(trail, 1).append(later)
    shippers[0].ship(later)
    before = contents(place)
    with pytest.raises(TrailError, match="changed the trail meanwhile; nothing was done"):
        mine.ship()
    assert contents(place) == before
    # It is its broker's as before; and a job that has nothing to change writes nothing.
    Ledger(trail, 1).append(later)
    shippers[0].ship(later)
    before = contents(place)
    assert theirs.ship() == 0
    assert contents(place) == before


def test_erasure_that_the_store_breaks_off_leaves_a_whole_trail_and_the_next_one_finishes_it(
    spark: SparkSession, store: Store, tmp_path: Path, later: int
) -> None:
    trail, place = tmp_path / "trail", store.place("broken-off")
    people(trail)
    shipped(trail, place)
    writes = 0

    def fault(request: Request) -> str:
        nonlocal writes
        writes += request.method in ("PUT", "DELETE", "POST")
        return "500" if writes > 0 else ""

    # In the middle of the notes, of the files, of the manifests, and of what is deleted.
    for allowed in (1, 6, 12, 16):
        store.fault, writes = fault, -allowed
        with pytest.raises(TrailError, match="the store does not answer, or refuses"):
            erase(spark, place, tmp_path / "out", later)
        store.fault = lambda _: ""
        # Whatever was reached, no manifest names a file that is not there, and nothing is damaged.
        found = open_sources(place)
        assert not found.damaged
        named = {entry.path for here in found.all_entries().values() for entry in here}
        assert all((place / path).exists() for path in named)
    with suppress(PipelineError):
        # All manifests may be there already, and only what they replaced is left to be deleted.
        erase(spark, place, tmp_path / "out", later)
    check_erased(place)


def test_compaction_in_a_store_keeps_all_answers_and_deletes_after_the_grace_period(
    spark: SparkSession, store: Store, tmp_path: Path, later: int
) -> None:
    trail, place = tmp_path / "trail", store.place("compacted-there")
    write_trail(trail, SMALL)
    copied(trail, place)
    ids = asked(trail, tmp_path)

    def answers(where: Location) -> list[str]:
        run_job("trace", trace.run, TraceOptions(where, tmp_path / "traced", ids=ids))
        return sorted(map(str, as_of_the_trail(pq.read_table(tmp_path / "traced" / "trace").to_pylist())))

    expected = answers(trail)
    options = CompactOptions(place, tmp_path / "out", now=later, sample=20)
    account = run_job("compact", compact.run, options, spark=spark)
    assert account.summary["journeys"] > 0
    assert account.written == [str(place)]
    assert answers(place) == expected
    old = {entry.path for here in open_sources(trail).all_entries().values() for entry in here}
    new = {entry.path for here in open_sources(place).all_entries().values() for entry in here}
    # Readers that pinned the manifests of before have their time.
    assert all((place / path).exists() for path in old - new)
    again = CompactOptions(place, tmp_path / "out", now=later + DEFAULT_GRACE_MS + HOUR_MS, sample=20)
    assert run_job("compact", compact.run, again, spark=spark).summary["files_deleted"] == len(old - new)
    assert not any((place / path).exists() for path in old - new)
    assert answers(place) == expected


def test_compaction_in_a_store_leaves_the_passages_of_which_it_makes_no_journeys(
    spark: SparkSession, store: Store, tmp_path: Path, small: Path, later: int
) -> None:
    place = store.place("troubled-there")
    copied(small, place)
    options = CompactOptions(place, tmp_path / "out", now=later, sample=20)
    summary = run_job("compact", compact.run, options, spark=spark).summary
    assert summary["journeys"] > 0
    assert summary["passages_left"] > 0
    assert summary["passages_joined"] + summary["passages_left"] >= rows_of(small, "passages")
    assert sum(len(words(place, broker, "passages", "time")) for broker in open_sources(place).pins) > 0
