"""Processes by number and start time: a number alone may belong to another process by the time it is used."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import msgspec

__all__ = ["ProcessMark", "is_alive", "mark_of", "send_signal", "started_by_ps"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")
# The fields of /proc/PID/stat after the name, which ends at the last bracket: the first is the state, the 20th the
# start in clock ticks since the machine was started.
_STATE, _START = 0, 19
_ENDED = ("Z", "X")


class ProcessMark(msgspec.Struct, frozen=True):
    """A process: its number, and its start time as text, which is only compared."""

    pid: int
    started: str


def mark_of(pid: int) -> ProcessMark | None:
    """The mark of a running process; None if there is none, or if it has ended and nobody has waited for it yet."""
    started = _from_proc(pid) if _BOOT.exists() else started_by_ps(pid)
    return None if started is None else ProcessMark(pid, started)


def is_alive(mark: ProcessMark) -> bool:
    """Whether this very process still runs."""
    return mark_of(mark.pid) == mark


def send_signal(mark: ProcessMark, number: signal.Signals) -> bool:
    """Send a signal to this very process, never to another of the same number; False when it is gone.

    If the system has handles for processes, no other process can take the number between the check and the signal.
    """
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "pidfd_open"):
            handle = os.pidfd_open(mark.pid)
            try:
                if is_alive(mark):
                    signal.pidfd_send_signal(handle, number)
                    return True
            finally:
                os.close(handle)
        elif is_alive(mark):
            os.kill(mark.pid, number)
            return True
    return False


def _from_proc(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        boot = _BOOT.read_text("ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE] in _ENDED else f"{boot}:{fields[_START]}"


def started_by_ps(pid: int) -> str | None:
    """Return when a process started, where there is no /proc; None if it has ended."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    state, _, started = (
        subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().partition(" ")
    )
    return None if not started or state.startswith(_ENDED) else started.strip()
