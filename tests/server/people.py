"""Users for tests: real records of passcodes, with costs that do not slow tests down."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from postroad.security import principal_of, users_text
from postroad.server.login_gate import WRONG
from postroad.sessions import LoginVerdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def record(passcode: str, log_n: int = 2, r: int = 1) -> str:
    """A record of a passcode, computed here from the rules of scrypt and of its text form."""
    salt = b"salt of a test"
    found = hashlib.scrypt(passcode.encode(), salt=salt, n=1 << log_n, r=r, p=1, maxmem=2**28, dklen=32)
    salt_text, hash_text = (base64.b64encode(data).decode().rstrip("=") for data in (salt, found))
    return f"$scrypt$ln={log_n},r={r},p=1${salt_text}${hash_text}"


def users_file(folder: Path, **passcodes: str) -> str:
    """A users file in a folder; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "users.toml"
    path.touch(mode=0o600)
    path.write_text(users_text({login: record(passcode) for login, passcode in passcodes.items()}), "utf-8")
    return str(path)


class PlainGate:
    """Checks logins at once, or when told to."""

    def __init__(self, later: bool = False, **passcodes: str) -> None:
        self._passcodes = passcodes
        self._later = later
        self.waiting: list[Callable[[], None]] = []

    def check(self, login: str, passcode: str, address: str, answer: Callable[[LoginVerdict], None]) -> None:
        right = self._passcodes.get(login) == passcode
        verdict = LoginVerdict("", principal_of(login, verified=True), login) if right else LoginVerdict(WRONG)
        if self._later:
            self.waiting.append(lambda: answer(verdict))
        else:
            answer(verdict)
