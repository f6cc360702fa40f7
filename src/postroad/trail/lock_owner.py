"""Who writes to a trail now, as the files of their locks say (`locks/broker=N.lock`).

For people, and for commands that look for a broker to ask. Nothing is decided by it: a broker that was killed leaves
its file behind, and process ids repeat.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LockOwner", "lock_path", "read_owner", "trail_owners"]

# An owner has some hundred bytes; whatever else is in the file is not read.
_MOST_BYTES = 4_096
_FOLDER = "locks"


class LockOwner(msgspec.Struct):
    """A broker that holds the lock of a directory.

    Attributes:
        pid: its process.
        host: its machine.
        since: when it took the lock, in words.
        broker: its number.
        token: tells it from every other owner.
        beat: rises every second where the file system has no locks.
        admin: the address of its admin endpoint; empty without, and until that is open.
        persist_seconds: its record is written at least so often; 0 while that is not known.
    """

    pid: int
    host: str
    since: str
    broker: int
    token: str
    beat: int = 0
    admin: str = ""
    persist_seconds: float = 0.0

    def __str__(self) -> str:
        return f"broker {self.broker}, process {self.pid} on {self.host}, since {self.since}"


def lock_path(root: Path, broker: int) -> Path:
    """The lock of a broker's number on a trail."""
    return root / _FOLDER / f"broker={broker}.lock"


def read_owner(file: int) -> LockOwner | None:
    """The owner in an open file; None if there is none, or what is there is not an owner."""
    try:
        return msgspec.json.decode(os.pread(file, _MOST_BYTES, 0), type=LockOwner)
    except (OSError, msgspec.MsgspecError):
        return None


def trail_owners(root: Path) -> dict[int, LockOwner]:
    """The brokers that write to a trail, or did so until they were killed, by their numbers."""
    found: dict[int, LockOwner] = {}
    for path in sorted((root / _FOLDER).glob("broker=*.lock")):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            owner = read_owner(file)
        finally:
            os.close(file)
        if owner is not None:
            found[owner.broker] = owner
    return found
