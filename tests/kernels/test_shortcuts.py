"""Shortcuts through numba: the same machine code, and numba as it was afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

from numba.core import compiler, event
from numba.core.types.functions import BaseFunction

from postroad.kernels import shortcuts

# Prints digests of the instructions of some kernels, as the compiler makes them with all its shortcuts or with none.
PROGRAM = """
import contextlib, hashlib, sys
from llvmlite import binding
from numba.core.compiler import Compiler
from numba.core.dispatcher import Dispatcher
from postroad.kernels import compiler
from postroad.messages.lookup import _gather
from postroad.messages.scanner import decode_messages
from postroad.filters.hashes import _hash_ids
from postroad.matching.registry import shape_key

if sys.argv[1] == "usual":
    compiler.taken = contextlib.nullcontext
    compiler.FewPasses = Compiler
    compiler._Dispatcher.get_call_template = Dispatcher.get_call_template
for kernel in (_gather, decode_messages, _hash_ids, shape_key):
    for part in compiler.compiled(kernel):
        sections = binding.ObjectFileRef.from_data(part.code).sections()
        print(kernel.name, [hashlib.sha256(each.data()).hexdigest() for each in sections if each.is_text()])
"""


def instructions(way: str) -> str:
    return subprocess.run([sys.executable, "-c", PROGRAM, way], capture_output=True, text=True, check=True).stdout


def test_shortcuts_give_the_machine_code_of_the_usual_way() -> None:
    found = instructions("short")
    assert found.count("[") == 4
    assert "[]" not in found
    assert found == instructions("usual")


def test_numba_is_as_it_was_when_a_kernel_is_compiled() -> None:
    def found() -> list[Any]:
        return [BaseFunction.get_call_type, event.start_event, event.end_event, gc.get_threshold()]

    before = found()
    with shortcuts.taken():
        assert all(one != other for one, other in zip(found(), before, strict=True))
    assert found() == before


def test_flags_are_equal_by_what_they_say() -> None:
    flags: Any = compiler.Flags
    shortcuts.compare_flags_quickly()
    plain, same, other = flags(), flags(), flags()
    same.nrt = flags.options["nrt"].default
    other.nrt = not same.nrt
    assert plain == same
    assert hash(plain) == hash(same)
    assert plain != other
    assert plain != "flags"
