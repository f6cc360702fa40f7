"""The compiler: numba, made to give object files instead of functions of this process.

numba compiles every function into a library of its own, makes machine code of it at once, and links the libraries of
functions that it calls. Pieces of kernels need no machine code: what counts is the kernel that they are compiled into.
So the libraries here are only optimised, and the one of a kernel is written out as an object file at the end.

The function that Python calls is numba's too. numba finds out in its dispatcher which signature fits, and its wrapper
trusts that: it looks at the size of an array's items and nothing else. Here nothing comes before the wrapper, so it
checks arrays itself: number of dimensions, kind and size of items, byte order, contiguity, alignment and whether it can
be written. A wrong array is a TypeError, and no kernel runs.
"""

# mypy: disable-error-code="no-untyped-call,untyped-decorator"
# numba is typed in small part only, and this module is all about its inside.

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numba
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import njit
from numba.core import boxing, cgutils, codegen, dispatcher, extending, pythonapi, registry, typeinfer
from numba.core.compiler_lock import global_compiler_lock
from numba.core.typing.typeof import typeof_impl
from numba.np import numpy_support

from postroad.kernels.functions import BUNDLES, Device, Kernel
from postroad.kernels.machine_code import NDARRAY_SYMBOL, Compiled
from postroad.kernels.shortcuts import FewPasses, compare_flags_quickly, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["callable_device", "compiled", "prepare"]

_types: Any = numba.types

# The numpy error model drops the test for a zero divisor that Python's would add to each division: kernels test the
# divisors that can be zero themselves.
_OPTIONS: dict[str, Any] = {"nopython": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

# Without numba's runtime, arrays are borrowed and not counted. Counting is an atomic operation for every array passed
# or viewed, which in a loop over candidates costs ten times the work itself; in return, nothing can be allocated.
_BORROWED: dict[str, Any] = {**_OPTIONS, "_nrt": False}
_PIECE: dict[str, Any] = {**_BORROWED, "no_cpython_wrapper": True}

# A library of a kernel, unlike one of a piece, has the function that Python calls.
_WRAPPER_PREFIX = "_ZN7cpython"


# --- libraries without machine code -----------------------------------------------------------------------------------


class _Library(codegen.JITCodeLibrary):
    """Code that is optimised, and written out when asked for."""

    _codegen: _Codegen

    def get_pointer_to_function(self, name: str) -> int:
        return 0  # Nothing of it runs in this process.

    def add_ir_module(self, ir_module: Any) -> None:
        """Take in what numba made, as it is: a kernel is verified when it is whole."""
        module = binding.parse_assembly(cgutils.normalize_ir_text(str(ir_module)))
        module.name = ir_module.name
        module.data_layout = self._codegen._data_layout
        self._final_module.link_in(module)

    def finalize(self) -> None:
        """Finish it: a kernel takes in all its pieces, each of them once, and is optimised; a piece stays as it is."""
        self._raise_if_finalized()
        if any(function.name.startswith(_WRAPPER_PREFIX) for function in self._final_module.functions):
            self._codegen._check_llvm_bugs()
            for piece in self._pieces({}):
                self._final_module.link_in(piece._get_module_for_linking(), preserve=True)
            passes, builder = self._codegen._module_pass_manager(slp_vectorize=self._codegen.packs_words)
            passes.run(self._final_module, builder)
            self._final_module.verify()
            self._verify_declare_only_symbols()
        self._finalized = True

    def _pieces(self, found: dict[Any, None]) -> dict[Any, None]:
        """The libraries that this one needs, directly or not."""
        for library in self._linking_libraries:
            if library not in found:
                found[library] = None
                # One of numba's own is whole: it has taken in what it needs.
                if isinstance(library, _Library):
                    library._pieces(found)
        return found

    def object_file(self) -> bytes:
        self._ensure_finalized()
        return cast("bytes", self._codegen._tm.emit_object(self._final_module))


class _Codegen(codegen.JITCPUCodegen):
    """As numba's for functions of this process, so that object files are for the same memory layout."""

    _library_class = _Library
    # Whether the kernel that is compiled now packs words (`_packing`).
    packs_words = False

    def _add_module(self, module: Any) -> None:
        pass

    def set_env(self, env_name: str, env: Any) -> None:
        pass


class _Target(registry.CPUTarget):
    """numba's target for this processor, with these libraries."""

    @property
    def typing_context(self) -> Any:
        return registry.cpu_target.typing_context

    @property
    def target_context(self) -> Any:
        return _context()


@cache
def _context() -> Any:
    base: Any = registry.cpu_target.target_context
    base.refresh()
    return base.subtarget(_internal_codegen=_Codegen("postroad"))


def prepare() -> None:
    """Set up what every kernel needs, before the first."""
    _context()
    _Dispatcher.targetdescr.typing_context.refresh()


class _Dispatcher(dispatcher.Dispatcher):
    targetdescr = _Target("cpu")

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(function, targetoptions=dict(options), pipeline_class=FewPasses)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile it for the types of arguments, not for the values of constants, which LLVM puts in where it pays."""
        plain = {name: _types.unliteral(kind) for name, kind in kws.items()}
        return super().get_call_template(tuple(map(_types.unliteral, args)), plain)


compare_flags_quickly()

# What a loop seldom does is laid out after the loop (`rare`, decision 0018); LLVM would do it by a profile only.
binding.set_option("postroad", "-force-loop-cold-block")


# --- pieces and kernels as numba sees them ----------------------------------------------------------------------------


@cache
def _piece(device: Device) -> Any:
    """A device for the kernels that call it: compiled for what they call it with."""
    return _Dispatcher(device.function, {**_PIECE, "forceinline": True} if device.inlined else _PIECE)


@cache
def _called(kernel: Kernel) -> Any:
    """A kernel for other kernels that call it: with its own signatures, to which their arguments are converted."""
    options = {**(_OPTIONS if kernel.allocates else _BORROWED), "no_cpython_wrapper": True}
    return _with_signatures(kernel, options)


def _with_signatures(kernel: Kernel, options: dict[str, Any]) -> Any:
    made: Any = _Dispatcher(kernel.function, options)
    with typeinfer.register_dispatcher(made):
        for signature in kernel.signatures:
            made.compile(_evaluated(signature))
        made.disable_compile()
    return made


@cache
def callable_device(device: Device) -> Callable[..., Any]:
    """A device for Python, as a test calls it."""
    compile_it: Any = njit
    made = compile_it(nogil=True, error_model="numpy", _nrt=False, forceinline=device.inlined)(device.function)
    return cast("Callable[..., Any]", made)


_typeof: Any = typeof_impl


@_typeof.register(Device)
def _type_of_device(value: Device, context: Any) -> Any:
    function = value.function
    if isinstance(function, extending._Intrinsic):
        # Called as it is: through another function, a branch could not use its result directly.
        typing: Any = registry.cpu_target.typing_context
        typing.refresh()
        return typing._lookup_global(function)
    return _types.Dispatcher(_piece(value))


@_typeof.register(Kernel)
def _type_of_kernel(value: Kernel, context: Any) -> Any:
    return _types.Dispatcher(_called(value))


def _evaluated(notation: str) -> Any:
    # The notation is Python: `int64[::1]` subscripts a type. It comes from our own sources only.
    names = dict(vars(_types))
    for name, (kind, fields) in BUNDLES.items():
        if name in notation:
            names[name] = _types.NamedTuple(_evaluated(f"({fields},)"), kind)
    return eval(notation, {"__builtins__": {}}, names)


# --- arrays that are checked ------------------------------------------------------------------------------------------
# The layout of an array object and of its description, the same since numpy 1.7 on machines of 64 bits.
_TYPE_AT, _DIMENSIONS_AT, _DESCRIPTION_AT, _FLAGS_AT = 8, 24, 56, 64
_KIND_AT, _BYTE_ORDER_AT = 24, 26
_C_CONTIGUOUS, _F_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x2, 0x100, 0x400
_CONTIGUOUS = {"C": _C_CONTIGUOUS, "F": _F_CONTIGUOUS, "A": 0}

_BYTE, _NUMBER, _POINTER = ir.IntType(8), ir.IntType(32), ir.IntType(8).as_pointer()


def _field(builder: Any, base: Any, offset: int, kind: Any) -> Any:
    return builder.load(cgutils.pointer_add(builder, base, offset, return_type=kind.as_pointer()))


def _is_array(c: Any, thing: Any) -> Any:
    """Whether it is an array, or of a class below that of arrays."""
    builder = c.builder
    try:
        wanted = builder.module.get_global(NDARRAY_SYMBOL)
    except KeyError:
        wanted = ir.GlobalVariable(builder.module, _BYTE, NDARRAY_SYMBOL)
    wanted = builder.bitcast(wanted, _POINTER)
    actual = _field(builder, thing, _TYPE_AT, _POINTER)
    subtype = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_NUMBER, [_POINTER, _POINTER]), "PyType_IsSubtype"
    )
    return builder.icmp_signed("!=", builder.call(subtype, [actual, wanted]), _NUMBER(0))


def _fits(c: Any, typ: Any, array: Any) -> Any:
    """Whether an array has the dimensions, kind of items, byte order and flags of a type."""
    builder = c.builder
    flags = _CONTIGUOUS[typ.layout] | _ALIGNED | (_WRITEABLE if typ.mutable else 0)
    description = _field(builder, array, _DESCRIPTION_AT, _POINTER)
    kind = ord(numpy_support.as_dtype(typ.dtype).kind)
    actual = _field(builder, array, _FLAGS_AT, _NUMBER)
    tests = [
        builder.icmp_signed("==", _field(builder, array, _DIMENSIONS_AT, _NUMBER), _NUMBER(typ.ndim)),
        builder.icmp_signed("==", _field(builder, description, _KIND_AT, _BYTE), _BYTE(kind)),
        builder.icmp_signed("!=", _field(builder, description, _BYTE_ORDER_AT, _BYTE), _BYTE(ord(">"))),
        builder.icmp_signed("==", builder.and_(actual, _NUMBER(flags)), _NUMBER(flags)),
    ]
    together = tests[0]
    for test in tests[1:]:
        together = builder.and_(together, test)
    return together


def _unbox_checked(typ: Any, thing: Any, c: Any) -> Any:
    """An array of Python as a kernel takes it; an error unless it is of the type."""
    builder = c.builder
    native = c.context.make_array(typ)(c.context, builder)
    pointer = native._getpointer()
    failed = cgutils.alloca_once_value(builder, cgutils.true_bit)
    with builder.if_then(_is_array(c, thing)), builder.if_then(_fits(c, typ, thing), likely=True):
        adapt = c.pyapi.nrt_adapt_ndarray_from_python if c.context.enable_nrt else c.pyapi.numba_array_adaptor
        code = adapt(thing, builder.bitcast(pointer, c.pyapi.voidptr))
        size = native.itemsize.type(numpy_support.as_dtype(typ.dtype).itemsize)
        other_size = builder.icmp_unsigned("!=", native.itemsize, size)
        builder.store(builder.or_(cgutils.is_not_null(builder, code), other_size), failed)
    wrong = builder.load(failed)
    with builder.if_then(wrong, likely=False):
        c.pyapi.err_set_string("PyExc_TypeError", f"this kernel takes {typ} here, and got something else")
    return pythonapi.NativeValue(builder.load(pointer), is_error=wrong)


@contextlib.contextmanager
def _checked_arrays() -> Iterator[None]:
    """A context in which wrappers check arrays. Other threads do not compile at the same time."""
    functions: dict[Any, Any] = cast("Any", pythonapi)._unboxers.functions
    assert functions[_types.Array] is boxing.unbox_array
    with global_compiler_lock:
        before = functions[_types.Array]
        functions[_types.Array] = _unbox_checked
        try:
            yield
        finally:
            functions[_types.Array] = before


@contextlib.contextmanager
def _packing(packs_words: bool) -> Iterator[None]:
    """A context in which kernels pack words or not. Other threads do not compile at the same time."""
    with global_compiler_lock:
        codegen: Any = _context().codegen()
        codegen.packs_words = packs_words
        try:
            yield
        finally:
            codegen.packs_words = False


def compiled(kernel: Kernel) -> list[Compiled]:
    """The machine code of a kernel, for each of its signatures."""
    with _checked_arrays(), _packing(kernel.packs_words), taken():
        made = _with_signatures(kernel, _OPTIONS if kernel.allocates else _BORROWED)
        found = []
        for result in made.overloads.values():
            description = result.fndesc
            if result.environment.consts:
                raise TypeError(f"{kernel.name} needs objects of this process, which cannot be kept on disk")
            name = made.targetctx.get_env_name(description)
            found.append(Compiled(description.llvm_cpython_wrapper_name, name, result.library.object_file()))
        return found
