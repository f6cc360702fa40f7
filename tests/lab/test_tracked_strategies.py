"""The paper's own strategies, computed anew, against what its text says of them."""

from __future__ import annotations

from hashlib import md5

import numpy as np
import pytest

from postroad.filters import TABLE_2, false_positive_rate
from postroad.lab.papers.table_2 import BASE, RecorderSetup, setups
from postroad.lab.papers.tracked_strategies import positions, strategies

RATE, SECONDS = 5_000, 5


@pytest.fixture(scope="module")
def traffic() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    return random.integers(0, 256, (RATE * SECONDS, 16), np.uint8), np.arange(RATE * SECONDS) * 1_000 // RATE


@pytest.mark.parametrize("row", ["10K 99.999%", "135K 99.999%", "135K 95%"])
def test_positions_are_the_segments_of_digests(row: str) -> None:
    shape = TABLE_2[row]
    ids = np.random.default_rng(3).integers(0, 256, (5, 16), np.uint8)
    width = shape.m.bit_length() - 1
    for one, found in zip(ids, positions(ids, shape), strict=True):
        cut = []
        for prefix in (b"\0", b"\1", b"\2"):
            digest = int.from_bytes(md5(prefix + one.tobytes(), usedforsecurity=False).digest(), "big")
            cut += [digest >> 128 - width * (place + 1) & shape.m - 1 for place in range(128 // width)]
        assert found.tolist() == cut[: shape.k]


def test_forces_are_those_that_the_paper_counts(traffic: tuple[np.ndarray, np.ndarray]) -> None:
    found = {kept[:3]: kept for kept in strategies(*traffic)}
    assert found["ASYNC", "10K", 1].forces_per_s == pytest.approx(8, rel=0.01)
    assert found["BF", "10K 99.999%", 1].forces_per_s == pytest.approx(5_000 / 2_521, rel=0.01)
    assert found["ASYNC", "10K", 1].raw_bytes == 16


def test_buffers_are_full_where_table_2_says_so(traffic: tuple[np.ndarray, np.ndarray]) -> None:
    full = {kept[:3] for kept in strategies(*traffic) if kept.filling == 1}
    assert full == {
        ("ASYNC", "10K", 1),
        ("ASYNC", "135K", 2),
        ("BF", "10K 99.999%", 1),
        ("BF", "10K 99%", 2),
        ("BF", "10K 95%", 2),
    }


def test_filter_stored_early_costs_its_whole_size(traffic: tuple[np.ndarray, np.ndarray]) -> None:
    found = {kept[:3]: kept for kept in strategies(*traffic)}
    early = found["BF", "135K 99.999%", 1]
    assert early.raw_bytes == pytest.approx(2**20 / 8 / RATE, rel=0.01)
    assert early.compressed_bytes < 0.5 * early.raw_bytes


def test_every_row_of_the_table_becomes_settings_of_a_broker() -> None:
    rows = setups()
    assert len(rows) == len(set(rows)) == 3 + 3 + 17 + 6
    assert {one.recorder for one in setups(quick=True)} == {one.recorder for one in rows}
    bloom = RecorderSetup("bloom", "10K 99.999%").tracking
    assert false_positive_rate(bloom["bits"], bloom["hashes"], bloom["keys"]) < 5e-6
    assert RecorderSetup("log", "10K").tracking["memory_bytes"] == 20_000
    assert BASE.tracking == {"recorder": "none"}
