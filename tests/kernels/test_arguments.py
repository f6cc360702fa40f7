"""A kernel runs only on what its signature names: anything else would be read as something that it is not."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

from postroad.kernels import bundle, kernel


class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray


PAIR = bundle(Pair, "int64[::1], uint8[::1]")


@kernel("int64(int64[:, ::1])", allocates=False)
def total(table: np.ndarray) -> int:
    found = 0
    for row in range(len(table)):
        for column in range(table.shape[1]):
            found += table[row, column]
    return found


@kernel("int64(int64[:, :])", allocates=False)
def total_of_any_order(table: np.ndarray) -> int:
    found = 0
    for row in range(len(table)):
        for column in range(table.shape[1]):
            found += table[row, column]
    return found


@kernel("int64(Array(int64, 1, 'C', readonly=True))", allocates=False)
def total_read_only(row: np.ndarray) -> int:
    found = 0
    for value in row:
        found += value
    return found


@kernel(f"int64({PAIR})", allocates=False)
def total_of_pair(pair: Pair) -> int:
    return int(pair.first[0] + pair.second[0])


@kernel("int64(int32[::1])", "int64(int64[::1])", allocates=False)
def bytes_of_items(values: np.ndarray) -> int:
    return int(values.itemsize)


@kernel("Tuple((int64, float64, boolean))(int64, float64, boolean)")
def returned(number: int, fraction: float, truth: bool) -> tuple[int, float, bool]:
    return number + 1, fraction / 2, not truth


@kernel("int64(int64)")
def sum_below(count: int) -> int:
    numbers = np.arange(count)
    return int(numbers.sum())


def read_only(table: np.ndarray) -> np.ndarray:
    table.flags.writeable = False
    return table


TABLE = np.arange(12, dtype=np.int64).reshape(3, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        TABLE.astype(np.uint64),
        TABLE.astype(np.float64),
        TABLE.astype(np.int32),
        TABLE.astype(">i8"),
        TABLE[:, ::2],
        np.asfortranarray(TABLE),
        TABLE[0],
        TABLE[None],
        read_only(TABLE.copy()),
        np.array([["text"]], dtype=object),
        TABLE.tolist(),
        TABLE.data,
        None,
        7,
    ],
    ids=lambda wrong: f"{type(wrong).__name__}-{getattr(wrong, 'dtype', '')}-{getattr(wrong, 'ndim', '')}",
)
def test_kernel_refuses_what_is_not_an_array_of_its_signature(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"array\(int64, 2d, C\)"):
        total(wrong)


def test_kernel_refuses_an_array_that_is_not_aligned() -> None:
    raw = np.zeros(8 * 12 + 1, np.uint8)
    with pytest.raises(TypeError):
        total(np.frombuffer(raw.data, np.int64, 12, 1).reshape(3, 4))


def test_kernel_takes_arrays_of_its_signature() -> None:
    assert total(TABLE) == 66
    assert total(np.zeros((0, 4), np.int64)) == 0
    # Of the same items under another name, and of a class below.
    assert total(TABLE.astype(np.longlong)) == 66
    assert total(TABLE.view(type("Below", (np.ndarray,), {}))) == 66
    assert total_of_any_order(TABLE[::2, ::2]) == 20
    assert total_of_any_order(TABLE.T) == 66
    assert total_read_only(read_only(TABLE[0].copy())) == total_read_only(TABLE[0].copy()) == 6


def test_arrays_of_bundles_are_checked_too() -> None:
    one, other = np.array([40], np.int64), np.array([2], np.uint8)
    assert total_of_pair(Pair(one, other)) == 42
    with pytest.raises(TypeError):
        total_of_pair(Pair(one, other.astype(np.int8)))
    with pytest.raises(TypeError):
        total_of_pair(Pair(other, one))


def test_the_signature_that_fits_is_called() -> None:
    assert bytes_of_items(np.zeros(1, np.int32)) == 4
    assert bytes_of_items(np.zeros(1, np.int64)) == 8
    with pytest.raises(TypeError):
        bytes_of_items(np.zeros(1, np.int16))


def test_numbers_and_what_is_returned() -> None:
    assert returned(41, 3.0, False) == (42, 1.5, True)
    as_arrays_hold_them: Any = (np.int32(41), np.float32(3.0), np.True_)
    assert returned(*as_arrays_hold_them) == (42, 1.5, False)
    nothing: Any = None
    with pytest.raises(TypeError):
        returned(nothing, 3.0, False)
    with pytest.raises(TypeError):
        returned(41, 3.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        returned(number=41, fraction=3.0, truth=False)


def test_kernel_that_allocates_gives_its_memory_back() -> None:
    assert sum_below(100) == 4950
    assert sum(sum_below(1000) for _ in range(1000)) == 499_500_000


def test_threads_that_call_a_kernel_at_first_at_once_get_one_answer() -> None:
    @kernel("int64(int64)", allocates=False)
    def doubled(number: int) -> int:
        return number * 2

    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(doubled(21))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [42] * 4
