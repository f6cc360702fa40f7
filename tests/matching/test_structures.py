"""The index at sizes where its structures split, grow, fall back and are tidied, against one-by-one evaluation."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from postroad.matching import SubscriptionIndex
from postroad.matching.row_reader import SCRATCH_START
from postroad.messages import Batch, Draft
from postroad.selectors import Selector
from postroad.selectors.normal_form import MAX_CONJUNCTIONS, Operator
from tests.matching.oracle import OneByOne, matched

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = ("market", "marker", "remark", "mark", "shares", "share", "arc", "größe", "a", "")


def numeric_selector(draw: random.Random) -> str:
    low = draw.choice((draw.randrange(50), draw.uniform(0, 50)))
    return draw.choice(
        (f"x > {low}", f"x < {low}", f"x BETWEEN {low} AND {low + draw.random()}", f"x >= {low} AND y <= {low}")
    )


def text_selector(draw: random.Random) -> str:
    word = draw.choice(WORDS)
    start = draw.randrange(len(word) + 1)
    piece = word[start : start + draw.randrange(5)]
    return draw.choice(
        (f"x LIKE '{piece}%'", f"x LIKE '%{piece}'", f"x LIKE '%{piece}%' AND y = {draw.randrange(3)}", f"x = '{word}'")
    )


def numeric_message(draw: random.Random) -> Draft:
    return Draft("t", {"x": draw.choice((draw.randrange(-1, 52), draw.uniform(-1, 52))), "y": draw.uniform(0, 50)})


def text_message(draw: random.Random) -> Draft:
    return Draft("t", {"x": draw.choice(WORDS) + draw.choice(("", "s", "mark")), "y": draw.randrange(3)})


@pytest.mark.parametrize(
    ("selector", "message"),
    [(numeric_selector, numeric_message), (text_selector, text_message)],
    ids=["ranges", "texts"],
)
def test_index_equals_one_by_one_while_hundreds_come_and_go(
    selector: Callable[[random.Random], str], message: Callable[[random.Random], Draft]
) -> None:
    draw = random.Random(7)
    index, truth = SubscriptionIndex(), OneByOne()
    for step in range(3_000):
        key = draw.randrange(900)
        if key in index:
            index.remove(key)
            truth.remove(key)
        else:
            wanted = selector(draw)
            index.add(key, wanted)
            truth.add(key, wanted, None)
        if step % 500 == 499:
            batch = Batch.build(message(draw) for _ in range(30))
            assert matched(index, batch) == truth.match(batch)


def test_index_gives_back_all_it_took_when_subscriptions_leave() -> None:
    draw = random.Random(3)
    index = SubscriptionIndex()
    sizes = []
    for round_ in range(6):
        for key in range(1_500):
            names = f"name{round_}_{key % 50}"
            index.add(key, f"{names} = 'v{draw.randrange(99)}' AND {numeric_selector(draw)} AND z LIKE '%ab{key % 7}%'")
        sizes.append(index.statistics().bytes)
        for key in range(1_500):
            index.remove(key)
        assert index.statistics()[:3] == (0, 0, 0)
    # The first rounds may still find free blocks of the wrong size; after that nothing grows.
    assert sizes[-1] <= sizes[2]


def test_index_forgets_names_that_nobody_asks_for_any_more() -> None:
    index = SubscriptionIndex()
    for key in range(5_000):
        index.add("guest", f"name{key} = {key}")
        index.remove("guest")
    assert index.statistics().attributes < 1_100
    index.add("guest", "name1 = 1 AND fresh = 2")
    assert matched(index, Batch.build([("t", {"name1": 1, "fresh": 2}), ("t", {"name2": 2})])) == [{"guest"}, set()]


def test_an_or_too_wide_to_expand_is_run_as_a_program() -> None:
    wide = " OR ".join(f"(a{i} = {i} AND b{i} > {i})" for i in range(2 * MAX_CONJUNCTIONS))
    selector = Selector.parse(f"c = 'x' AND ({wide})")
    assert any(part.operator is Operator.TEST for conjunction in selector.disjunction for part in conjunction)
    index, truth = SubscriptionIndex(), OneByOne()
    index.add("wide", selector)
    truth.add("wide", str(selector), None)
    batch = Batch.build(
        ("t", {"c": kind, f"a{i}": i, f"b{i}": i + more}) for kind in "xy" for i in (0, 5, 127, 128) for more in (0, 1)
    )
    found = matched(index, batch)
    assert found == truth.match(batch)
    assert sum(map(len, found)) == 3


def test_a_row_may_match_more_than_the_first_result_array_holds() -> None:
    index = SubscriptionIndex()
    for key in range(6_000):
        index.add(key, f"x > {key % 10}")
    batch = Batch.build([("t", {"x": 5}), ("t", {"x": 100}), ("t", {"x": -1})])
    offsets, slots = index.match(batch)
    assert np.diff(offsets).tolist() == [3_000, 6_000, 0]
    assert set(index.keys(slots[3_000:].tolist())) == set(range(6_000))


def test_numbers_that_only_python_can_round_are_compared_exactly() -> None:
    hard = "0.1000000000000000055511151231257827021181583404541015625"
    index = SubscriptionIndex()
    index.add("equal", "x = 0.1")
    index.add("above", "x > 0.1")
    index.add("positive", "x > 0")
    rows: list[Any] = [("t", {}, [("x", hard)])]
    rows.append(("t", {}, [("x", hard.replace("5625", "5999999999999999999999999"))]))
    rows += [("t", {}, [("x", "123456789e400")]), ("t", {}, [("x", "1e-400")])]
    rows += [("t", {}, [("x", f"{n}.00000000000000000000000000001")]) for n in range(3_000)]
    found = matched(index, Batch.build(rows))
    assert found[:4] == [{"equal", "positive"}, {"equal", "positive"}, set(), set()]
    assert found[4] == {"positive"}
    assert all(each == {"above", "positive"} for each in found[5:])


def test_a_long_text_reaches_grams_of_every_length_once() -> None:
    index = SubscriptionIndex()
    text = "abcdefghijklmnopqrstuvwxyz0123456789" * 2_000
    for size in range(1, 40):
        index.add(size, f"x LIKE '%{text[3 : 3 + size]}%'")
        index.add(-size, f"x LIKE '%{text[3 : 3 + size]}!%'")
    assert matched(index, Batch.build([("t", {"x": text[:60_000]})])) == [set(range(1, 40))]


def test_an_escaped_header_larger_than_the_scratch_buffer_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroad.matching.index.MAX_HEADER_BYTES", 80 - SCRATCH_START)
    index = SubscriptionIndex()
    index.add("colon", "x LIKE '%:'")
    assert matched(index, Batch.build([("t", {}, [("x", "y" * 500 + ":")])])) == [{"colon"}]
