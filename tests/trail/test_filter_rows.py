"""Filters of a trail that cannot be asked: they are counted, and the others answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from postroad.filters import BloomFilter, hash_ids
from postroad.messages import MessageId
from postroad.tracking import HistoryKind
from postroad.trail import ask_filters, tabulate
from postroad.trail.filter_rows import matching_filters
from tests.trail.samples import NOON, a_filter

WANTED = MessageId(7, 1, NOON + 1, 0)


def good_filter() -> Any:
    made = BloomFilter(64, 4)
    made.add(hash_ids(np.array([(WANTED.head, WANTED.tail)], np.uint64)))
    return a_filter()._replace(data=bytes(made), ones=made.ones)


@pytest.mark.parametrize(
    "damage",
    [
        {"bits": 0},
        {"bits": 63},
        {"bits": 2**33},
        {"hashes": 0},
        {"data": b"1234567"},
        {"method": "ribbon"},
        {"method": "of another time"},
    ],
    ids=str,
)
def test_filter_of_an_impossible_shape_is_counted_and_the_others_answer(damage: dict[str, Any]) -> None:
    evidence, refused = ask_filters([a_filter()._replace(**damage), good_filter()], WANTED, [], [])
    assert refused == 1
    assert len(evidence.hits(HistoryKind.ACCEPTED)) == 1


def test_filter_whose_late_times_are_no_whole_words_is_damaged() -> None:
    table = tabulate([good_filter(), good_filter()])["filters"]
    at = table.schema.get_field_index("singles")
    rows = table.set_column(at, table.schema.field(at), pa.array([b"1234567", None], pa.binary()))
    found, damaged = matching_filters(rows.drop_columns(["keys"]), WANTED)
    assert (len(found), damaged) == (1, 1)
