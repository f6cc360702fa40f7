"""The one door to numba.

A *kernel* is a function over flat arrays with fixed signatures. It is compiled once, and its machine code is kept on
disk: a process that finds it there never loads the compiler. A *device* function is a piece of a kernel: it has no
signature and is compiled into the kernels that call it.

| module | what it holds |
| --- | --- |
| `functions` | kernels and devices as Python holds them, loaded at their first call |
| `sources` | the state of sources, by which machine code is found |
| `targets` | the processor, Python and numba that machine code is made for |
| `folders` | where machine code is kept |
| `machine_code` | object files as functions that Python can call |
| `compilation` | compiling what is missing, with progress; by several processes |
| `compiler`, `intrinsics`, `shortcuts` | numba: imported only to compile |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from postroad.kernels.compilation import compile_everything, compile_missing, load_all, missing_kernels
from postroad.kernels.folders import store_folder as kernel_folder
from postroad.kernels.functions import BUNDLES, Device, Intrinsic, Kernel

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "WINDOW",
    "Float",
    "Int",
    "Truth",
    "bundle",
    "bytes_equal",
    "compile_everything",
    "compile_missing",
    "copy_bytes",
    "count_bits",
    "device",
    "fold_product",
    "give_way",
    "inlined",
    "kernel",
    "kernel_folder",
    "load_all",
    "lowest_bit",
    "missing_kernels",
    "put_word",
    "rare",
    "word_at",
]

# Scalars inside kernels, by name only. numba checks them when it compiles; to mypy, Python's numbers and those that
# arrays hold are different types, and no annotation reconciles the two.
Int: TypeAlias = Any
Float: TypeAlias = Any
Truth: TypeAlias = Any

Function = TypeVar("Function", bound="Callable[..., Any]")


def bundle(kind: type[tuple[Any, ...]], fields: str) -> str:
    """Let signatures name a NamedTuple of arrays; returns the name.

    Args:
        kind: the class; its fields are arrays.
        fields: the types of the fields, in numba's notation.
    """
    BUNDLES[kind.__name__] = (kind, fields)
    return kind.__name__


def kernel(*signatures: str, allocates: bool = True, packs_words: bool = False) -> Callable[[Function], Function]:
    """Make a function over arrays a kernel, for the given signatures.

    Arguments are given by their places. An array of another type, order or number of dimensions than a signature says,
    or one that cannot be written where it must be, is a TypeError.

    Args:
        signatures: what it takes and gives, in numba's notation; bundles go by the names of their classes.
        allocates: whether it makes arrays; one that does not may say so, and runs faster.
        packs_words: whether LLVM computes words that are independent of each other as one vector (its SLP vectorizer).
            A tenth faster where ids are written as text; slower where words are hashed and compared.
    """

    def make(function: Function) -> Function:
        return cast("Function", Kernel(function, signatures, allocates, packs_words))

    return make


def device(function: Function) -> Function:
    """Mark a function as a piece of kernels: compiled into each kernel that calls it. It cannot allocate."""
    return cast("Function", Device(function, inlined=False))


def inlined(function: Function) -> Function:
    """Mark a device function that every caller takes in whole.

    A call that passes a dozen arrays pushes some eighty words; in a loop over candidates that costs more than the
    work itself.
    """
    return cast("Function", Device(function, inlined=True))


# --- the layout of code -----------------------------------------------------------------------------------------------

# `if rare(condition)`: the condition seldom holds, and what it leads to is laid out after everything else. Hot code
# that is spread over many pages is slow in some processes (decision 0018).
rare: Any = Intrinsic("rare")


# --- many bytes in one step ------------------------------------------------------------------------------------------
# A loop over bytes with a branch for each costs a cycle or two a byte, and a wrong guess at the end of every word. The
# compiler cannot take such loops apart by itself, so these few steps are given to it as vectors (`intrinsics`). They
# are not checked against the ends of arrays, except under NUMBA_BOUNDSCHECK: each says what its caller must have made
# sure of.

# Bytes that `bytes_equal` looks at: one bit of a word each.
WINDOW = 64

bytes_equal: Any = Intrinsic("bytes_equal")
copy_bytes: Any = Intrinsic("copy_bytes")
count_bits: Any = Intrinsic("count_bits")
fold_product: Any = Intrinsic("fold_product")
give_way: Any = Intrinsic("give_way")
lowest_bit: Any = Intrinsic("lowest_bit")
put_word: Any = Intrinsic("put_word")
word_at: Any = Intrinsic("word_at")
