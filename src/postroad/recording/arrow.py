"""Loads pyarrow so that it allocates with the C library.

The allocator it brings gives memory back to the system soon after it is free. The thread that writes the record every
second would then fetch the same pages again each time, hundreds for a megabyte of files, and each giving back disturbs
the loop's processor too. The C library keeps what is free (`memory.py`). pyarrow looks at the choice when it is loaded,
and never again: so this comes before all that loads it.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec

__all__ = ["POOL_VARIABLE", "load_arrow"]

# Chooses pyarrow's memory allocator; a value that an operator has set is left alone.
POOL_VARIABLE = "ARROW_DEFAULT_MEMORY_POOL"


def load_arrow() -> bool:
    """Load pyarrow with the C library's allocator; False if it is missing, loaded already, or set otherwise."""
    if POOL_VARIABLE in os.environ or "pyarrow" in sys.modules or find_spec("pyarrow") is None:
        return False
    os.environ[POOL_VARIABLE] = "system"
    try:
        import_module("pyarrow")
    finally:
        # Programs that this one starts choose for themselves.
        del os.environ[POOL_VARIABLE]
    return True


load_arrow()
