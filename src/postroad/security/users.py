"""Who may log in: the table of logins and records of passcodes, and its text."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING

from postroad.messages.characters import first_invisible, shown
from postroad.security.errors import SecurityError
from postroad.security.passcodes import check_record

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MAX_LOGIN_BYTES", "MAX_USERS", "UNVERIFIED", "check_login", "principal_of", "read_users", "users_text"]

# As long as other names for people.
MAX_LOGIN_BYTES = 255
# Each is some 200 bytes of the file, and one more entry of a dictionary.
MAX_USERS = 100_000

UNVERIFIED = "unverified:"
"""The prefix of principals whose logins are not checked. No login may begin with it."""

_HEAD = "# Logins and hashed passcodes, written by `postroad users`. A broker reads it again on SIGHUP.\n"


def principal_of(login: str, verified: bool) -> str:
    """Who a client is, to policies, records and traces; empty for one without a login."""
    return login if verified or not login else UNVERIFIED + login


def check_login(login: str) -> None:
    """Check that a user can have this login.

    Raises:
        SecurityError: it cannot.
    """
    if not login:
        raise SecurityError("a login cannot be empty")
    if len(login.encode("utf-8", "replace")) > MAX_LOGIN_BYTES:
        raise SecurityError(f"a login has at most {MAX_LOGIN_BYTES} bytes (MAX_LOGIN_BYTES)")
    if (at := first_invisible(login, blanks=True)) is not None:
        raise SecurityError(f"login {login!r}: character {at} ({shown(login[at])}) cannot be seen; leave it out")
    if login.startswith(UNVERIFIED):
        raise SecurityError(f"login {login!r}: {UNVERIFIED} marks logins that are not verified; choose another")


def read_users(text: str) -> dict[str, str]:
    """Logins and records from the text of a users file.

    Raises:
        SecurityError: it is none; the error names the user, never a passcode or its record.
    """
    try:
        found = tomllib.loads(text).get("users", {})
    except (ValueError, RecursionError) as error:
        raise SecurityError(f"not a users file: {error}") from None
    if not isinstance(found, dict) or len(found) > MAX_USERS:
        raise SecurityError(f"not a users file: [users] is a table of {MAX_USERS:,} logins at most")
    for login, record in found.items():
        check_login(login)
        try:
            check_record(record if isinstance(record, str) else "")
        except SecurityError as error:
            raise SecurityError(f"user {login!r}: {error}") from None
    return found


def users_text(users: Mapping[str, str]) -> str:
    """The text of a users file; `read_users` gives the same users back."""
    lines = (f"{_quoted(login)} = {_quoted(record)}\n" for login, record in sorted(users.items()))
    return f"{_HEAD}[users]\n{''.join(lines)}"


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's too, and what JSON leaves plain and TOML does not, no login has.
    return json.dumps(text, ensure_ascii=False)
