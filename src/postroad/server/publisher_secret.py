"""A secret on disk by which a broker knows publishers of an earlier process of its own again."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from postroad.server.reservation import ReservationError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["publisher_secret"]

NAME = "publisher-secret"
SECRET_BYTES = 32


def publisher_secret(directory: Path) -> bytes:
    """The secret of a data directory, which is made if there is none; nobody else may read it.

    Raises:
        ReservationError: it can be neither read nor made.
    """
    path = directory / NAME
    try:
        if path.exists() and len(found := path.read_bytes()) == SECRET_BYTES:
            return found
        made, scratch = secrets.token_bytes(SECRET_BYTES), path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(scratch, flags, 0o600), "wb") as file:
            file.write(made)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        raise ReservationError(f"{path}: cannot be read or made ({error}); make the data directory writable") from error
    return made
