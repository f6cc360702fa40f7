"""Subscribers and publishers that mean harm: what they leave behind, what collides, and how much one message costs."""

from __future__ import annotations

import random

import numpy as np
import pytest

from postroad.matching import NO_BUDGET, SubscriptionIndex, WorkError, columns
from postroad.matching.ceilings import Ceilings
from postroad.matching.costs import (
    GRAM_COST,
    HARD_COST,
    LIKE_BYTE_COST,
    MEMBER_COST,
    READ_BYTE_COST,
    RESULT_COST,
    ROW_COST,
    WORD_COST,
)
from postroad.messages import Batch
from tests.matching.oracle import OneByOne, matched


def starred(number: int, levels: int = 12) -> str:
    """A topic pattern whose shape is that of no other number."""
    return ".".join("*" if number >> place & 1 else f"l{place}" for place in range(levels)) + ".end"


def test_patterns_that_left_leave_no_shape_behind() -> None:
    index = SubscriptionIndex()
    for number in range(1, 3_000):
        index.add("guest", None, starred(number))
        index.remove("guest")
    assert index._tables.counters[columns.TOPIC_SHAPES] <= Ceilings().shapes
    assert not index._tables.shapes[:, columns.SHAPE_USES].any()
    index._interner.tidy()
    assert index._tables.counters[columns.TOPIC_SHAPES] == 0
    index.add("guest", None, "a.*.b")
    assert matched(index, Batch.build([("a.x.b", {}), ("a.b", {})])) == [{"guest"}, set()]


def test_a_shape_stays_as_long_as_one_pattern_has_it() -> None:
    index = SubscriptionIndex(Ceilings(shapes=2))
    index.add("first", None, "a.*.b")
    index.add("second", None, "a.*.c")
    index.remove("first")
    for number in range(1, 40):
        index.add("guest", None, starred(number))
        index.remove("guest")
    assert matched(index, Batch.build([("a.x.c", {}), ("a.x.b", {})])) == [{"second"}, set()]


def test_patterns_of_more_shapes_than_are_looked_up_match_all_the_same() -> None:
    draw = random.Random(11)
    index, truth = SubscriptionIndex(Ceilings(shapes=8)), OneByOne()
    for step in range(600):
        key = draw.randrange(60)
        if key in index:
            index.remove(key)
            truth.remove(key)
        else:
            pattern = starred(draw.randrange(1, 64), 6) if draw.random() < 0.8 else "l0.*.>"
            selector = draw.choice((None, "x > 3", "x = 1 OR y = 2"))
            index.add(key, selector, pattern)
            truth.add(key, selector, pattern)
        if step % 60 == 59:
            topics = [".".join(draw.choice((f"l{place}", "other")) for place in range(6)) + ".end" for _ in range(30)]
            batch = Batch.build((topic, {"x": draw.randrange(6), "y": draw.randrange(3)}) for topic in topics)
            assert matched(index, batch) == truth.match(batch)


def colliding_names(count: int, bits: int) -> list[str]:
    """Names that share the lower bits of their keys under the constants that the hash once had."""
    first, second = np.uint64(0x6A09E667F3BCC909), np.uint64(0xBB67AE8584CAA73B)
    half = np.uint64(32)
    numbers = np.arange(count << bits, dtype=np.uint64)
    names = [f"n{number:07d}" for number in numbers.tolist()]
    words = np.frombuffer("".join(names).encode(), "<u8")
    with np.errstate(over="ignore"):
        key = (np.uint64(8) * first ^ words) * second
        key = (key ^ key >> half) * second
        key ^= key >> half
    low = key & np.uint64((1 << bits) - 1)
    return [names[place] for place in np.flatnonzero(low == low[0])[:count]]


def longest_run(table: np.ndarray) -> int:
    """The most words of a table that are taken one behind the other: what a look-up walks at worst."""
    longest = run = 0
    for taken in np.concatenate([table, table]) != 0:
        run = run + 1 if taken else 0
        longest = max(longest, run)
    return longest


def test_names_chosen_to_collide_do_not_collide_under_a_secret() -> None:
    names = colliding_names(300, 10)
    assert len(names) > 200
    runs = []
    for secret in (1, 2, 2**63 + 12_345):
        index = SubscriptionIndex(secret=secret)
        for key, name in enumerate(names):
            index.add(key, f"{name} = 1 AND {name} <> 2")
        runs.append(longest_run(index._tables.names))
        assert matched(index, Batch.build([("t", {names[7]: 1})])) == [{7}]
    # A half full table of 1,024 words: runs are short, whichever names they are.
    assert max(runs) < 60


def test_answers_do_not_depend_on_the_secret() -> None:
    draw = random.Random(5)
    subscriptions = [(f"x = {n % 7} AND y LIKE '%a{n % 5}%'", f"t.*.{n % 3}") for n in range(200)]
    batch = Batch.build(
        (f"t.q.{draw.randrange(3)}", {"x": draw.randrange(7), "y": f"ba{draw.randrange(6)}"}) for _ in range(100)
    )
    answers = []
    for secret in (3, 2**64 - 1, 0):
        index = SubscriptionIndex(secret=secret)
        for key, (selector, topic) in enumerate(subscriptions):
            index.add(key, selector, topic)
        answers.append([array.tolist() for array in index.match(batch)])
    assert answers[0] == answers[1] == answers[2]


def test_a_match_stops_behind_the_row_that_uses_up_its_budget() -> None:
    index = SubscriptionIndex()
    for key in range(500):
        index.add(key, f"x > {key % 10}")
    batch = Batch.build(("t", {"x": row % 13}) for row in range(200))
    whole = index.match(batch)
    offsets, slots = [0], list[int]()
    row = 0
    while row < len(batch):
        part = index.match(batch.take(np.arange(row, len(batch))), budget=1_000_000)
        assert 1 <= len(part[0]) - 1 < 20
        offsets += (part[0][1:] + len(slots)).tolist()
        slots += part[1].tolist()
        row += len(part[0]) - 1
    assert offsets == whole[0].tolist()
    assert slots == whole[1].tolist()


def test_work_is_what_is_resident_and_shared_constraints_count_once() -> None:
    index = SubscriptionIndex()
    works = [index.work]
    for key, selector in enumerate(
        ("a = 1", "b LIKE '%x_y%z'", "b LIKE '%x_y%z' AND a = 2", "a = 1 OR c NOT LIKE '%u%v%'")
    ):
        index.add(key, selector)
        works.append(index.work)
    plain, like, shared, negated = np.diff(works)
    assert like > 1_000 * plain
    assert negated > 1_000 * plain
    assert shared < 10 * plain
    for key in range(4):
        index.remove(key)
    assert index.work == 0


def test_a_selector_of_full_length_makes_a_bounded_number_of_constraints() -> None:
    index = SubscriptionIndex()
    many = " AND ".join(f"a{n} > {n}" for n in range(900))
    few = " AND ".join(f"(b{n} = 1 OR c{n} = 2)" for n in range(6))
    texts = ", ".join(f"'{n}'" for n in range(16))
    index.add("wide", f"d IN ({texts}) AND {many} AND {few}")
    held = index.statistics()
    assert held.conjunctions <= 16
    assert held.work < 16 * 1_500 * 50
    row = {f"a{n}": n + 1 for n in range(800)}
    assert matched(index, Batch.build([("t", {**row, "d": "3"})])) == [set()]


def test_texts_of_one_size_after_the_other_do_not_fill_the_index() -> None:
    index, truth = SubscriptionIndex(Ceilings(text=65_536)), OneByOne()
    kept = {f"kept{n}": f"name{n} = '{'k' * (3 * n)}' AND x LIKE '%b_{n}%c%' AND y + {n} > z" for n in range(20)}
    for key, selector in kept.items():
        index.add(key, selector)
        truth.add(key, selector, None)
    batch = Batch.build(
        ("t", {f"name{n}": "k" * (3 * n), "x": f"abb{n}c", "y": 5, "z": 5 + n - n % 2}) for n in range(20)
    )
    for size in (20, 60, 120, 250, 500, 1_000, 2_000, 4_000) * 2:
        # Together these take most of the text; each size goes before the next one comes.
        keys = [f"{size}-{number}" for number in range(20_000 // size)]
        for key in keys:
            index.add(key, f"long{size} = '{'x' * (size - len(key))}{key}'")
        row = Batch.build([("t", {f"long{size}": f"{'x' * (size - len(keys[3]))}{keys[3]}"})])
        assert matched(index, row) == [{keys[3]}]
        assert matched(index, batch) == truth.match(batch)
        for key in keys:
            index.remove(key)
    assert matched(index, batch) == truth.match(batch)


def test_a_selector_that_costs_more_than_its_allowance_is_refused_before_all_of_it_was_looked_at() -> None:
    index = SubscriptionIndex()
    index.add("a", "x LIKE '%a_b%c%'")
    one, held = index.work, index.statistics()
    costly = " AND ".join(f"x LIKE '%a_{n}%c%'" for n in range(100))
    with pytest.raises(WorkError) as refused:
        index.add("b", costly, allowance=10 * one)
    assert 10 * one < refused.value.work < 13 * one
    assert index.statistics()[:3] == held[:3]
    assert index.work == one
    index.add("b", costly, allowance=101 * one)
    assert index.work > 100 * one


def test_work_is_charged_for_what_a_match_does() -> None:
    text = "a" * 10_000
    charged = {}
    for name, selectors, row in (
        ("nothing", ["b = 1"], {"x": "5"}),
        ("names", [f"n{n} = 'q'" for n in range(500)], {f"n{n}": "1" for n in range(500)}),
        ("members", [" AND ".join(f"x <> {n}" for n in range(500))], {"x": "9999"}),
        ("numbers", [f"n{n} > 1" for n in range(100)], {f"n{n}": "0." + "1" * 40 for n in range(100)}),
        ("grams", [f"x LIKE '%{'a' * size}%'" for size in (1, 2, 3, 4, 6, 8)], {"x": text}),
        ("holes", [f"x LIKE '%{'a' * 600}_b%'"], {"x": text}),
        ("like", ["x NOT LIKE '%a_b%c'"], {"x": text}),
    ):
        index = SubscriptionIndex()
        for key, selector in enumerate(selectors):
            index.add(key, selector)
        _, _, charged[name] = index.match_charged(Batch.build([("t", {}, list(row.items()))]), NO_BUDGET)
    assert charged["names"] > charged["nothing"] + 500 * 4 * READ_BYTE_COST
    assert charged["members"] > charged["nothing"] + 490 * MEMBER_COST
    assert charged["numbers"] > charged["nothing"] + 100 * HARD_COST
    assert charged["grams"] > 6 * 10_000 * GRAM_COST
    assert charged["holes"] > 10_000 * (LIKE_BYTE_COST + 9 * WORD_COST)
    assert charged["like"] > 10_000 * LIKE_BYTE_COST


def test_a_topic_that_rows_repeat_is_looked_up_once() -> None:
    index = SubscriptionIndex()
    for number in range(50):
        index.add(number, topic=".".join("*" if number >> level & 1 else "a" for level in range(6)))
    one = Batch.build([("a.a.a.a.a.a", {})])
    _, _, first = index.match_charged(one, NO_BUDGET)
    offsets, _, charged = index.match_charged(one.take([0] * 80), NO_BUDGET)
    assert offsets.tolist() == [50 * row for row in range(81)]
    assert charged == first + 79 * (ROW_COST + 50 * RESULT_COST)


@pytest.mark.parametrize("selectors", [[], ["x = 1", "x > 0 AND y LIKE '%b%'"], ["JMSPriority = 4"]])
def test_rows_that_repeat_their_topic_match_as_if_they_came_alone(selectors: list[str]) -> None:
    index, truth = SubscriptionIndex(), OneByOne()
    patterns = ["a.b", "a.*", "a.>", "*.b", "c.d.>", ">"]
    for key, (pattern, selector) in enumerate((p, s) for p in patterns for s in ["", *selectors]):
        for side in (index, truth):
            side.add(key, selector or None, pattern)
    rows = Batch.build(
        [("a.b", {"x": 1, "y": "abc"}), ("a.b", {"x": 2}), ("a.c", {"y": "b"}), ("c.d.e", {"x": 1}), ("q", {})]
    )
    order = [0, 0, 0, 2, 2, 0, 1, 1, 1, 3, 4, 4, 4, 3, 3, 2, 1, 0, 0] * 3
    batch = rows.take(order)
    assert matched(index, batch) == truth.match(batch)


def test_rows_that_repeat_their_topic_stop_at_the_budget_and_find_room() -> None:
    index = SubscriptionIndex()
    for number in range(3_000):
        index.add(number, topic="a.b" if number % 2 else "a.>")
    batch = Batch.build([("a.b", {})]).take([0] * 40)
    offsets, slots = index.match(batch)
    assert offsets.tolist() == [3_000 * row for row in range(41)]
    assert all(sorted(part) == list(range(3_000)) for part in slots.reshape(40, 3_000).tolist())
    offsets, slots = index.match(batch, budget=10 * 3_000 * RESULT_COST)
    assert offsets.tolist() == [3_000 * row for row in range(11)]
    assert len(slots) == 30_000
