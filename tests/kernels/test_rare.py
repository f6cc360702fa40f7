"""A condition that is marked as rare decides as it would without the mark."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from postroad.kernels import inlined, kernel, rare


@inlined
def halved(number: int) -> int:
    """Half of a large number, and small ones as they are: a mark inside a piece of a kernel."""
    if rare(number > 100):
        return number // 2
    return number


@kernel("int64(int64[::1])", allocates=False)
def total(numbers: np.ndarray) -> int:
    """Count negative numbers as one, and large ones by half."""
    found = 0
    for place in range(numbers.size):
        if rare(numbers[place] < 0):
            found += 1
        else:
            found += halved(numbers[place])
    return found


@given(st.lists(st.integers(-200, 1_000)))
def test_kernel_takes_both_ways_of_a_rare_condition(numbers: list[int]) -> None:
    wanted = sum(1 if number < 0 else number // 2 if number > 100 else number for number in numbers)
    assert total(np.array(numbers, np.int64)) == wanted
