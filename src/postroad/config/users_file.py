"""The users file and the token of the admin endpoint, on disk: read as a whole, written whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from postroad.config.broker import ConfigError
from postroad.security import SecurityError, read_users, users_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["changed_users", "load_token", "load_users", "save_users"]

# A hundred thousand users of some 200 bytes each fit several times over.
MAX_FILE_BYTES = 128 * 1024 * 1024
# What cannot be guessed: 16 random bytes in hexadecimal have 32 characters.
MIN_TOKEN_CHARACTERS = 16
MAX_TOKEN_CHARACTERS = 1_024


def load_users(path: Path) -> dict[str, str]:
    """The users of a file.

    Raises:
        ConfigError: it cannot be read, or is not a users file. A broker never starts without a file that it names.
    """
    text = _read(path, "users_file", "make it with `postroad users add LOGIN --file " + str(path) + "`")
    try:
        return read_users(text)
    except SecurityError as error:
        raise ConfigError(f"users_file {path}: {error}") from None


def save_users(path: Path, users: Mapping[str, str]) -> None:
    """Write a users file that only its owner can read. A crash leaves the old one or the new one.

    Raises:
        ConfigError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.unlink(missing_ok=True)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(users_text(users))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None


@contextlib.contextmanager
def changed_users(path: Path, *, may_begin: bool = False) -> Iterator[dict[str, str]]:
    """The users of a file, to change; written when the block ends without an error. One program at a time.

    Args:
        path: the file.
        may_begin: begin with no users if there is no file.
    """
    try:
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be changed ({error.strerror})") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        users = {} if may_begin and not path.exists() else load_users(path)
        before = dict(users)
        yield users
        if users != before or not path.exists():
            save_users(path, users)
    finally:
        os.close(lock)


def load_token(path: Path) -> str:
    """The token that the admin endpoint asks for.

    Raises:
        ConfigError: it cannot be read, or is too short to be one.
    """
    token = _read(path, "admin_token_file", "write some random text into it, for its owner only").strip()
    # One word of a header: a client could not send a line end, a tab or a control character.
    sendable = token.isascii() and token.isprintable() and " " not in token
    if not sendable or not MIN_TOKEN_CHARACTERS <= len(token) <= MAX_TOKEN_CHARACTERS:
        raise ConfigError(
            f"admin_token_file {path}: a token has {MIN_TOKEN_CHARACTERS} to {MAX_TOKEN_CHARACTERS:,} ASCII characters "
            "without blanks"
        )
    return token


def _read(path: Path, setting: str, advice: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(f"{setting} {path}: more than {MAX_FILE_BYTES:,} bytes")
        text = data.decode()
    except OSError as error:
        raise ConfigError(f"{setting} {path}: cannot be read ({error.strerror}); {advice}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{setting} {path}: not text") from None
    return text
