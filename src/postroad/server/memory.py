"""How a broker process asks the system for memory.

By default the C library gives blocks above 128 KiB back to the system as soon as they are free, and fetches them again,
page by page, for the next read: at ten subscribers that doubles the processor time of a delivery.

Python's collector now and then looks at every object there is. A broker that has just started has 150,000, nearly all
of them code, and looking at them is a pause of some 65 ms.
"""

from __future__ import annotations

import ctypes
import gc

__all__ = ["keep_freed_memory", "set_apart_what_stays"]

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
# What one read can make a broker write at once, several times over; and all that is kept of what is free.
KEPT_BYTES = 64 * 1024 * 1024
BLOCK_BYTES = 32 * 1024 * 1024


def keep_freed_memory() -> bool:
    """Keep up to KEPT_BYTES that are free for the next read; False if the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_TRIM_THRESHOLD, KEPT_BYTES), (_TOP_PAD, 1024 * 1024), (_MMAP_THRESHOLD, BLOCK_BYTES))
    return all(mallopt(parameter, value) == 1 for parameter, value in settings)


def set_apart_what_stays() -> None:
    """Call it when all is loaded: what is there by now stays for as long as the process, and is not looked at again."""
    gc.collect()
    gc.freeze()
