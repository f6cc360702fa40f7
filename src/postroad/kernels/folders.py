"""Where machine code is kept.

It is read from, in this order: what came with the package; beside the sources; the user's cache. It is written to the
first of the last two that can be written: an image may hold compiled kernels in a place that is read-only when it runs.
`NUMBA_CACHE_DIR` names one folder for both instead. `POSTROAD_KERNELS` names one more folder to read from, before the
others: the driver of a cluster sends its workers what it has compiled.

Machine code is run as it is found. Beside the sources it is trusted as they are, and what a driver sends as its sources
are, which come the same way. A cache elsewhere is read only if it belongs to this user or to root and nobody else can
write to it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import stat
import tempfile
import time
import uuid
from functools import cache
from pathlib import Path

__all__ = ["RECEIVED_VARIABLE", "find", "folder_of", "forget_older", "is_lasting", "store_folder", "write"]

log = logging.getLogger("postroad.kernels")

# Older states are spared for a week: who goes back to another branch need not compile again, and all kernels of one
# state take some megabytes.
SPARED_SECONDS = 7 * 24 * 3600
# Between the name of a module and its state.
MARK = "@"
# Names the folder with machine code that a driver sent, for its workers.
RECEIVED_VARIABLE = "POSTROAD_KERNELS"

_PACKAGE = Path(__file__).resolve().parent.parent
# What a wheel with machine code brings along.
SHIPPED = _PACKAGE / "machine_code"
BESIDE = _PACKAGE / "__pycache__" / "kernels"


def _chosen() -> Path | None:
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen) if chosen else None


def _user_folder() -> Path | None:
    """The user's cache; None for a user without a home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "postroad" / "kernels"
    except RuntimeError:
        return None


def _writable(folder: Path) -> bool:
    """Whether a folder, or the nearest one above it that exists, can be written."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def _is_private(path: Path) -> bool:
    """Whether only this user and root can change a file or folder; true of one that is not there yet."""
    if not hasattr(os, "geteuid"):
        return True
    try:
        seen = path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return seen.st_uid in (0, os.geteuid()) and not seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def _is_trusted(place: Path) -> bool:
    """Whether a cache may be used; says so once where it may not."""
    if _is_private(place):
        return True
    log.warning(
        "postroad: compiled kernels in %s are not used: others than this user can write there. "
        "Make it a folder of this user alone (chown, chmod go-w), or set NUMBA_CACHE_DIR to one",
        place,
    )
    return False


@cache
def _own_folder() -> Path:
    """A folder of this process, where neither the sources nor a home can be written, as in many containers."""
    # Machine code is run as it is found: never from a folder that others may write to.
    folder = tempfile.mkdtemp(prefix="postroad-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def store_folder() -> Path:
    """Where machine code is written."""
    chosen = _chosen()
    if chosen is not None:
        return chosen if _is_trusted(chosen) else _own_folder()
    if _writable(BESIDE):
        return BESIDE
    user = _user_folder()
    if user is not None and _is_trusted(user):
        with contextlib.suppress(OSError):
            user.mkdir(parents=True, exist_ok=True)
            if os.access(user, os.W_OK):
                return user
    return _own_folder()


@cache
def _places() -> tuple[Path, ...]:
    """Where machine code may be found."""
    received = os.environ.get(RECEIVED_VARIABLE)
    first = (Path(received).absolute(), SHIPPED) if received else (SHIPPED,)
    chosen = _chosen()
    if chosen is not None:
        return (*first, chosen) if _is_trusted(chosen) else first
    user = _user_folder()
    return (*first, BESIDE, user) if user is not None and _is_trusted(user) else (*first, BESIDE)


def is_lasting() -> bool:
    """Whether what is written will be found by other processes."""
    return store_folder() in _places()


def folder_of(module: str, state: str) -> str:
    """The folder of the kernels of a module in one state."""
    return f"{module}{MARK}{state}"


def find(folder: str, names: tuple[str, ...]) -> Path | None:
    """The first of these files that there is, in a folder of machine code."""
    for name in names:
        for place in _places():
            path = place / folder / name
            is_cache = place in (_chosen(), _user_folder())
            if path.is_file() and (not is_cache or (_is_private(path.parent) and _is_private(path))):
                return path
    return None


def write(folder: str, name: str, content: bytes) -> None:
    """Keep a file whole or not at all: other processes may read and write it at the same time."""
    place = store_folder() / folder
    # Not by the umask, which may let a group write: nobody would read it then.
    for each in (place.parent, place):
        if not each.exists():
            each.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):
                each.chmod(0o755)
    unfinished = place / f"{name}.{uuid.uuid4().hex[:16]}"
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            # The name must not reach the disk before the content.
            os.fsync(file.fileno())
        unfinished.replace(place / name)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def forget_older(module: str, folder: str) -> None:
    """Remove the folders of older states of a module."""
    for other in store_folder().glob(f"{module}{MARK}*"):
        # Another process that starts now may remove the same folders.
        with contextlib.suppress(FileNotFoundError):
            if other.name != folder and time.time() - other.stat().st_mtime > SPARED_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
