"""`postroad trace` on trails with damaged, cut off, foreign and newer files: named, left out, never a wrong answer."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from postroad.lab.trails import TRUTH, Scale, read_truth, sample_ids, write_trail
from postroad.messages import MessageId
from tests.cli.programs import here

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCALE = Scale(brokers=4, messages=400, seed=5, subscriptions=4, interests=30, seconds=40, seal_seconds=20)
# What a trace may say of a message that passed, when files are missing: never that it did not pass.
HONEST = {"delivered", "matched nobody", "recorded in part", "not recorded"}


def cut_off(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def empty(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def replace_by_foreign(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(path.stat().st_size))


def make_newer(path: Path, chance: random.Random) -> None:
    """As a later version would write it; one that keeps its promises raises the number."""
    if path.suffix == ".json":
        words = path.read_bytes().split(b" ", 2)
        path.write_bytes(b" ".join([words[0], b"99", words[2]]))
        return
    table = pq.read_table(path, partitioning=None)
    said = {**(table.schema.metadata or {}), b"postroad.version": b"99"}
    pq.write_table(table.replace_schema_metadata(said), path)


def remove(path: Path, chance: random.Random) -> None:
    path.unlink()


@pytest.fixture(scope="module", params=["exact", "sealed"])
def whole(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    root = tmp_path_factory.mktemp("trail") / "whole"
    write_trail(root, replace(SCALE, recorder=request.param))
    return root


def copied(root: Path, to: Path) -> Path:
    for path in root.rglob("*"):
        if path.is_file() and TRUTH not in path.parts:
            copy = to / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return to


def ids_of(root: Path, count: int) -> list[MessageId]:
    rows = sample_ids(root, count).to_pylist()
    return [MessageId(row["publisher"], row["origin"], row["time"], row["counter"]) for row in rows]


def truth_of(root: Path) -> dict[MessageId, set[int]]:
    return {
        MessageId(row["publisher"], row["origin"], row["time"], row["counter"]): {
            row["origin"],
            *(hop & 0xFFFFFFFF for hop in row["path"]),
        }
        for row in read_truth(root).to_pylist()
    }


@pytest.mark.parametrize("harm", [cut_off, empty, flip, replace_by_foreign, make_newer, remove])
def test_what_cannot_be_read_is_named_and_no_answer_is_wrong(
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[Path, random.Random], None],
) -> None:
    chance = random.Random(harm.__name__)
    truth = truth_of(whole)
    root = copied(whole, tmp_path / "trail")
    files = sorted(path for path in root.rglob("*") if path.suffix in (".parquet", ".json"))
    kinds = {path.relative_to(root).parts[0] for path in files}
    harmed = [chance.choice([path for path in files if path.relative_to(root).parts[0] == kind]) for kind in kinds]
    for path in harmed:
        harm(path, chance)
    named = set()
    for message in ids_of(whole, 24):
        outcome = here(monkeypatch, "trace", str(message), "--trail", str(root), "--json")
        assert "Traceback" not in outcome.err
        assert outcome.code in (0, 1), outcome.err
        document: dict[str, Any] = json.loads(outcome.out)
        passed = {stop["broker"] for stop in document["stops"]}
        assert passed <= truth.get(message, set())
        if message in truth and passed != truth[message]:
            assert document["verdict"] in HONEST - {"delivered", "matched nobody"}
            assert document["warnings"]
        if message not in truth:
            assert document["verdict"] in ("never accepted", "not recorded")
        for warning in document["warnings"]:
            assert f"postroad: warning: {warning}" in outcome.err
            named.add(warning.partition(": ")[0])
    # What was asked for needed some of the harmed files, and none was called damaged that was not.
    assert named
    assert named <= {str(path) for path in harmed}
