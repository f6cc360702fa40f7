"""How a broker process asks the system for memory.

By default the C library gives blocks above 128 KiB back to the system as soon as they are free, and fetches them anew,
page by page, for the next read: at ten subscribers that doubles the processor time of a delivery.

Python's collector now and then looks at every object there is. A broker that has just started has 150,000, nearly all
of them code, and looking at them is a pause of some 65 ms.

Before pyarrow takes any value, it loads pandas, if that is installed, to see whether the value is one of its own. A
broker has no use for it. It would be loaded at the first commit of the record, by the thread that writes it: some 0.6
seconds of processor time that the loop has to share, 50 MB, and 10 ms for each full look of the collector.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from importlib.abc import MetaPathFinder

__all__ = ["do_without_pandas", "keep_freed_memory", "set_apart_what_stays"]

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
# What one read can make a broker write at once, several times over; and all that is kept of what is free.
KEPT_BYTES = 64 * 1024 * 1024
BLOCK_BYTES = 32 * 1024 * 1024


def keep_freed_memory() -> bool:
    """Keep up to KEPT_BYTES that are free for the next read; False where the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_TRIM_THRESHOLD, KEPT_BYTES), (_TOP_PAD, 1024 * 1024), (_MMAP_THRESHOLD, BLOCK_BYTES))
    return all(mallopt(parameter, value) == 1 for parameter, value in settings)


def set_apart_what_stays() -> None:
    """Call it when all is loaded: what is there by now stays for as long as the process, and is not looked at again."""
    gc.collect()
    gc.freeze()


def do_without_pandas() -> bool:
    """Have pyarrow find no pandas in this process; False where there is no pyarrow, or pandas is loaded already."""
    if "pandas" in sys.modules:
        return False
    try:
        import pyarrow as pa
    except ImportError:
        return False
    absence = _NoPandas()
    sys.meta_path.insert(0, absence)
    try:
        # pyarrow looks once, at the first value that it takes; `to_pandas` would look again.
        pa.array([0])
    finally:
        sys.meta_path.remove(absence)
    return True


class _NoPandas(MetaPathFinder):
    """Has Python find no pandas."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a broker does without pandas", name=fullname)
