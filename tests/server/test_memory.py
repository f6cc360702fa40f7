"""A broker keeps what it freed for the next read, and its collector looks at no more than it has to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import postroad

# Loaded by its path: the room around it would bring numba along.
MODULE = Path(postroad.__file__).parent / "server" / "memory.py"

# Frees a large block and tells how much of it the process still holds.
PROGRAM = """
import numpy, resource, runpy
keep_freed_memory = runpy.run_path({path!r})["keep_freed_memory"]

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

{call}
before = held()
block = numpy.ones(24 * 2**20, numpy.uint8)
del block
print(held() - before)
"""


def kept(call: str) -> int:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(path=str(MODULE), call=call)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(run.stdout)


def test_a_freed_block_is_kept_after_the_call_and_given_back_without_it() -> None:
    assert kept("assert keep_freed_memory()") > 20 * 2**20
    assert kept("") < 4 * 2**20


COLLECTION = """
import gc, runpy
set_apart = runpy.run_path({path!r})["set_apart_what_stays"]
code = [[] for _ in range(50_000)]
set_apart()
looked_at = len(gc.get_objects())
loop = []
loop.append(loop)
del loop
print(looked_at, gc.collect())
"""


def test_what_was_loaded_is_not_looked_at_again_and_new_garbage_is_collected() -> None:
    program = COLLECTION.format(path=str(MODULE))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    looked_at, collected = map(int, run.stdout.split())
    assert looked_at < 1_000
    assert collected == 1
