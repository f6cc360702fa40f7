"""What an index does when an array is as large as it may be: it refuses by name, and nothing has changed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.errors import LimitError
from postroad.matching import SubscriptionIndex, columns
from postroad.matching.ceilings import Ceilings
from postroad.matching.interner import Interner
from postroad.matching.table_hash import FIXED_SECRET
from postroad.matching.tables import Tables
from postroad.messages import Batch
from tests.matching.oracle import OneByOne, matched

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS: dict[str, tuple[Ceilings, Callable[[int], str], str]] = {
    "text": (Ceilings(text=8_192), lambda key: f"a = '{'x' * 300}{key}'", "the text of all selectors"),
    "names": (Ceilings(text=2_048), lambda key: f"{'n' * 100}{key} = 1", "the text of all selectors"),
    "words": (Ceilings(words=2_048), lambda key: f"a <> '{key}' AND b > {key} AND c > {key}", "the number of words"),
    "programs": (Ceilings(words=2_048), lambda key: f"a + b + c + d > e + {key}", "the number of words"),
    "lists": (
        Ceilings(words=2_048),
        lambda key: f"a NOT IN ({', '.join(repr(f'{key}-{place}') for place in range(40))})",
        "the number of words",
    ),
    "constraints": (Ceilings(constraints=96), lambda key: f"a = {key}", "the number of constraints"),
    "conjunctions": (
        Ceilings(conjunctions=96),
        lambda key: f"a = {key} OR b = {key} OR c = 1",
        "the number of conjunctions",
    ),
    "attributes": (Ceilings(attributes=64), lambda key: f"name{key} = 1", "the number of names"),
    "chunks": (
        Ceilings(chunks=4),
        lambda key: f"a BETWEEN {key} AND {key + 1}",
        "the number of chunks of ranges",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_index_refuses_by_name_and_stays_as_it_was(kind: str) -> None:
    ceilings, selector, what = KINDS[kind]
    index, truth = SubscriptionIndex(ceilings), OneByOne()
    batch = Batch.build(
        ("t", {"a": a, "b": 60, "c": 1, "d": 1, "e": 1, "name5": 1, "n" * 100 + "3": 1})
        for a in (5, "x" * 300 + "4", "y", 80)
    )
    for key in itertools.count():
        held = index.statistics()
        try:
            index.add(key, selector(key))
        except LimitError as error:
            refusal = str(error)
            break
        truth.add(key, selector(key), None)
        assert key < 2_000
    assert what in refusal
    assert key > 10
    assert index.statistics()[:3] == held[:3]
    assert index.work == held.work
    assert matched(index, batch) == truth.match(batch)
    # Whatever the refused one took was given back: the room of one that leaves is enough for another like it.
    for _ in range(50):
        with pytest.raises(LimitError):
            index.add("more", selector(key))
    for place in range(key):
        index.remove(place)
        truth.remove(place)
    assert index.statistics()[:3] == (0, 0, 0)
    assert index.work == 0
    index.add(0, selector(0))
    truth.add(0, selector(0), None)
    assert matched(index, batch) == truth.match(batch)


def test_no_text_begins_where_a_32_bit_offset_would_wrap() -> None:
    # Two gigabytes of addresses, of which only the last page is ever touched.
    tables = Tables(Ceilings(text=2**40), FIXED_SECRET)
    tables.text = np.zeros(2**31 + 4_096, np.uint8)
    tables.bundle()
    tables.grow_text = _refuse  # type: ignore[method-assign]
    interner = Interner(tables)
    tables.counters[columns.TEXT_USED] = 2**31 - 128
    below = interner.text(columns.EQUAL_TEXT, 0, b"y" * 60)
    assert tables.constraints[below, columns.TEXT] == 2**31 - 128
    with pytest.raises(LimitError):
        interner.text(columns.EQUAL_TEXT, 0, b"z" * 100)
    assert bytes(tables.text[2**31 - 128 : 2**31 - 64]) == b"y" * 60 + b"\0" * 4


def test_no_bucket_begins_where_a_32_bit_offset_would_wrap() -> None:
    tables = Tables(Ceilings(), FIXED_SECRET)
    tables.grow_words = _refuse  # type: ignore[method-assign]
    interner = Interner(tables)
    tables.counters[columns.WORDS_USED] = 2**31 - 2
    with pytest.raises(LimitError):
        interner.listed(columns.IN_TEXT, 0, [b"a", b"b", b"c"])
    assert tables.live_constraints == 0


def _refuse() -> None:
    raise LimitError("an array", 2, 1)


def test_ceilings_leave_room_for_all_that_is_kept_in_32_bits() -> None:
    ceilings, most = Ceilings(), 2**31 - 1
    assert ceilings.conjunctions << columns.ENTRY_SHIFT | columns.MULTIPLE <= most
    assert 2 * ceilings.conjunctions + ceilings.words <= most
    assert ceilings.words + 2 <= most
    assert max(ceilings.text, ceilings.constraints, ceilings.attributes, ceilings.chunks) <= most
    assert ceilings.words <= 2**31
    assert ceilings.text <= 2**31
