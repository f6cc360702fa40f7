"""Stored passcodes: slow hashes, so a stolen file does not reveal passcodes.

A record is a text in the form that password libraries share: the method, its costs, a salt, the hash. Two methods:

- `scrypt`, which Python brings along, so that a plain install works;
- `argon2id`, the better known choice today, by the library argon2-cffi (`postroad[argon2]`). It is taken for new
  passcodes where it is installed.

A record says its own method and costs, so that both can stand in one file and costs can be raised for new passcodes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from importlib.util import find_spec
from typing import Literal

from postroad.security.errors import SecurityError

__all__ = ["MAX_PASSCODE_BYTES", "SALT_BYTES", "Method", "best_method", "check_record", "hash_passcode", "is_passcode"]

Method = Literal["scrypt", "argon2id"]

SALT_BYTES = 16
HASH_BYTES = 32
# What is read at least: argon2 asks for 8 and 4; a hash of less than 16 could be met by chance.
MIN_SALT_BYTES, MIN_HASH_BYTES = 8, 16
# Longer ones cannot come in a CONNECT frame.
MAX_PASSCODE_BYTES = 4 * 1024

# 16 MiB and some 0.2 s of one processor: OWASP's recommendation for scrypt with this little memory, which several
# checks at once have to share with the broker.
SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P = 14, 8, 5
# 19 MiB, two passes, one thread: OWASP's recommendation for argon2id.
ARGON2_KIB, ARGON2_PASSES, ARGON2_THREADS = 19 * 1024, 2, 1

# The most that a record may ask for: a file with a slip in it must not stop the broker for minutes.
MAX_LOG_N, MAX_R, MAX_P = 20, 32, 16
MAX_ARGON2_KIB, MAX_ARGON2_PASSES, MAX_ARGON2_THREADS = 1024 * 1024, 32, 16

_BASE64 = r"([A-Za-z0-9+/]{1,200})"
_SCRYPT = re.compile(rf"\$scrypt\$ln=([0-9]{{1,2}}),r=([0-9]{{1,2}}),p=([0-9]{{1,2}})\${_BASE64}\${_BASE64}")
_ARGON2 = re.compile(rf"\$argon2id\$v=19\$m=([0-9]{{1,7}}),t=([0-9]{{1,2}}),p=([0-9]{{1,2}})\${_BASE64}\${_BASE64}")


def best_method() -> Method:
    """The method for new passcodes here."""
    return "argon2id" if find_spec("argon2") is not None else "scrypt"


def hash_passcode(passcode: str, salt: bytes, method: Method = "scrypt") -> str:
    """A record of a passcode.

    Args:
        passcode: what the user will show.
        salt: SALT_BYTES random bytes, new for each record.
        method: how.

    Raises:
        SecurityError: the passcode is empty or too long, or the library of the method is missing.
    """
    secret = passcode.encode()
    if not secret:
        raise SecurityError("a passcode cannot be empty")
    if len(secret) > MAX_PASSCODE_BYTES:
        raise SecurityError(f"a passcode has at most {MAX_PASSCODE_BYTES:,} bytes (MAX_PASSCODE_BYTES)")
    if method == "scrypt":
        found = _scrypt(secret, salt, SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P)
        return f"$scrypt$ln={SCRYPT_LOG_N},r={SCRYPT_R},p={SCRYPT_P}${_text(salt)}${_text(found)}"
    found = _argon2(secret, salt, ARGON2_KIB, ARGON2_PASSES, ARGON2_THREADS, HASH_BYTES)
    return f"$argon2id$v=19$m={ARGON2_KIB},t={ARGON2_PASSES},p={ARGON2_THREADS}${_text(salt)}${_text(found)}"


def check_record(record: str) -> None:
    """Check that `is_passcode` will be able to read a record.

    Raises:
        SecurityError: it is none, asks for more than is granted, or needs a library that is not installed.
    """
    _read(record)


def is_passcode(record: str, passcode: str) -> bool:
    """Whether a passcode is that of a record. Takes a fraction of a second of a processor, without Python's lock.

    Raises:
        SecurityError: as `check_record`.
    """
    method, costs, salt, expected = _read(record)
    secret = passcode.encode()[: MAX_PASSCODE_BYTES + 1]
    compute = _scrypt if method == "scrypt" else _argon2
    return hmac.compare_digest(compute(secret, salt, *costs, len(expected)), expected)


def _read(record: str) -> tuple[Method, tuple[int, int, int], bytes, bytes]:
    for method, pattern, most in (
        ("scrypt", _SCRYPT, (MAX_LOG_N, MAX_R, MAX_P)),
        ("argon2id", _ARGON2, (MAX_ARGON2_KIB, MAX_ARGON2_PASSES, MAX_ARGON2_THREADS)),
    ):
        if (found := pattern.fullmatch(record)) is None:
            continue
        costs = int(found[1]), int(found[2]), int(found[3])
        # What the methods themselves ask for: N < 2^(16 r), and 8 KiB for each thread.
        beyond = costs[0] >= 16 * costs[1] if method == "scrypt" else costs[0] < 8 * costs[2]
        if beyond or any(not 1 <= cost <= limit for cost, limit in zip(costs, most, strict=True)):
            raise SecurityError(f"the costs in a passcode's record are out of range ({method}: at most {most})")
        if method == "argon2id" and find_spec("argon2") is None:
            raise SecurityError(
                "a passcode is hashed with argon2id, which needs the library argon2-cffi: "
                "pip install 'postroad[argon2]', or set the passcode anew here with `postroad users passwd`"
            )
        chosen: Method = "scrypt" if method == "scrypt" else "argon2id"
        salt, hashed = _bytes(found[4]), _bytes(found[5])
        if len(salt) < MIN_SALT_BYTES or len(hashed) < MIN_HASH_BYTES:
            raise SecurityError("the salt or the hash of a passcode's record is too short; set the passcode anew")
        return chosen, costs, salt, hashed
    raise SecurityError("this is not a record of a passcode; set the passcode with `postroad users passwd`")


def _scrypt(secret: bytes, salt: bytes, log_n: int, r: int, p: int, size: int = HASH_BYTES) -> bytes:
    n = 1 << log_n
    # OpenSSL refuses more than 32 MiB unless told how much it takes.
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, maxmem=128 * r * (n + p + 4), dklen=size)


def _argon2(secret: bytes, salt: bytes, kib: int, passes: int, threads: int, size: int) -> bytes:
    try:
        from argon2.low_level import Type, hash_secret_raw
    except ImportError:
        raise SecurityError("argon2id needs the library argon2-cffi: pip install 'postroad[argon2]'") from None
    return hash_secret_raw(
        secret, salt, time_cost=passes, memory_cost=kib, parallelism=threads, hash_len=size, type=Type.ID
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii").rstrip("=")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise SecurityError("the salt or the hash of a passcode's record is damaged; set the passcode anew") from None
