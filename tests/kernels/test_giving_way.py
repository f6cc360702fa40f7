"""A long kernel lets others have the processor, and goes on."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from postroad.kernels import give_way, kernel


@kernel("void(int64[::1], int64)", allocates=False)
def spin(flag: np.ndarray, most: int) -> None:
    """Wait for another thread to set the first number; tell the second how long it took."""
    while flag[0] == 0 and flag[1] < most:
        flag[1] += 1
        give_way()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no way to put two threads on one processor here")
def test_thread_that_shares_a_processor_with_a_long_kernel_gets_its_turn() -> None:
    flag = np.zeros(2, np.int64)
    most = 1_000_000  # a millisecond or two for a kernel that does not give way, and half a second for one that does

    def run() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        spin(flag, most)

    spinning = threading.Thread(target=run)
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        spinning.start()
        while flag[1] == 0:
            pass
        flag[0] = 1
        spinning.join()
    finally:
        os.sched_setaffinity(0, allowed)
    assert 0 < flag[1] < most
