"""The one door to numba.

A *kernel* is a function over flat arrays with a fixed signature: it is compiled when its module is imported, and the
machine code is kept on disk, so that the first message of a fresh process is as quick as the millionth. A *device*
function is a piece of a kernel: it has no signature and is compiled into the kernels that call it.

numba keys its disk cache by the source file of the kernel alone; a change in a device function of another module would
go unseen. `scripts/` therefore set `NUMBA_CACHE_DIR` to a folder named after a digest of all sources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numba

__all__ = ["Float", "Int", "Truth", "device", "inlined", "kernel"]

# Scalars inside kernels, by name only. numba checks them when it compiles; to mypy, Python's numbers and those that
# arrays hold are different types, and no annotation reconciles the two.
Int: TypeAlias = Any
Float: TypeAlias = Any
Truth: TypeAlias = Any

Function = TypeVar("Function", bound=Callable[..., Any])

# The numpy error model drops the test for a zero divisor that Python's would add to each division: kernels test the
# divisors that can be zero themselves.
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

# Without numba's runtime, arrays are borrowed and not counted. Counting is an atomic operation for every array passed
# or viewed, which in a loop over candidates costs ten times the work itself; in return, nothing can be allocated.
_BORROWED: dict[str, Any] = {**_OPTIONS, "_nrt": False}


def kernel(*signatures: str, allocates: bool = True) -> Callable[[Function], Function]:
    """Compile a function over arrays now, for the given signatures, and keep the machine code on disk.

    Args:
        signatures: what it takes and gives, in numba's notation.
        allocates: whether it makes arrays; one that does not may say so, and runs faster.
    """
    options = _OPTIONS if allocates else _BORROWED

    def compile_now(function: Function) -> Function:
        return cast("Function", numba.njit(list(signatures), **options)(function))

    return compile_now


def device(function: Function) -> Function:
    """Mark a function as a piece of kernels: compiled into each kernel that calls it. It cannot allocate."""
    return cast("Function", numba.njit(**_BORROWED)(function))


def inlined(function: Function) -> Function:
    """Mark a device function that every caller takes in whole.

    A call that passes a dozen arrays pushes some eighty words; in a loop over candidates that costs more than the
    work itself.
    """
    return cast("Function", numba.njit(forceinline=True, **_BORROWED)(function))
