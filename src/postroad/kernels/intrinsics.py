"""Pieces of kernels that are instructions of the machine, for the compiler alone.

A loop over bytes with a branch for each costs a cycle or two a byte; the compiler cannot take such loops apart by
itself, so these few steps are given to it as vectors.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending
from numba.core import cgutils

from postroad.kernels import WINDOW
from postroad.kernels.targets import BOUNDS_CHECKED

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "bytes_equal",
    "copy_bytes",
    "count_bits",
    "fold_product",
    "give_way",
    "lowest_bit",
    "put_word",
    "rare",
    "word_at",
]

Int: TypeAlias = Any

_YIELDS = hasattr(os, "sched_yield")
_CHECKED = BOUNDS_CHECKED
_BYTE, _WORD = ir.IntType(8), ir.IntType(64)
_numba_types: Any = numba.types
_declared: Any = cgutils.get_or_insert_function
_intrinsic = cast("Callable[[Callable[..., Any]], Callable[..., Any]]", extending.intrinsic)


def _address(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """The address of a byte of an array."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


@_intrinsic
def _equal(typing: Any, data: Any, at: Any, byte: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        window = ir.VectorType(_BYTE, WINDOW)
        address = _address(context, builder, signature.args[0], arguments[0], arguments[1])
        found = builder.load(builder.bitcast(address, window.as_pointer()), align=1)
        wanted = builder.insert_element(ir.Constant(window, ir.Undefined), arguments[2], ir.IntType(32)(0))
        every = ir.Constant(ir.VectorType(ir.IntType(32), WINDOW), [0] * WINDOW)
        wanted = builder.shuffle_vector(wanted, ir.Constant(window, ir.Undefined), every)
        return builder.bitcast(builder.icmp_unsigned("==", found, wanted), _WORD)

    return _numba_types.uint64(data, _numba_types.int64, _numba_types.uint8), generate


@_intrinsic
def _move(typing: Any, data: Any, start: Any, out: Any, at: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, start, target, at, size = arguments
        origin = _address(context, builder, signature.args[0], source, start)
        place = _address(context, builder, signature.args[2], target, at)
        pointer = _BYTE.as_pointer()
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, _WORD])
        builder.call(memcpy, [place, origin, size, ir.IntType(1)(0)])
        return context.get_dummy_value()

    number = _numba_types.int64
    return _numba_types.void(data, number, out, number, number), generate


@_intrinsic
def _trailing_zeros(typing: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return _numba_types.int64(_numba_types.uint64), generate


@_intrinsic
def _folded(typing: Any, one: Any, other: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        upper = builder.trunc(builder.lshr(product, wide(64)), _WORD)
        return builder.xor(builder.trunc(product, _WORD), upper)

    word = _numba_types.uint64
    return word(word, word), generate


@_intrinsic
def _population(typing: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return _numba_types.uint64(_numba_types.uint64), generate


@_intrinsic
def _yield(typing: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # By its name: an address would be of this process, and not for the cache.
        function = _declared(builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield")
        builder.call(function, [])
        return context.get_dummy_value()

    return _numba_types.void(), generate


@_intrinsic
def rare(typing: Any, condition: Any) -> Any:
    """A condition that seldom holds: what it leads to is laid out after what is run all the time."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bit = ir.IntType(1)
        expect = builder.module.declare_intrinsic("llvm.expect", [bit], ir.FunctionType(bit, [bit, bit]))
        return builder.call(expect, [arguments[0], bit(0)])

    return _numba_types.boolean(_numba_types.boolean), generate


def count_bits(word: Int) -> Int:
    """How many bits of a word are set."""
    return _population(word)


def lowest_bit(word: Int) -> Int:
    """The place of the lowest bit that is set in a word that is not 0."""
    return _trailing_zeros(word)


def fold_product(one: Int, other: Int) -> Int:
    """The two halves of the 128-bit product of two words, joined by exclusive or: one multiplication on most machines.

    Every bit of one word reaches every bit of the result in a way that depends on the other word, which is what a
    keyed hash needs. The lower half alone would leave the highest bit of a word where it is, whatever the key.
    """
    return _folded(one, other)


def give_way() -> None:
    """Let those go first who wait for this processor: for long kernels on threads that have time.

    Where there are more threads than processors, who just woke up otherwise waits for milliseconds until a long kernel
    has used up its time, or takes the processor of a thread that has none to lose. Nothing happens when nobody waits.
    """
    if _YIELDS:
        _yield()


def bytes_equal(data: Any, at: Int, byte: Int) -> Int:
    """Which of the `WINDOW` bytes from an offset on are this one: bit i for byte i. All of them are in the array."""
    if _CHECKED:
        data[at]
        data[at + WINDOW - 1]
    return _equal(data, at, np.uint8(byte))


def copy_bytes(data: Any, start: Int, end: Int, out: Any, at: Int) -> Int:
    """Copy a part of one array into another one, where it fits; returns the offset after it."""
    size = end - start
    if _CHECKED and size > 0:
        out[at] = data[start]
        out[at + size - 1] = data[end - 1]
    _move(data, start, out, at, size)
    return at + size


def word_at(data: Any, at: Int) -> Int:
    """Eight bytes as one little-endian word; the compiler turns the eight loads into one."""
    place = np.uint64(at)
    word = np.uint64(0)
    for step in range(np.uint64(8)):
        word |= np.uint64(data[place + step]) << (step << np.uint64(3))
    return word


def put_word(out: Any, at: Int, word: Int) -> None:
    """Write a word as eight little-endian bytes."""
    place = np.uint64(at)
    for step in range(np.uint64(8)):
        out[place + step] = np.uint8(word >> (step << np.uint64(3)) & np.uint64(0xFF))
