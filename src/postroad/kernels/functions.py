"""Kernels and their pieces as Python holds them: loaded when they are first called.

A kernel is a `functools.partial` without arguments: calling it costs next to nothing, and what it calls can be
exchanged. At first that is a function that loads its machine code, or has it compiled if there is none; then it is
the machine code itself. Nothing of LLVM is loaded before.
"""

from __future__ import annotations

import threading
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from postroad.kernels import folders
from postroad.kernels.sources import state_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from postroad.kernels.machine_code import Compiled

__all__ = ["BUNDLES", "KERNELS", "Device", "Kernel"]

# Of files of machine code: those of another one are not read, nor in the way.
FORMAT = "v2"

# Class of a bundle by the name that signatures use -> the class and the types of its fields.
BUNDLES: dict[str, tuple[type[tuple[Any, ...]], str]] = {}
# All kernels of the modules that are imported.
KERNELS: list[Kernel] = []

_loading = threading.RLock()


class Device:
    """A piece of kernels. Called from Python, which only tests do, it is compiled for what it is called with."""

    __slots__ = ("_body", "inlined")

    def __init__(self, body: Callable[..., Any], inlined: bool) -> None:
        self._body = body
        self.inlined = inlined

    @property
    def function(self) -> Callable[..., Any]:
        """What it does, in Python."""
        return self._body

    def __call__(self, *arguments: Any) -> Any:
        """What it returns."""
        from postroad.kernels import compiler

        return compiler.callable_device(self)(*arguments)


class Intrinsic(Device):
    """A piece that is written for the compiler, in a module that is only loaded to compile."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name
        self.inlined = True

    @property
    def function(self) -> Callable[..., Any]:
        """What it does, by instructions of the machine."""
        from postroad.kernels import intrinsics

        found: Callable[..., Any] = getattr(intrinsics, self._name)
        return found


class Kernel(partial):  # type: ignore[type-arg]
    """A function over arrays as machine code."""

    __slots__ = ("_is_loaded", "allocates", "function", "packs_words", "signatures")

    function: Callable[..., Any]
    signatures: tuple[str, ...]
    allocates: bool
    packs_words: bool
    _is_loaded: bool

    def __new__(
        cls, function: Callable[..., Any], signatures: tuple[str, ...], allocates: bool, packs_words: bool
    ) -> Kernel:
        self = super().__new__(cls, function)
        self.function = function
        self.signatures = signatures
        self.allocates = allocates
        self.packs_words = packs_words
        self._is_loaded = False
        self._call(self._first_call)
        KERNELS.append(self)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process it is the kernel of the same name, with machine code of its own."""
        return _of_module, (self.function.__module__, self.function.__qualname__)

    def _call(self, target: Callable[..., Any]) -> None:
        # How unpickling sets what a `partial` calls: the only way to exchange it.
        self.__setstate__((target, (), {}, None))  # type: ignore[attr-defined]

    def _first_call(self, *arguments: Any) -> Any:
        self.load()
        return self(*arguments)

    @property
    def name(self) -> str:
        """Its module and name."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @property
    def folder(self) -> str:
        """The folder of its module's machine code, by the state of the sources."""
        module = self.function.__module__
        return folders.folder_of(module, state_of(module, self.function.__code__.co_filename))

    def file(self, tag: str) -> str:
        """The name of its machine code for a target."""
        line = self.function.__code__.co_firstlineno
        return f"{self.function.__qualname__}-{line}.{tag}.{FORMAT}"

    def kept(self) -> Path | None:
        """The file of its machine code, if there is one for this machine."""
        from postroad.kernels.targets import tags

        return folders.find(self.folder, tuple(self.file(tag) for tag in tags()))

    def read(self) -> list[Compiled] | None:
        """Its machine code, if there is some for this machine."""
        from postroad.kernels.machine_code import unpacked

        path = self.kept()
        try:
            return None if path is None else unpacked(path.read_bytes())
        except (OSError, ValueError):
            return None  # Removed meanwhile, or cut off.

    @property
    def is_loaded(self) -> bool:
        """Whether its machine code is in memory."""
        return self._is_loaded

    def load(self) -> None:
        """Load its machine code, or compile it if there is none."""
        with _loading:
            if self._is_loaded:
                return
            from postroad.kernels.machine_code import linked

            parts = self.read()
            if parts is None:
                from postroad.kernels.compilation import compile_or_wait

                parts = compile_or_wait(self)
            function = self.function
            entries = linked(parts, function.__module__, function.__qualname__)
            self._call(entries[0] if len(entries) == 1 else _first_fitting(entries))
            self._is_loaded = True


def _of_module(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _first_fitting(entries: list[Callable[..., Any]]) -> Callable[..., Any]:
    """Calls the first of several signatures that fits: arguments are checked before anything is done."""
    *others, last = entries

    def call(*arguments: Any) -> Any:
        for entry in others:
            try:
                return entry(*arguments)
            except TypeError:
                pass
        return last(*arguments)

    return call
