"""Shorter ways through numba, to the same machine code.

Half of the time that numba takes is spent on questions that it has answered before, and on passes that look for what no
kernel has. What is here leaves that out. It changes numba only while a kernel is compiled, under numba's own lock; and
it must not change what comes out: the instructions are the same, byte for byte, with and without it.
"""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"
# numba is typed in small part only, and this module is all about its inside.

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any

from numba.core import compiler, compiler_machinery, event, ir, targetconfig, typed_passes, untyped_passes
from numba.core.types.functions import BaseFunction

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FewPasses", "compare_flags_quickly", "taken"]

# The compiler makes millions of objects that stay, in graphs full of cycles; Python would look through all of them
# every few milliseconds. Never looking would take 850 megabytes for all kernels, this way it is 390.
GARBAGE_THRESHOLDS = (100_000, 50, 50)


# --- passes -----------------------------------------------------------------------------------------------------------
# Kernels have no closures, comprehensions, `with` blocks, expressions over whole arrays or branches on types: numba's
# passes for those find nothing, and each goes through all the code. A kernel that uses one of them does not compile.

_PASSES: tuple[Any, ...] = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.GenericRewrites,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.NoPythonSupportedFeatureValidation,
    typed_passes.IRLegalization,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)


class FewPasses(compiler.CompilerBase):
    """numba's compiler with the passes that kernels need."""

    def define_pipelines(self) -> list[Any]:
        """The one way from bytecode to LLVM."""
        manager: Any = compiler_machinery.PassManager("kernel")
        for each in _PASSES:
            manager.add_pass(each, each.__name__)
        manager.finalize()
        return [manager]


# --- answers that are known -------------------------------------------------------------------------------------------


def compare_flags_quickly() -> None:
    """Let numba compare its flags without spelling out all of them, which it does at every call that it types.

    Their hash is one of the names of all flags, the same for all. Flags keep what was set; all else is as by default.
    """
    kind: Any = targetconfig.TargetConfig
    names: dict[type, int] = {}

    def equal(one: Any, other: Any) -> Any:
        if one is other:
            return True
        if type(one) is not type(other):
            return NotImplemented
        mine, theirs = one._values, other._values
        if mine == theirs:
            return True
        options = one.options
        return all(
            mine.get(name, options[name].default) == theirs.get(name, options[name].default)
            for name in mine.keys() | theirs.keys()
        )

    def name(one: Any) -> int:
        found = names.get(type(one))
        if found is None:
            found = names[type(one)] = hash(tuple(sorted(one.values())))
        return found

    kind.__eq__, kind.__hash__ = equal, name


_ask: Any = BaseFunction.get_call_type
_flags: Any = targetconfig.ConfigStack.top_or_none
_answers: dict[Any, Any] = {}


def _signature(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """The signature of a call. `a + b` of two integers is looked up thousands of times, among dozens of meanings."""
    question = (function, tuple(args), tuple(sorted(kws.items())), _flags())
    found = _answers.get(question)
    if found is None:
        found = _answers[question] = _ask(function, context, args, kws)
    return found


# Classes that hold no variables of numba's code.
_without_variables: set[type] = set()


def _collect_variables(value: Any, found: list[Any]) -> None:
    kind = value.__class__
    if kind in _without_variables:
        return
    if isinstance(value, ir.Var):
        found.append(value)
    elif isinstance(value, ir.Inst):
        found.extend(value.list_vars())
    elif isinstance(value, (list, tuple)):
        for each in value:
            _collect_variables(each, found)
    elif isinstance(value, dict):
        for each in value.values():
            _collect_variables(each, found)
    else:
        _without_variables.add(kind)


def _variables(_: Any, value: Any) -> list[Any]:
    """The variables that an instruction names, without a list for each of its parts."""
    found: list[Any] = []
    _collect_variables(value, found)
    return found


def _nobody_listens(*_: Any, **__: Any) -> None:
    pass


_SHORTCUTS: tuple[tuple[Any, str, Any], ...] = (
    (BaseFunction, "get_call_type", _signature),
    (ir.Inst, "_rec_list_vars", _variables),
    (event, "start_event", _nobody_listens),
    (event, "end_event", _nobody_listens),
)


@contextlib.contextmanager
def taken() -> Iterator[None]:
    """A context in which numba takes the shortcuts. Its lock is held, so that no other thread compiles meanwhile."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in _SHORTCUTS]
    thresholds = gc.get_threshold()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    for owner, name, shortcut in _SHORTCUTS:
        setattr(owner, name, shortcut)
    try:
        yield
    finally:
        for owner, name, usual in before:
            setattr(owner, name, usual)
        gc.set_threshold(*thresholds)
