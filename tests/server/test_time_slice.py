"""The loop asks for short slices of its processor, and what it starts does not have them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from postroad.server.time_slice import SLICE_NANOSECONDS, ask_for_short_slices

# Linux from 6.12 on grants them, on processors whose number of the system call is known.
RELEASE = tuple(int("".join(filter(str.isdigit, part)) or 0) for part in platform.release().split(".")[:2])
GRANTS = sys.platform == "linux" and RELEASE >= (6, 12) and platform.machine() in ("x86_64", "aarch64")

# Prints what was answered, and the slices and nice values of this thread and of one that it starts.
PROGRAM = """
import ctypes, os, platform, struct, threading
from postroad.server.time_slice import ask_for_short_slices

def attributes():
    room = ctypes.create_string_buffer(48)
    number = {"x86_64": 315, "aarch64": 275}[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, 0, room, 48, 0) == 0
    fields = struct.unpack("IIQiIQQQ", room.raw)
    return fields[5], fields[3]

os.nice(3)
usual = attributes()[0]
print(ask_for_short_slices())
print(*attributes())
thread = threading.Thread(target=lambda: print(attributes()[0] == usual, attributes()[1]))
thread.start()
thread.join()
"""


@pytest.mark.skipif(not GRANTS, reason="this system has no slices to ask for")
def test_the_thread_that_asks_gets_short_slices_and_its_threads_have_usual_ones() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    # It stays as nice as it was; the tests themselves may run under `nice`, up to the last value there is.
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + 3, 19)
    assert run.stdout.splitlines() == ["True", f"{SLICE_NANOSECONDS} {nice}", f"True {nice}"]


def test_a_policy_that_an_operator_chose_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_BATCH)
    assert not ask_for_short_slices()


def test_a_processor_without_a_known_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert not ask_for_short_slices()
