"""Machine code as callable functions, without the compiler.

Loading numba takes a second and a hundred megabytes, and a process that runs compiled kernels needs little of it: the
linker of LLVM, which llvmlite brings, and the C functions that kernels call, which are in small extension modules of
numba. These are loaded here by their files, so that numba itself is not.

A file of machine code has one object file for each signature of a kernel, with a line of JSON before them that says how
long each is, which symbols to call, and its checksum.
"""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import json
import sys
import threading
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import binding  # type: ignore[import-untyped]

from postroad.kernels.targets import numba_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["NDARRAY_SYMBOL", "Compiled", "linked", "packed", "unpacked"]

# By which checked arguments name the type of arrays; its address differs in each process.
NDARRAY_SYMBOL = "postroad_ndarray_type"

_lock = threading.Lock()
_kept: list[Any] = []


class Compiled(NamedTuple):
    """One signature of a kernel as machine code.

    Attributes:
        wrapper: the symbol of the function that Python calls.
        environment: the symbol of its pointer to the environment, which numba's functions have.
        code: an object file.
    """

    wrapper: str
    environment: str
    code: bytes


def packed(parts: Iterable[Compiled]) -> bytes:
    """The content of a file of machine code."""
    parts = list(parts)
    head = [
        {
            "wrapper": part.wrapper,
            "environment": part.environment,
            "size": len(part.code),
            "sha256": hashlib.sha256(part.code).hexdigest(),
        }
        for part in parts
    ]
    return json.dumps(head).encode() + b"\n" + b"".join(part.code for part in parts)


def unpacked(content: bytes) -> list[Compiled]:
    """What a file of machine code holds; ValueError if it is not as it was written.

    Machine code is run as it is: what a power cut left of a file, or a bad disk made of it, would end the process.
    """
    head, _, rest = content.partition(b"\n")
    found = []
    try:
        for part in json.loads(head):
            code, rest = rest[: part["size"]], rest[part["size"] :]
            if hashlib.sha256(code).hexdigest() != part["sha256"]:
                raise ValueError("damaged")
            found.append(Compiled(part["wrapper"], part["environment"], code))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a file of machine code: {error!r}") from error
    if not found or rest:
        raise ValueError("cut off")
    return found


def _extension(name: str) -> Any:
    """An extension module of numba, loaded without the package around it."""
    if name in sys.modules:
        return sys.modules[name]
    place = numba_folder().joinpath(*name.split(".")[1:])
    for suffix in EXTENSION_SUFFIXES:
        path = place.with_name(place.name + suffix)
        if path.exists():
            spec = spec_from_file_location(name, path)
            assert spec is not None
            assert spec.loader is not None
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise ImportError(f"{name} is not in {place.parent}; is numba installed completely?")


class _Linker:
    """Puts object files into the memory of this process."""

    def __init__(self) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine(jit=True)
        module = binding.parse_assembly("")
        self._engine = binding.create_mcjit_compiler(module, machine)
        self._functions = _extension("numba._dynfunc")
        self._add_symbols()

    def _add_symbols(self) -> None:
        """What machine code calls by name: functions of numba's runtime, and Python's errors."""
        for helpers in (_extension("numba._helperlib").c_helpers, self._functions.c_helpers):
            for name, address in helpers.items():
                binding.add_symbol(f"numba_{name}", address)
        memory = _extension("numba.core.runtime._nrt_python")
        if "numba.core.runtime.nrt" not in sys.modules:
            memory.memsys_use_cpython_allocator()
        for name, address in memory.c_helpers.items():
            binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
        for value in vars(builtins).values():
            if isinstance(value, type) and issubclass(value, BaseException):
                binding.add_symbol(f"PyExc_{value.__name__}", id(value))
        binding.add_symbol("_Py_NoneStruct", id(None))
        binding.add_symbol(NDARRAY_SYMBOL, id(np.ndarray))

    def link(self, part: Compiled, module: Any, name: str) -> Callable[..., Any]:
        """The function of an object file, for Python to call."""
        self._engine.add_object_file(binding.ObjectFileRef.from_data(part.code))
        self._engine.finalize_object()
        environment = self._functions.Environment(vars(module))
        place = self._engine.get_global_value_address(part.environment)
        ctypes.c_void_p.from_address(place).value = id(environment)
        # The machine code points to it and does not count as a reference.
        _kept.append(environment)
        address = self._engine.get_function_address(part.wrapper)
        function: Callable[..., Any] = self._functions.make_function(
            module, name, f"compiled kernel {name}", address, environment, ()
        )
        return function


@cache
def _linker() -> _Linker:
    return _Linker()


def linked(parts: Iterable[Compiled], module: str, name: str) -> list[Callable[..., Any]]:
    """Functions that Python can call, one for each signature."""
    with _lock:
        return [_linker().link(part, sys.modules[module], name) for part in parts]
