"""Ribbon filters: never a false no, as many false yeses as promised, near the limit in size."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.errors import LimitError
from postroad.filters import FilterError, RibbonFilter, limit_bits, mix64, rate_for, ribbon_bits
from postroad.filters.ribbon import MAX_RIBBON_KEYS
from postroad.filters.ribbon_solver import WIDTH, solved_parts

words = st.integers(0, 2**64 - 1)
key_lists = st.lists(words, max_size=300).map(lambda keys: np.array(keys, np.uint64))
rates = st.floats(2.0**-30, 0.99)
K1, K3 = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
MASK = 2**64 - 1


def part_number(made: RibbonFilter, key: int) -> int:
    return (key >> 32) * len(made.parts) >> 32


def part_words(made: RibbonFilter, number: int) -> list[int]:
    sizes = [int(blocks) * (made.columns + 1) - int(short) for blocks, short, _ in made.parts]
    begin = sum(sizes[:number])
    return [int(word) for word in made.words[begin : begin + sizes[number]]]


def slow_equation(key: int, blocks: int, seed: int) -> tuple[int, int, int]:
    """Start, coefficients and fingerprint, from the rule of the format."""
    word = mix64(key ^ mix64(seed))
    low = word * K1 & MASK
    return (word >> 32) * ((blocks - 1) * WIDTH + 1) >> 32, (low ^ low >> 32) | 1, (word * K3 & MASK) >> 32


def slow_contains(made: RibbonFilter, key: int) -> bool:
    """Straight from the rule of the format, bit by bit."""
    number = part_number(made, key)
    blocks, short, seed = made.parts[number].tolist()
    solution = part_words(made, number)
    start, coefficients, print_ = slow_equation(key, blocks, seed)
    wide = made.columns + (start // WIDTH >= short)
    total = 0
    for index in range(WIDTH):
        if coefficients >> index & 1:
            block, inside = divmod(start + index, WIDTH)
            base = block * (made.columns + 1) - min(block, short)
            for column in range(wide):
                total ^= (solution[base + column] >> inside & 1) << column
    return bool(total == print_ & ((1 << wide) - 1))


def slow_solution(keys: list[int], blocks: int, short: int, seed: int, columns: int) -> list[int] | None:
    """The words by plain elimination over whole numbers; what no equation needs is 0. None if they contradict."""
    rows: dict[int, tuple[int, int]] = {}
    for key in keys:
        start, coefficients, print_ = slow_equation(key, blocks, seed)
        picks, print_ = coefficients << start, print_ & ((2 << columns) - 1)
        while picks and (row := (picks & -picks).bit_length() - 1) in rows:
            picks, print_ = picks ^ rows[row][0], print_ ^ rows[row][1]
        if picks:
            rows[row] = (picks, print_)
        elif print_:
            return None
    solution = [0] * (blocks * WIDTH)
    for row in sorted(rows, reverse=True):
        picks, solution[row] = rows[row]
        for index in range(row + 1, min(row + WIDTH, len(solution))):
            solution[row] ^= solution[index] * (picks >> index & 1)
    return [
        sum((solution[block * WIDTH + bit] >> column & 1) << bit for bit in range(WIDTH))
        for block in range(blocks)
        for column in range(columns + (block >= short))
    ]


def assert_solved(made: RibbonFilter, keys: list[int]) -> None:
    """Each part is what plain elimination finds, and no seed before the one it has would have done."""
    for number, (blocks, short, seed) in enumerate(made.parts.tolist()):
        own = [key for key in keys if part_number(made, key) == number]
        assert part_words(made, number) == slow_solution(own, blocks, short, seed, made.columns)
        if seed % 2:
            assert slow_solution(own, blocks, short, seed - 1, made.columns) is None


@given(key_lists, rates)
@settings(max_examples=30)
def test_filter_is_the_solution_that_plain_elimination_finds(keys: np.ndarray, rate: float) -> None:
    assert_solved(RibbonFilter.build(keys, rate), keys.tolist())


@pytest.mark.parametrize(("n", "rate"), [(2_500, 5e-6), (2_500, 2.0**-29), (1_800, 0.4)])
def test_thousands_of_keys_give_the_solution_that_plain_elimination_finds(n: int, rate: float) -> None:
    keys = np.random.default_rng(n).integers(0, 2**64, n, np.uint64)
    assert_solved(RibbonFilter.build(keys, rate), keys.tolist())


def test_a_filter_of_parts_is_made_of_the_solutions_of_each() -> None:
    keys = np.random.default_rng(9).integers(0, 2**64, 20_000, np.uint64)
    made = RibbonFilter.build(keys, 0.1)
    assert len(made.parts) == 2
    assert_solved(made, keys.tolist())


def test_equations_that_contradict_each_other_get_another_seed_or_more_rows() -> None:
    grown, reseeded = 0, 0
    for n in range(58, 72):
        keys = np.random.default_rng(n).integers(0, 2**64, n, np.uint64)
        found = solved_parts(keys, np.array([0, n]), np.array([1]), 9, 0.5)
        assert not isinstance(found, int)
        made = RibbonFilter(found[0], 9, found[1])
        assert_solved(made, keys.tolist())
        assert made.contains(keys).all()
        grown += int(made.parts[0, 0]) > 1
        reseeded += int(made.parts[0, 2]) > 0
    assert grown
    assert reseeded > grown


def test_a_part_that_grows_beyond_its_room_is_solved_all_the_same() -> None:
    keys = np.random.default_rng(4).integers(0, 2**64, 4_000, np.uint64)
    found = solved_parts(keys, np.array([0, 4_000]), np.array([50]), 9, 0.5)
    assert not isinstance(found, int)
    assert RibbonFilter(found[0], 9, found[1]).contains(keys).all()
    assert found[1][0, 0] > 58


def test_keys_that_are_no_hashes_make_one_large_part() -> None:
    keys = np.arange(20_000, dtype=np.uint64)
    made = RibbonFilter.build(keys, 1e-3)
    assert made.contains(keys).all()
    assert made.parts[0, 0] * WIDTH > 20_000
    assert made.parts[1:, 0].tolist() == [1] * (len(made.parts) - 1)


@given(key_lists, rates)
def test_filter_never_denies_a_key_it_was_built_of(keys: np.ndarray, rate: float) -> None:
    made = RibbonFilter.build(keys, rate)
    assert made.contains(keys).all()
    assert made.rate <= rate * 1.0001


@given(key_lists, rates, st.lists(words, min_size=1, max_size=20))
@settings(max_examples=30)
def test_filter_answers_as_the_format_says(keys: np.ndarray, rate: float, probes: list[int]) -> None:
    made = RibbonFilter.build(keys, rate)
    asked = np.concatenate([keys[:10], np.array(probes, np.uint64)])
    assert made.contains(asked).tolist() == [slow_contains(made, int(key)) for key in asked]


@pytest.mark.parametrize(("n", "rate"), [(5_000, 0.02), (40_000, 0.003), (700, 1 / 64), (3_000, 0.3)])
def test_error_rate_is_within_three_standard_errors_of_the_promise(n: int, rate: float) -> None:
    random = np.random.default_rng(7)
    probes, wrong, promised = 1_000_000, 0, 0.0
    for _ in range(2):
        made = RibbonFilter.build(random.integers(0, 2**64, n, np.uint64), rate)
        wrong += int(made.contains(random.integers(0, 2**64, probes, np.uint64)).sum())
        promised += made.rate / 2
    assert promised == pytest.approx(rate, rel=0.1)
    assert abs(wrong / (2 * probes) - promised) <= 3 * math.sqrt(promised / (2 * probes))


def test_size_comes_within_eight_percent_of_the_limit() -> None:
    keys = np.random.default_rng(3).integers(0, 2**64, 38_836, np.uint64)
    rate = rate_for(1e-5)
    made = RibbonFilter.build(keys, rate)
    assert len(bytes(made)) * 8 == made.bits
    assert made.rate <= rate
    assert made.bits / len(keys) <= 1.08 * limit_bits(rate)
    assert ribbon_bits(len(keys), rate) == pytest.approx(made.bits, rel=0.01)


def test_duplicate_keys_are_harmless() -> None:
    keys = np.repeat(np.arange(500, dtype=np.uint64), 3)
    assert RibbonFilter.build(keys, 1e-4).contains(keys).all()


def test_same_keys_give_the_same_filter() -> None:
    keys = np.random.default_rng(5).integers(0, 2**64, 2_000, np.uint64)
    assert bytes(RibbonFilter.build(keys, 1e-3)) == bytes(RibbonFilter.build(keys, 1e-3))


@given(key_lists, rates)
def test_bytes_round_trip(keys: np.ndarray, rate: float) -> None:
    made = RibbonFilter.build(keys, rate)
    back = RibbonFilter.from_bytes(bytes(made))
    assert back.columns == made.columns
    assert back.parts.tolist() == made.parts.tolist()
    assert back.contains(keys).all()
    assert back.rate == made.rate


@given(key_lists, rates, st.integers(0, 40), st.binary(max_size=40))
def test_other_bytes_are_refused_or_answer_without_harm(keys: np.ndarray, rate: float, cut: int, random: bytes) -> None:
    data = bytes(RibbonFilter.build(keys, rate))
    for damaged in (data[: len(data) - cut], random, bytes(4) + data[4:]):
        try:
            RibbonFilter.from_bytes(damaged).contains(keys)
        except FilterError:
            continue
        assert len(damaged) % 8 == 0


def test_truncated_bytes_are_refused() -> None:
    made = RibbonFilter.build(np.arange(1_000, dtype=np.uint64), 1e-3)
    with pytest.raises(FilterError, match="words are not a ribbon filter"):
        RibbonFilter.from_bytes(bytes(made)[:-8])
    with pytest.raises(FilterError, match="not a ribbon filter"):
        RibbonFilter.from_bytes(b"")


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(FilterError, match="between 2\\^-31 and 1"):
        RibbonFilter.build(np.zeros(1, np.uint64), 1.0)
    with pytest.raises(LimitError):
        RibbonFilter.build(np.zeros(MAX_RIBBON_KEYS + 1, np.uint64), 0.5)


def test_a_large_filter_is_the_same_whatever_the_order_of_its_keys() -> None:
    keys = np.random.default_rng(8).integers(0, 2**64, 70_000, np.uint64)
    made = RibbonFilter.build(keys, 1e-3)
    assert bytes(RibbonFilter.build(keys[::-1].copy(), 1e-3)) == bytes(made)
    assert made.contains(keys).all()
    assert all(slow_contains(made, int(key)) for key in keys[::7_000])
