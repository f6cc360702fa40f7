"""Who may read what Postroad writes: its owner alone, or a group too.

The mode of a directory applies to everything below it. With mode 0700 only its owner can read it: directories in it get
0700, files 0600. With mode 2750 its group can read it too: directories in it get 2750, files 0640, and the set-group-ID
bit makes the system give both to that group, whichever program writes them. So only the program that makes the top of a
tree needs to know the group, and a compaction by another process follows it.

A file gets its mode when it is made, never afterwards, so others can never open it in between.
"""

from __future__ import annotations

import grp
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from postroad.trail.errors import TrailError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "PRIVATE_FILE",
    "AccessError",
    "append_to",
    "claim",
    "close_to_others",
    "create",
    "make_folder",
    "make_folders",
    "write_private",
]

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
SHARED_FOLDER, SHARED_FILE = 0o2750, 0o640


class AccessError(TrailError):
    """A directory cannot be given to a group."""


def is_shared(folder: str | Path) -> bool:
    """Whether the group of a directory may read what is put into it."""
    return stat.S_IMODE(os.stat(folder).st_mode) == SHARED_FOLDER


def make_folder(folder: Path) -> bool:
    """Make a directory that the readers of its parent can read; returns whether this call made it.

    Raises:
        OSError: it cannot be made.
    """
    try:
        folder.mkdir(PRIVATE_FOLDER)
    except FileExistsError:
        if folder.is_dir():
            return False
        raise
    # The system took group and set-group-ID from the parent; what others may do is still nothing.
    folder.chmod(SHARED_FOLDER if is_shared(folder.parent) else PRIVATE_FOLDER)
    return True


def make_folders(folder: Path) -> None:
    """Make a directory, and those above it that are missing.

    Raises:
        OSError: one of them cannot be made.
    """
    if not folder.is_dir():
        make_folders(folder.parent)
        make_folder(folder)


def create(path: Path, flags: int = 0) -> int:
    """Make a file for those who may read its directory, or open it to be written; returns its descriptor.

    Args:
        path: the file. A symbolic link is not followed.
        flags: of `os.open`, beside those to make and to write.

    Raises:
        OSError: it cannot be made.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, PRIVATE_FILE)
    try:
        if is_shared(path.parent):
            os.fchmod(descriptor, SHARED_FILE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def append_to(path: Path) -> int:
    """Open a file, such as a log, to write at its end; returns its descriptor."""
    return create(path, os.O_APPEND)


def write_private(path: Path, data: bytes) -> None:
    """Put a file in place as a whole; it replaces one of the same name, whatever its permissions.

    Raises:
        OSError: it cannot be written.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    with suppress(FileNotFoundError):
        fresh.unlink()
    try:
        with os.fdopen(create(fresh, os.O_EXCL), "wb") as file:
            file.write(data)
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def close_to_others(tree: Path) -> None:
    """Give a tree that another program made the modes that its parent asks for; what belongs to others stays."""
    shared = is_shared(tree.parent)
    for place, _, files in os.walk(tree):
        with suppress(PermissionError):
            os.chmod(place, SHARED_FOLDER if shared else PRIVATE_FOLDER)
        for name in files:
            path = os.path.join(place, name)
            with suppress(PermissionError):
                if not os.path.islink(path):
                    os.chmod(path, SHARED_FILE if shared else PRIVATE_FILE)


def claim(folder: Path, group: str | None = None) -> str:
    """Make the top of a tree, for its owner alone or for a group too.

    One that is empty and this user's own is treated as if it were new. Any other is left as it is: it may be meant so,
    and what is in it has modes of its own.

    Args:
        folder: the directory.
        group: the name of the group that may read it, or None.

    Returns: What is wrong with an existing directory, and the command that fixes it; empty if nothing is wrong.

    Raises:
        AccessError: there is no such group, or this user is not in it.
        OSError: the directory cannot be made.
    """
    try:
        number = -1 if group is None else grp.getgrnam(group).gr_gid
    except KeyError:
        raise AccessError(f"there is no group {group!r} on this machine; make it, or name another") from None
    make_folders(folder.parent)
    make_folder(folder)
    found = folder.stat()
    if _is_ours(folder, found):
        if group is not None:
            try:
                os.chown(folder, -1, number)
            except PermissionError:
                raise AccessError(
                    f"{folder} cannot be given to the group {group!r}, of which this user is not a member; "
                    "add the user to it, or name another"
                ) from None
        folder.chmod(PRIVATE_FOLDER if group is None else SHARED_FOLDER)
        found = folder.stat()
    return _complaint(folder, found, group, number)


def _is_ours(folder: Path, found: os.stat_result) -> bool:
    # A directory with the sticky bit is for many, such as the one for temporary files.
    return found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX and not any(folder.iterdir())


def _complaint(folder: Path, found: os.stat_result, group: str | None, number: int) -> str:
    mode = stat.S_IMODE(found.st_mode)
    if group is not None and (mode, found.st_gid) != (SHARED_FOLDER, number):
        return (
            f"{folder} was there before, and the group {group} cannot read all that is put into it; give it to them "
            f"with: chgrp -R {group} {folder} && chmod -R u=rwX,g=rX,o= {folder} && "
            f"find {folder} -type d -exec chmod g+s {{}} +"
        )
    if group is None and mode & 0o007:
        return f"{folder} was there before, and others can look into it; close it with: chmod -R go= {folder}"
    return ""
