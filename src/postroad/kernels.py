"""The one door to numba.

A *kernel* is a function over flat arrays with a fixed signature: it is compiled when its module is imported, and the
machine code is kept on disk, so that the first message of a fresh process is as quick as the millionth. A *device*
function is a piece of a kernel: it has no signature and is compiled into the kernels that call it.

numba keys its disk cache by the source file of the kernel alone: a change in a device function of another module would
go unseen, and old machine code would answer for new source. So the cache lives in a folder named after a digest of all
sources of this package; `NUMBA_CACHE_DIR` in the environment names another one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numba

__all__ = ["Float", "Int", "Truth", "bundle", "device", "inlined", "kernel"]

# Scalars inside kernels, by name only. numba checks them when it compiles; to mypy, Python's numbers and those that
# arrays hold are different types, and no annotation reconciles the two.
Int: TypeAlias = Any
Float: TypeAlias = Any
Truth: TypeAlias = Any

# A process that started before the last change of the sources may still write to its folder: spare recent ones.
_SPARED_SECONDS = 3600


def _sources_digest(package: Path) -> str:
    """Names the state of all sources in folders that hold kernels: these are what machine code is made from."""
    digest = hashlib.sha256(numba.__version__.encode())
    folders: dict[Path, list[tuple[str, bytes]]] = {}
    for path in sorted(package.rglob("*.py")):
        folders.setdefault(path.parent, []).append((path.name, path.read_bytes()))
    for folder, files in folders.items():
        if any(b"postroad.kernels" in source for _, source in files):
            for name, source in files:
                digest.update(f"{folder.relative_to(package)}/{name}:{len(source)}:".encode() + source)
    # Bounds checks change the machine code, and numba's key does not hold them either.
    return digest.hexdigest()[:16] + ("-bounds" if os.environ.get("NUMBA_BOUNDSCHECK", "0") != "0" else "")


def _cache_folder() -> Path:
    """Beside the sources where one may write, else in the user's own cache; folders of older sources are removed."""
    package = Path(__file__).resolve().parent
    digest = _sources_digest(package)
    beside = package / "__pycache__"
    if os.access(beside if beside.exists() else package, os.W_OK):
        base = beside
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "postroad"
    folder = base / f"kernels-{digest}"
    for other in base.glob("kernels-*"):
        if other != folder and time.time() - other.stat().st_mtime > _SPARED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return folder


_settings: Any = numba.config
if not _settings.CACHE_DIR:
    _settings.CACHE_DIR = str(_cache_folder())

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
