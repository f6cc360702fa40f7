"""What machine code is made for: this processor, this Python and this numba.

Machine code runs on the processor that it was made for, and on others that have the same features. It calls functions
of Python and of numba's runtime, whose versions are therefore part of its name.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path

from llvmlite import binding  # type: ignore[import-untyped]

__all__ = ["BOUNDS_CHECKED", "PORTABLE", "interface", "numba_folder", "tags"]

# Index checks in all kernels: for tests, since a kernel without them reads or writes somewhere else.
BOUNDS_CHECKED = os.environ.get("NUMBA_BOUNDSCHECK", "0") not in ("", "0")

# What wheels with machine code are compiled for: the processors of the last ten years, by the level that compilers and
# distributions agree on, with the features it stands for.
PORTABLE = {"x86_64": ("x86-64-v3", ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"))}


@cache
def numba_folder() -> Path:
    """Where numba is installed, found without loading it."""
    spec = importlib.util.find_spec("numba")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("numba is not installed; kernels need its runtime: pip install numba")
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def interface() -> str:
    """Python and numba, by their versions; and whether indexes are checked."""
    numba = hashlib.sha256((numba_folder() / "_version.py").read_bytes()).hexdigest()[:8]
    python = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"
    return f"{python}-{numba}{'-checked' if BOUNDS_CHECKED else ''}"


@cache
def tags() -> tuple[str, ...]:
    """The endings of names of machine code that runs here, the best first."""
    features = binding.get_host_cpu_features()
    name = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
    asked = os.environ.get("NUMBA_CPU_FEATURES")
    described = f"{binding.get_process_triple()}:{name}:{features.flatten() if asked is None else asked}"
    own = f"{name}-{hashlib.sha256(described.encode()).hexdigest()[:8]}"
    found = [f"{own}.{interface()}"]
    level, needed = PORTABLE.get(os.uname().machine, ("", ()))
    if level and all(features.get(feature) for feature in needed):
        found.append(f"{level}.{interface()}")
    return tuple(found)
