"""`postroad archive export` and the mistakes of `postroad pipeline match`, which needs no Spark to tell them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from postroad.messages import Batch
from tests.archive.retained import retain
from tests.cli.programs import here

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_export_writes_what_a_broker_retains_and_says_how_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch.build([(f"orders.{n % 2}", {"n": n}, (), b"%d" % n) for n in range(10)])
    retain(tmp_path / "data" / "store", batch)
    archive = tmp_path / "archive"
    given = ["archive", "export", str(archive), "--data", str(tmp_path / "data"), "--topic", "orders.1", "--json"]
    done = here(monkeypatch, *given)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["messages"], told["retained"], told["gone"]) == (5, [">"], 0)
    assert pq.read_table(archive).column("body").to_pylist() == [b"1", b"3", b"5", b"7", b"9"]
    again = here(monkeypatch, *given)
    assert again.code == 2
    assert "exists already" in again.err


def test_match_points_at_mistakes_before_spark_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["pipeline", "match", "--archive", str(tmp_path), "--out", str(tmp_path / "out")]
    assert "no archive here" in here(monkeypatch, *given).err
    done = here(monkeypatch, *given, "--where", "price >")
    assert done.code == 2
    assert "price >" in done.err
