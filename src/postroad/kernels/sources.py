"""The state of sources: what a kernel's machine code was made from.

A device function or a constant may come from another module than the kernel that uses it. So the state of a kernel is
a digest of its module and of every module of this package that it imports, directly or not. A change of a source
recompiles the kernels that can see it and no others.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

__all__ = ["kernel_modules", "state_of"]

PACKAGE = "postroad"
DIGITS = 16
# Of the modules of this folder, only these shape machine code: a change of a message to the user recompiles nothing.
FOLDER = "postroad.kernels"
SHAPING = frozenset(
    {FOLDER, *(f"{FOLDER}.{module}" for module in ("compiler", "intrinsics", "machine_code", "shortcuts"))}
)

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(postroad[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+(postroad[\w.]*))", re.M
)
_WORD = re.compile(rb"\w+")


class _Source(NamedTuple):
    digest: bytes
    imports: frozenset[str]


@cache
def _package_root() -> Traversable:
    """The folder of this package, or its place in a wheel that is imported as it is."""
    folder = Path(__file__).resolve().parent.parent
    return folder if folder.is_dir() else resources.files(PACKAGE)


@cache
def _entries(parts: tuple[str, ...]) -> frozenset[str]:
    """The names in a folder of this package; none if there is no such folder."""
    place = _package_root()
    for part in parts:
        place = place / part
    return frozenset(entry.name for entry in place.iterdir()) if place.is_dir() else frozenset()


def _text_of(module: str) -> bytes | None:
    """The source of a module. Most names that sources import are not modules, which a list of names tells at once."""
    parts = module.split(".")[1:]
    if parts and f"{parts[-1]}.py" in _entries(tuple(parts[:-1])):
        parts[-1] += ".py"
    elif not parts or (parts[-1] in _entries(tuple(parts[:-1])) and "__init__.py" in _entries(tuple(parts))):
        parts.append("__init__.py")
    else:
        return None
    return _package_root().joinpath(*parts).read_bytes()


def _imports(text: bytes) -> Iterator[str]:
    """Names of this package that a source imports: modules, and perhaps names inside modules."""
    for origin, names, plain in _IMPORT.findall(text):
        module = (origin or plain).decode()
        yield module
        for name in _WORD.findall(names):
            yield f"{module}.{name.decode()}"


def _described(text: bytes) -> _Source:
    return _Source(hashlib.sha256(text).digest(), frozenset(_imports(text)))


@cache
def _source(module: str) -> _Source | None:
    """A module of this package; None if there is no module of this name."""
    inside = module == FOLDER or module.startswith(f"{FOLDER}.")
    if inside and module not in SHAPING:
        return None
    text = _text_of(module)
    if text is None:
        return None
    return _Source(hashlib.sha256(text).digest(), SHAPING) if inside else _described(text)


@cache
def state_of(module: str, path: str) -> str:
    """Names the state of a module and of all modules of ours that it imports, directly or not.

    Args:
        module: its name.
        path: its file, for a module outside this package, such as a test.
    """
    found = _source(module) if module.split(".")[0] == PACKAGE else None
    if found is None:
        found = _described(Path(path).read_bytes())
    seen: dict[str, bytes] = {}
    pending = list(found.imports)
    looked_at = set(pending)
    while pending:
        name = pending.pop()
        source = _source(name)
        if source is not None:
            seen[name] = source.digest
            new = source.imports - looked_at
            looked_at |= new
            pending += new
    digest = hashlib.sha256(found.digest)
    for name in sorted(seen):
        digest.update(name.encode() + b":" + seen[name])
    return digest.hexdigest()[:DIGITS]


def kernel_modules() -> list[str]:
    """The modules of this package that define kernels."""
    return sorted(_with_kernels(_package_root(), PACKAGE))


def _with_kernels(place: Traversable, name: str) -> Iterator[str]:
    for entry in place.iterdir():
        if entry.is_dir() and not entry.name.startswith("__"):
            yield from _with_kernels(entry, f"{name}.{entry.name}")
        elif entry.name.endswith(".py") and b"\n@kernel(" in entry.read_bytes():
            yield f"{name}.{entry.name.removesuffix('.py')}"
