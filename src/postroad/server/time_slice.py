"""How soon the loop gets its processor back when another thread has it.

A thread that is woken may have to wait until the one that runs has used up its time slice, and Linux looks at that with
its timer only, every 4 ms for example. On a processor that the loop shares with the thread that writes the record, or
with other programs, that is a pause of some milliseconds at each commit, for messages that take a tenth of one. Since
Linux 6.12 a thread can ask for a shorter slice: it gets no larger a part of the processor, but it gets it sooner, at
once when it is woken. Earlier kernels ignore the request.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

__all__ = ["SLICE_NANOSECONDS", "ask_for_short_slices"]

# The least that the kernel grants. A turn of the loop takes about as long.
SLICE_NANOSECONDS = 100_000

# `struct sched_attr` of sched_setattr(2), its first version: size, policy, flags, nice, priority, runtime, deadline,
# period.
_ATTRIBUTES = struct.Struct("IIQiIQQQ")
# Threads and programs that this one starts have slices as usual: they are to give way to the loop.
_RESET_ON_FORK = 1
# C libraries have had a function for it only since 2025; the numbers of the system call.
_SYSTEM_CALLS = {"x86_64": 314, "aarch64": 274}


def ask_for_short_slices() -> bool:
    """Ask for short slices for this thread; False if the system cannot, or an operator chose another policy."""
    number = _SYSTEM_CALLS.get(platform.machine())
    if number is None or not hasattr(os, "sched_getscheduler") or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, SLICE_NANOSECONDS, 0, 0)
    system_call = getattr(ctypes.CDLL(None), "syscall", None)
    # A sandbox that forbids the call answers with an error; the loop then waits as long as others do.
    return system_call is not None and system_call(number, 0, ctypes.create_string_buffer(wanted, len(wanted)), 0) == 0
