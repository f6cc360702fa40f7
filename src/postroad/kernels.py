"""The one door to numba.

A *kernel* is a function over flat arrays with a fixed signature: it is compiled when its module is imported, and the
machine code is kept on disk, so that the first message of a fresh process is as quick as the millionth. A *device*
function is a piece of a kernel: it has no signature and is compiled into the kernels that call it.

Machine code is kept beside the sources, or in the user's cache where those cannot be written; `NUMBA_CACHE_DIR` in the
environment names another folder. A change of a source recompiles the kernels that depend on it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending
from numba.core import caching, cgutils

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

__all__ = [
    "WINDOW",
    "Float",
    "Int",
    "Truth",
    "bundle",
    "bytes_equal",
    "copy_bytes",
    "count_bits",
    "device",
    "fold_product",
    "give_way",
    "inlined",
    "kernel",
    "lowest_bit",
    "put_word",
    "word_at",
]

# Scalars inside kernels, by name only. numba checks them when it compiles; to mypy, Python's numbers and those that
# arrays hold are different types, and no annotation reconciles the two.
Int: TypeAlias = Any
Float: TypeAlias = Any
Truth: TypeAlias = Any

# A process that started before the last change of the sources may still use its folder: spare recent ones.
_SPARED_SECONDS = 3600

_settings: Any = numba.config
_log = logging.getLogger("postroad.kernels")
_announced: set[str] = set()


# --- where machine code is kept ---------------------------------------------------------------------------------------
# numba's own key is the source file of a kernel. A device function or a constant may come from another module, so the
# key here is a digest of the kernel's module and of every module of this package that it imports, directly or not. A
# change recompiles the kernels that can see it and no others.

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(postroad[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+(postroad[\w.]*))", re.M
)


@cache
def _source_of(module: str) -> bytes | None:
    """The source of a module of this package: of a file on disk, or in a wheel that is imported as it is."""
    place: Traversable = resources.files("postroad")
    for part in module.split(".")[1:-1]:
        place = place / part
    last = module.split(".")[1:][-1:]
    names = [f"{last[0]}.py", f"{last[0]}/__init__.py"] if last else ["__init__.py"]
    for name in names:
        found = place.joinpath(*name.split("/"))
        if found.is_file():
            return found.read_bytes()
    return None


def _imports(source: bytes) -> Iterator[str]:
    """Names of this package that a source imports: modules, and perhaps names inside modules."""
    for origin, names, plain in _IMPORT.findall(source):
        module = (origin or plain).decode()
        yield module
        for name in re.findall(rb"\w+", names):
            yield f"{module}.{name.decode()}"


@cache
def _digest(source: bytes) -> str:
    """Names the state of a source, of all modules of ours behind its imports, and of what compiles them."""
    pending = list(_imports(source))
    seen: dict[str, bytes] = {}
    while pending:
        module = pending.pop()
        if module not in seen:
            seen[module] = _source_of(module) or b""
            pending += _imports(seen[module])
    digest = hashlib.sha256(f"{numba.__version__}:{_settings.BOUNDSCHECK}:".encode() + source)
    for module in sorted(seen):
        if seen[module]:
            digest.update(f"{module}:{len(seen[module])}:".encode() + seen[module])
    return digest.hexdigest()[:16]


@cache
def _user_base() -> Path:
    """The user's cache; where there is no home that can be written, as in many containers, a folder of this process."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "postroad" / "kernels"
    try:
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK):
            return base
    except OSError:
        pass
    # Machine code is run as it is found: never from a folder that others may write to.
    folder = tempfile.mkdtemp(prefix="postroad-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _writable(folder: Path) -> bool:
    """Whether a folder, or the nearest one above it that exists, can be written."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def _folder_for(name: str, line: int) -> Path:
    """`NUMBA_CACHE_DIR` if set; else beside the sources, if the kernel of this line is there or can be written there;
    else the user's cache. An image may hold compiled kernels in a place that is read-only when it runs."""
    if _settings.CACHE_DIR:
        return Path(_settings.CACHE_DIR) / name
    beside = Path(__file__).resolve().parent / "__pycache__" / "kernels"
    if _writable(beside) or any((beside / name).glob(f"*-{line}.py*.nbi")):
        return beside / name
    return _user_base() / name


@cache
def _prepared(folder: Path, module: str) -> str:
    """A folder that exists; folders of older states of its module are removed."""
    if not folder.exists():
        _announce()
        folder.mkdir(parents=True, exist_ok=True)
        for other in folder.parent.glob(f"{module}-*"):
            # Another process that starts now may remove the same folders.
            with contextlib.suppress(FileNotFoundError):
                if other != folder and time.time() - other.stat().st_mtime > _SPARED_SECONDS:
                    shutil.rmtree(other, ignore_errors=True)
    return str(folder)


def _announce() -> None:
    """Says once why this start takes long."""
    if not _announced:
        _announced.add("compiling")
        _log.warning("postroad: compiling kernels for this machine, once; this takes about a minute")


class _ByImports(caching._CacheLocator):
    """Tells numba where the machine code of a function goes, and what it was made from."""

    def __init__(self, function: Any, source: bytes) -> None:
        self._digest = _digest(source)
        self._line = function.__code__.co_firstlineno
        module = function.__module__
        self._folder = _prepared(_folder_for(f"{module}-{self._digest}", self._line), module)

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Any, path: str) -> _ByImports | None:
        module = str(function.__module__)
        source = _source_of(module) if module.startswith("postroad.") else None
        if source is None and Path(path).is_file():
            source = Path(path).read_bytes()
        # Kernels of others, who do not import this module, are none of our business.
        if source is None or (b"postroad" not in source):
            return None
        return cls(function, source)


_locators: list[Any] = caching.CacheImpl._locator_classes
_locators.insert(0, _ByImports)

Function = TypeVar("Function", bound=Callable[..., Any])

# The numpy error model drops the test for a zero divisor that Python's would add to each division: kernels test the
# divisors that can be zero themselves.
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

# Without numba's runtime, arrays are borrowed and not counted. Counting is an atomic operation for every array passed
# or viewed, which in a loop over candidates costs ten times the work itself; in return, nothing can be allocated.
_BORROWED: dict[str, Any] = {**_OPTIONS, "_nrt": False}


# The types that signatures may name: numba's own, and bundles.
_numba_types: Any = numba.types
_TYPES: dict[str, Any] = dict(vars(_numba_types))


def bundle(kind: type[tuple[Any, ...]], fields: str) -> str:
    """Let signatures name a NamedTuple of arrays; answers the name.

    Args:
        kind: the class; its fields are arrays.
        fields: the types of the fields, in numba's notation.
    """
    _TYPES[kind.__name__] = _numba_types.NamedTuple(_evaluated(f"({fields},)"), kind)
    return kind.__name__


def _evaluated(notation: str) -> Any:
    # The notation is Python: `int64[::1]` subscripts a type. It comes from our own sources only.
    return eval(notation, {"__builtins__": {}}, _TYPES)


def kernel(*signatures: str, allocates: bool = True) -> Callable[[Function], Function]:
    """Compile a function over arrays now, for the given signatures, and keep the machine code on disk.

    Args:
        signatures: what it takes and gives, in numba's notation; bundles go by the names of their classes.
        allocates: whether it makes arrays; one that does not may say so, and runs faster.
    """
    options = _OPTIONS if allocates else _BORROWED
    types = [_evaluated(signature) for signature in signatures]

    def compile_now(function: Function) -> Function:
        return cast("Function", numba.njit(types, **options)(function))

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


# --- many bytes in one step ------------------------------------------------------------------------------------------
# A loop over bytes with a branch for each costs a cycle or two a byte, and a wrong guess at the end of every word. The
# compiler cannot take such loops apart by itself, so these few steps are given to it as vectors. They are not checked
# against the ends of arrays, except under NUMBA_BOUNDSCHECK: each says what its caller must have made sure of.

# Bytes that `bytes_equal` looks at: one bit of a word each.
WINDOW = 64

_YIELDS = hasattr(os, "sched_yield")
_CHECKED = bool(_settings.BOUNDSCHECK)
_BYTE, _WORD = ir.IntType(8), ir.IntType(64)
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


@inlined
def count_bits(word: Int) -> Int:
    """How many bits of a word are set."""
    return _population(word)


@inlined
def lowest_bit(word: Int) -> Int:
    """The place of the lowest bit that is set in a word that is not 0."""
    return _trailing_zeros(word)


@inlined
def fold_product(one: Int, other: Int) -> Int:
    """The two halves of the 128-bit product of two words, joined by exclusive or: one multiplication on most machines.

    Every bit of one word reaches every bit of the result in a way that depends on the other word, which is what a
    keyed hash needs. The lower half alone would leave the highest bit of a word where it is, whatever the key.
    """
    return _folded(one, other)


@inlined
def give_way() -> None:
    """Let those go first who wait for this processor: for long kernels on threads that have time.

    Where there are more threads than processors, who just woke up otherwise waits for milliseconds until a long kernel
    has used up its time, or takes the processor of a thread that has none to lose. Nothing happens when nobody waits.
    """
    if _YIELDS:
        _yield()


@inlined
def bytes_equal(data: Any, at: Int, byte: Int) -> Int:
    """Which of the `WINDOW` bytes from an offset on are this one: bit i for byte i. All of them are in the array."""
    if _CHECKED:
        data[at]
        data[at + WINDOW - 1]
    return _equal(data, at, np.uint8(byte))


@inlined
def copy_bytes(data: Any, start: Int, end: Int, out: Any, at: Int) -> Int:
    """Copy a part of one array into another one, where it fits; the offset behind it."""
    size = end - start
    if _CHECKED and size > 0:
        out[at] = data[start]
        out[at + size - 1] = data[end - 1]
    _move(data, start, out, at, size)
    return at + size


@inlined
def word_at(data: Any, at: Int) -> Int:
    """Eight bytes as one little-endian word; the compiler turns the eight loads into one."""
    place = np.uint64(at)
    word = np.uint64(0)
    for step in range(np.uint64(8)):
        word |= np.uint64(data[place + step]) << (step << np.uint64(3))
    return word


@inlined
def put_word(out: Any, at: Int, word: Int) -> None:
    """Write a word as eight little-endian bytes."""
    place = np.uint64(at)
    for step in range(np.uint64(8)):
        out[place + step] = np.uint8(word >> (step << np.uint64(3)) & np.uint64(0xFF))
