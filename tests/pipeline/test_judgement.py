"""Verdicts in bulk against verdicts one by one: of the rules alone, of `postroad trace`, and of the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.lab.trails import read_truth
from postroad.messages import MessageId
from postroad.pipeline import judgement
from postroad.pipeline.context import Context, read_context
from postroad.pipeline.ids import id_texts
from postroad.pipeline.judgement import Judge, judged
from postroad.pipeline.sources import open_sources
from postroad.pipeline.tables import ID
from postroad.tracking import SubscriptionChanges
from postroad.trail import Trail, TrailWriter
from tests.pipeline.trails import EVIDENCE, evidence_of, some_ids

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

COUNT = 400


@pytest.fixture(scope="module")
def trail(troubled: Path) -> Path:
    return troubled


@pytest.fixture(scope="module")
def context(trail: Path) -> Context:
    return read_context(open_sources(trail))


@pytest.fixture(scope="module")
def ids(trail: Path) -> list[tuple[int, ...]]:
    return some_ids(trail, COUNT)


@pytest.fixture(scope="module")
def evidence(trail: Path, ids: list[tuple[int, ...]]) -> pa.Table:
    return evidence_of(trail, ids)


@pytest.fixture(scope="module")
def verdicts(context: Context, evidence: pa.Table) -> dict[tuple[int, ...], dict[str, Any]]:
    return {tuple(row[name] for name in ID): row for row in judged(context, evidence).to_pylist()}


def test_each_question_has_one_answer(ids: list[tuple[int, ...]], verdicts: dict[tuple[int, ...], Any]) -> None:
    assert sorted(verdicts) == sorted(ids)
    assert {row["verdict"] for row in verdicts.values()} >= {
        "delivered", "acknowledged", "matched nobody", "never accepted", "lost after hop", "shed at the queue",
        "recorded in part", "not recorded",
    }  # fmt: skip


def test_bulk_agrees_with_the_rules_id_by_id(
    context: Context, evidence: pa.Table, verdicts: dict[tuple[int, ...], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing taken for plain, every id goes through `Reconstruction`."""
    monkeypatch.setattr(Context, "is_complete", lambda _, broker, __: np.zeros(len(broker), np.bool_))
    slow = judged(context, evidence).to_pylist()
    assert {tuple(row[name] for name in ID): row for row in slow} == verdicts


def test_most_ids_are_judged_in_bulk(context: Context, evidence: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one: list[int] = []
    real = vars(judgement)["journey_of"]

    def counted(*given: Any) -> Any:
        one_by_one.append(1)
        return real(*given)

    monkeypatch.setattr(judgement, "journey_of", counted)
    judged(context, evidence)
    assert 0 < len(one_by_one) < COUNT


def test_bulk_agrees_with_postroad_trace(trail: Path, verdicts: dict[tuple[int, ...], Any]) -> None:
    reader = Trail(trail)
    for (origin, time, publisher, counter), row in verdicts.items():
        journey = reader.trace(MessageId(publisher, origin, time, counter)).journey
        assert (row["verdict"], row["certainty"]) == (journey.verdict.value, journey.certainty)
        assert row["brokers"] == sorted(stop.broker for stop in journey.stops)
        delivered = sorted((broker, hit.number) for broker, hit in journey.delivered)
        assert [(one["broker"], one["subscription"]) for one in row["delivered"]] == delivered
        assert [tuple(hop.values()) for hop in row["lost"]] == list(journey.lost)
        assert [tuple(hop.values()) for hop in row["pruned"]] == list(journey.pruned)
        assert len(row["gaps"]) == len(journey.gaps)


def test_certain_verdicts_are_true(trail: Path, verdicts: dict[tuple[int, ...], Any]) -> None:
    truth = {tuple(row[name] for name in ID): row for row in read_truth(trail).to_pylist()}
    plain = 0
    for id, row in verdicts.items():
        real = truth.get(id)
        if real is None:
            assert row["verdict"] in ("never accepted", "not recorded")
            continue
        if row["gaps"]:
            # A broker without a record cannot tell what it did; those that can tell the truth.
            assert set(row["brokers"]) <= {real["origin"], *(hop & 0xFFFFFFFF for hop in real["path"])}
            continue
        plain += 1
        assert (row["verdict"] == "lost after hop") == (real["lost"] > 0)
        assert (row["verdict"] == "shed at the queue") == (real["shed_at"] > 0)
        assert row["brokers"] == sorted({real["origin"], *(hop & 0xFFFFFFFF for hop in real["path"])})
        assert [one["broker"] << 32 | one["subscription"] for one in row["delivered"]] == real["deliveries"]
    assert plain > COUNT / 2


@given(cuts=st.lists(st.integers(1, 400), min_size=1, max_size=20))
@settings(max_examples=4)
def test_batches_may_end_anywhere(
    context: Context, evidence: pa.Table, verdicts: dict[tuple[int, ...], Any], cuts: list[int]
) -> None:
    batches: list[Any] = []
    at = 0
    while at < evidence.num_rows:
        size = cuts[len(batches) % len(cuts)]
        batches += evidence.slice(at, size).combine_chunks().to_batches()
        at += size
    found = [row for batch in Judge(context)(batches) for row in batch.to_pylist()]
    assert {tuple(row[name] for name in ID): row for row in found} == verdicts


def test_nothing_asked_is_nothing_answered(context: Context) -> None:
    assert list(Judge(context)([])) == []
    assert judged(context, EVIDENCE.empty_table()).num_rows == 0


def test_who_a_crashed_run_left_behind_is_not_asked_about(tmp_path: Path) -> None:
    start = 1_790_000_000_000
    writer = TrailWriter(tmp_path, 1, start)
    writer.write([attached(5, start + 10)], start + 60_000)
    # It ends without a word, and there is another run ten minutes later.
    writer = TrailWriter(tmp_path, 1, start + 600_000)
    writer.write([attached(6, start + 600_010)], start + 700_000)
    writer.close(start + 800_000)
    stays = read_context(open_sources(tmp_path)).subscriptions[1]
    for time in (start + 30_000, start + 599_000, start + 600_000, start + 606_000, start + 650_000, start + 900_000):
        window = time - 5_000, time + 15_000
        assert list(stays.between(*window)) == Trail(tmp_path).subscriptions(1, *window), time - start
    assert stays.between(start + 645_000, start + 665_000) == (6,)


def attached(number: int, at: int) -> SubscriptionChanges:
    return SubscriptionChanges(np.array([number]), np.array([at]), np.ones(1, np.int32), ["p"], ["t"], [""])


def test_texts_of_many_ids_are_those_of_each() -> None:
    ids = [
        MessageId(publisher, broker, time, counter)
        for publisher in (1, 2**32 - 1)
        for broker in (1, 0x89ABCDEF)
        for time in (0, 2**48 - 1, 1_700_000_000_000)
        for counter in (0, 0x7FFF, 0xFFFF)
    ]
    numbers = np.array([(one.broker, one.time, one.publisher, one.counter) for one in ids], np.int64)
    assert id_texts(*numbers.T).to_pylist() == [str(one) for one in ids]
    assert id_texts(*numbers[:0].T).to_pylist() == []
