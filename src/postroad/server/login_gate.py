"""Checks logins: off the event loop, a bounded number at once, with delays after failures.

A correct passcode is remembered as a keyed hash while its record stays, so that a client that connects again is let in
at once, even while its address or login is delayed because of failures of others.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
import secrets
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from postroad.errors import PostroadError
from postroad.security import (
    MAX_LOGIN_BYTES,
    SALT_BYTES,
    LoginDelays,
    best_method,
    hash_passcode,
    is_passcode,
    principal_of,
)
from postroad.sessions import LoginVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroad.sessions import Audit

__all__ = ["Gate"]

log = logging.getLogger("postroad.server")

# Each check takes some 20 MiB and a fraction of a second of a processor, which the loop needs too.
CHECKS_AT_ONCE = 2
# Checks that wait for their turn: the last one is still done within a few seconds, before `connect_seconds`.
MOST_CHECKS = 32
# Of them, those from one address.
MOST_CHECKS_PER_ADDRESS = 8

WRONG = "login or passcode is wrong"
NO_LOGIN = "this broker asks for a login and its passcode, and CONNECT has no login"


class Gate:
    """The logins of one broker.

    Args:
        users: logins and records of passcodes; None lets every client in, unverified.
        timer: milliseconds that only go forward.
        audit: logs and counts refusals.
    """

    def __init__(self, users: Mapping[str, str] | None, timer: Callable[[], int], audit: Audit) -> None:
        self._users = users
        self._timer = timer
        self._audit = audit
        self._delays = LoginDelays()
        self._key = secrets.token_bytes(32)
        self._known: dict[str, bytes] = {}
        self._checks: Counter[str] = Counter()
        self._executor: ThreadPoolExecutor | None = None
        # Unknown logins are checked against a record too, so that timing does not reveal which logins exist.
        self._nobody = ""

    @property
    def users(self) -> Mapping[str, str] | None:
        """Those who may log in."""
        return self._users

    def replace_users(self, users: Mapping[str, str]) -> None:
        """Replace the users; sessions that are open stay."""
        self._users = users
        self._nobody = ""
        self._known = {login: digest for login, digest in self._known.items() if login in users}

    async def stop(self) -> None:
        """Stop checking; waits for checks that are under way, which cannot be stopped."""
        if self._executor is not None:
            await asyncio.to_thread(self._executor.shutdown, wait=True, cancel_futures=True)

    def check(self, login: str, passcode: str, address: str, answer: Callable[[LoginVerdict], None]) -> None:
        """Check a login, and call `answer`, now or later, on the loop."""
        if len(login.encode()) > MAX_LOGIN_BYTES:
            answer(LoginVerdict(f"the login has more than {MAX_LOGIN_BYTES} bytes (limit MAX_LOGIN_BYTES)"))
            return
        users = self._users
        if users is None:
            answer(LoginVerdict("", principal_of(login, verified=False)))
            return
        record = users.get(login)
        if record is not None and self._is_known(login, passcode, record):
            answer(LoginVerdict("", principal_of(login, verified=True), login))
            return
        now = self._timer()
        if (wait := self._delays.refused_for(address, now)) > 0:
            self._audit.refused("login delayed", address=address, wait_ms=wait, **_who(login, record))
            seconds = math.ceil(wait / 1_000)
            answer(LoginVerdict(f"too many logins from this address were wrong; try again in {seconds} s", again=True))
        elif self._checks.total() >= MOST_CHECKS or self._checks[address] >= MOST_CHECKS_PER_ADDRESS:
            self._audit.refused("login delayed", address=address, checks=self._checks.total(), **_who(login, record))
            text = "the broker is checking as many logins as it can; try again in some seconds"
            answer(LoginVerdict(text, again=True))
        else:
            self._checks[address] += 1
            check = _Check(login, passcode, address, record, answer)
            asyncio.get_running_loop().call_later(self._delays.wait_for(login, now) / 1_000, self._begin, check)

    def _begin(self, check: _Check) -> None:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(CHECKS_AT_ONCE, "postroad-logins")
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, self._is_right, check)
        except RuntimeError:
            # The broker is stopping, and every connection closing with it.
            self._done(check)
            return
        future.add_done_callback(lambda done: self._finish(check, done))

    def _is_right(self, check: _Check) -> bool:
        """Whether the passcode is right; runs in a worker thread."""
        if check.record is None:
            if not self._nobody:
                some = next(iter((self._users or {}).values()), None)
                self._nobody = some or hash_passcode(
                    secrets.token_hex(), secrets.token_bytes(SALT_BYTES), best_method()
                )
            is_passcode(self._nobody, check.passcode)
            return False
        return is_passcode(check.record, check.passcode)

    def _finish(self, check: _Check, done: asyncio.Future[bool]) -> None:
        self._done(check)
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            log.error("login not checked", extra={"reason": str(error)}, exc_info=error)
            text = str(error) if isinstance(error, PostroadError) else "internal error: the login could not be checked"
            check.answer(LoginVerdict(text))
            return
        # The users may have been replaced in the meantime; then a match with the old record does not count.
        current = (self._users or {}).get(check.login)
        if done.result() and check.record is not None and current == check.record:
            self._known[check.login] = self._digest(check.login, check.passcode, check.record)
            check.answer(LoginVerdict("", principal_of(check.login, verified=True), check.login))
            return
        self._delays.failed(check.address, check.login, self._timer())
        self._audit.refused("login refused", address=check.address, **_who(check.login, check.record))
        check.answer(LoginVerdict(WRONG if check.login else NO_LOGIN))

    def _done(self, check: _Check) -> None:
        self._checks[check.address] -= 1
        if not self._checks[check.address]:
            del self._checks[check.address]

    def _is_known(self, login: str, passcode: str, record: str) -> bool:
        known = self._known.get(login)
        return known is not None and hmac.compare_digest(known, self._digest(login, passcode, record))

    def _digest(self, login: str, passcode: str, record: str) -> bytes:
        return hmac.digest(self._key, "\0".join((record, login, passcode)).encode(), hashlib.sha256)


class _Check(NamedTuple):
    """A login that is being checked."""

    login: str
    passcode: str
    address: str
    record: str | None
    answer: Callable[[LoginVerdict], None]


def _who(login: str, record: str | None) -> dict[str, object]:
    """The login for the log if it is known: an unknown one may be a passcode in the wrong field."""
    return {"login": login if record is not None else None, "known": record is not None}
