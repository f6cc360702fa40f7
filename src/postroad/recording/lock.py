"""Locks of directories that one broker alone may use, and who holds them.

The lock is the system's (`flock`): it ends with the process that holds it, however that ends, and with its machine. The
file says who holds it, for people; nothing is decided by that, because process ids repeat in containers and a directory
may have come from another machine.

Some file systems have no such locks. There the holder writes a new number to the file every second, and a process that
wants the lock watches the file: while it changes, the holder lives; when it stops changing, the holder is dead.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from postroad.errors import PostroadError
from postroad.trail import LockOwner, read_owner
from postroad.trail.access import create, make_folders

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DirectoryLock", "LockedError"]

log = logging.getLogger("postroad.server")

# What systems answer where a file system has no locks, or the service for them does not run.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
# Without locks: how often the holder writes, and for how long a file must not change until its holder counts as dead.
# A busy machine keeps a thread from running for a second or two at worst.
BEAT_SECONDS = 1.0
WATCH_SECONDS = 6.0


class LockedError(PostroadError):
    """Another process uses the directory."""


class DirectoryLock:
    """A lock on a directory for one broker.

    Args:
        path: the file of the lock; its directory is made if missing.
        broker: who wants it.
        held: what to say when another has it, and what to do; `{owner}` in it becomes who that is.
    """

    def __init__(self, path: Path, broker: int, held: str) -> None:
        self.path = path
        self._held = held
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        self._owner = LockOwner(os.getpid(), socket.gethostname(), since, broker, secrets.token_hex(8))
        self._file = -1
        self._beats: threading.Thread | None = None
        self._ends = threading.Event()

    def claim(self) -> None:
        """Take the lock; nothing happens where this has it already and its file is still in place.

        Waits for `WATCH_SECONDS` on file systems without locks, if an owner is named in the file.

        Raises:
            LockedError: another process has it.
            OSError: the file cannot be made or written.
        """
        if self._file >= 0 and self._is_in_place(self._file):
            return
        self.release()
        make_folders(self.path.parent)
        while self._file < 0:
            os.close(create(self.path))
            file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                locks = self._lock(file)
                # The file may have been deleted in the meantime; a lock on it would be worthless.
                if self._is_in_place(file):
                    if not locks:
                        self._watch(file)
                    _write(file, self._owner)
                    file, self._file = -1, file
            finally:
                if file >= 0:
                    os.close(file)
        if not locks:
            self._ends.clear()
            self._beats = threading.Thread(target=self._beat_for_ever, name="postroad-lock", daemon=True)
            self._beats.start()

    def release(self) -> None:
        """Let go of it. The file stays, without an owner: deleting it would let two have it."""
        self._ends.set()
        if self._beats is not None:
            self._beats.join()
            self._beats = None
        if self._file >= 0:
            file, self._file = self._file, -1
            with suppress(OSError):
                os.ftruncate(file, 0)
            os.close(file)

    def tell(self, admin: str, persist_seconds: float) -> None:
        """Write into the file where its owner can be asked, and how often that writes its record."""
        self._owner.admin, self._owner.persist_seconds = admin, persist_seconds
        if self._file >= 0:
            with suppress(OSError):
                _write(self._file, self._owner)

    def _locked(self, owner: LockOwner | None) -> LockedError:
        return LockedError(self._held.replace("{owner}", "another process" if owner is None else str(owner)))

    def _lock(self, file: int) -> bool:
        """Lock a file; returns whether its file system has locks."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._locked(read_owner(file)) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return False
        return True

    def _is_in_place(self, file: int) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(file))
        except FileNotFoundError:
            return False

    def _watch(self, file: int) -> None:
        """Without locks: make sure that the holder in the file is dead and that no other process takes it now."""
        owner = read_owner(file)
        if owner is not None and owner.token != self._owner.token:
            self._stands_still(file, owner, WATCH_SECONDS)
        _write(file, self._owner)
        self._stands_still(file, self._owner, 2 * BEAT_SECONDS)

    def _stands_still(self, file: int, owner: LockOwner, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(BEAT_SECONDS / 10, seconds))
            now = read_owner(file)
            if now is not None and (now.token, now.beat) != (owner.token, owner.beat):
                raise self._locked(now)

    def _beat_for_ever(self) -> None:
        while not self._ends.wait(BEAT_SECONDS):
            try:
                there = read_owner(self._file)
                if there is not None and there.token != self._owner.token:
                    # This process stood still for so long that another took it for dead.
                    log.error("lock taken by another process", extra={"path": str(self.path), "owner": str(there)})
                    return
                self._owner.beat += 1
                _write(self._file, self._owner)
            except OSError as error:
                log.warning("lock not renewed", extra={"path": str(self.path), "reason": str(error)})


def _write(file: int, owner: LockOwner) -> None:
    data = msgspec.json.encode(owner) + b"\n"
    os.pwrite(file, data, 0)
    os.ftruncate(file, len(data))
