"""`postroad users`: who may log in to a broker, in a file of its own."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from postroad.cli.output import AsJson, echo_json
from postroad.errors import PostroadError

__all__ = ["add", "list_users", "passwd", "remove"]

DEFAULT_FILE = Path("users.toml")

Login = Annotated[str, typer.Argument(metavar="LOGIN", help="The name to log in with.")]
File = Annotated[Path, typer.Option(help="The users file, which the broker's setting users_file names.")]
FromStdin = Annotated[
    bool, typer.Option("--stdin", help="Read the passcode from standard input, up to the first line end.")
]


class Hash(StrEnum):
    """How a passcode is hashed."""

    AUTO = "auto"
    SCRYPT = "scrypt"
    ARGON2ID = "argon2id"


HowHashed = Annotated[
    Hash,
    typer.Option("--hash", help=r"argon2id needs postroad\[argon2] here and at the broker; auto takes it if it can."),
]


def add(
    login: Login,
    file: File = DEFAULT_FILE,
    stdin: FromStdin = False,
    how: HowHashed = Hash.AUTO,
    as_json: AsJson = False,
) -> None:
    """Add a user; asks for the passcode without showing it. The file is made if there is none."""
    from postroad.config import changed_users
    from postroad.security import check_login

    check_login(login)
    with changed_users(file, may_begin=True) as users:
        if login in users:
            raise PostroadError(f"{login!r} is in {file} already; change the passcode with `postroad users passwd`")
        users[login] = _record(login, stdin, how)
    _tell("added", login, file, as_json)


def passwd(
    login: Login,
    file: File = DEFAULT_FILE,
    stdin: FromStdin = False,
    how: HowHashed = Hash.AUTO,
    as_json: AsJson = False,
) -> None:
    """Give a user another passcode. After SIGHUP the broker closes connections that used the old one."""
    from postroad.config import changed_users

    with changed_users(file) as users:
        _check_known(login, users, file)
        users[login] = _record(login, stdin, how)
    _tell("changed", login, file, as_json)


def remove(login: Login, file: File = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Remove a user. After SIGHUP the broker closes the user's connections."""
    from postroad.config import changed_users

    with changed_users(file) as users:
        _check_known(login, users, file)
        del users[login]
    _tell("removed", login, file, as_json)


def list_users(file: File = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """List the users, one a line, and how their passcodes are hashed."""
    from postroad.config import load_users

    for login, record in sorted(load_users(file).items()):
        method = record.split("$")[1]
        if as_json:
            echo_json({"login": login, "hash": method})
        else:
            typer.echo(f"{login}  {method}")


def _tell(done: str, login: str, file: Path, as_json: bool) -> None:
    if as_json:
        echo_json({done: login, "file": str(file)})
    else:
        typer.echo(f"{done} {login}; a running broker reads {file} again on SIGHUP")


def _check_known(login: str, users: dict[str, str], file: Path) -> None:
    if login not in users:
        raise PostroadError(f"{login!r} is not in {file}; `postroad users list` shows who is")


def _record(login: str, stdin: bool, how: Hash) -> str:
    import secrets

    from postroad.security import SALT_BYTES, best_method, hash_passcode

    method = best_method() if how is Hash.AUTO else ("scrypt" if how is Hash.SCRYPT else "argon2id")
    return hash_passcode(_passcode(login, stdin), secrets.token_bytes(SALT_BYTES), method)


def _passcode(login: str, stdin: bool) -> str:
    if stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise PostroadError("there is no terminal to ask for the passcode; give it with --stdin")
    try:
        given: str = typer.prompt(f"passcode of {login}", hide_input=True, confirmation_prompt=True)
    except typer.Abort:
        # Ctrl-C, as everywhere else; typer would end with 1.
        raise KeyboardInterrupt from None
    return given
