"""`postroad users`: a file of hashed passcodes that only its owner can read."""

from __future__ import annotations

import io
import json
import stat
import sys
from typing import TYPE_CHECKING

import pytest
import typer

from postroad.security import is_passcode, read_users
from tests.cli.programs import Outcome, here

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Runs `postroad users` on one file, with a text on standard input."""

    def run(*arguments: str, given: str = "") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        return here(monkeypatch, "users", *arguments, "--file", str(tmp_path / "users.toml"))

    return run


def test_ctrl_c_at_the_question_for_a_passcode_ends_as_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> str:
        raise typer.Abort

    monkeypatch.setattr(typer, "prompt", interrupted)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert here(monkeypatch, "users", "add", "ann", "--file", str(tmp_path / "users.toml")).code == 130


def test_users_are_added_listed_changed_and_removed(users: object, tmp_path: Path) -> None:
    assert callable(users)
    path = tmp_path / "users.toml"
    assert users("add", "ann", "--stdin", "--hash", "scrypt", given="first\n").code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert users("add", "bob", "--stdin", "--hash", "argon2id", given="secret").code == 0
    assert users("list").out == "ann  scrypt\nbob  argon2id\n"
    told = [json.loads(line) for line in users("list", "--json").out.splitlines()]
    assert [one["login"] for one in told] == ["ann", "bob"]
    before = read_users(path.read_text())
    assert is_passcode(before["ann"], "first")
    assert "first" not in path.read_text()
    assert users("passwd", "ann", "--stdin", "--hash", "scrypt", given="second\r\n").code == 0
    after = read_users(path.read_text())
    assert (is_passcode(after["ann"], "second"), after["bob"]) == (True, before["bob"])
    assert users("remove", "bob").code == 0
    assert list(read_users(path.read_text())) == ["ann"]
    told = [
        json.loads(users(*words, "--json", given="third").out)
        for words in (("add", "cay", "--stdin"), ("passwd", "cay", "--stdin"), ("remove", "cay"))
    ]
    assert told == [{done: "cay", "file": str(path)} for done in ("added", "changed", "removed")]
    assert [each.name for each in tmp_path.iterdir() if "new" in each.name] == []


@pytest.mark.parametrize(
    ("arguments", "given", "reason"),
    [
        (("add", "ann", "--stdin"), "x", "is in"),
        (("add", "an\u200bn", "--stdin"), "x", "U+200B"),
        (("add", "unverified:ann", "--stdin"), "x", "are not verified"),
        (("add", "eve", "--stdin"), "", "empty"),
        (("add", "eve"), "x", "--stdin"),
        (("passwd", "eve", "--stdin"), "x", "is not in"),
        (("remove", "eve"), "", "is not in"),
    ],
)
def test_mistakes_are_told_and_change_nothing(
    users: object, tmp_path: Path, arguments: tuple[str, ...], given: str, reason: str
) -> None:
    assert callable(users)
    users("add", "ann", "--stdin", "--hash", "scrypt", given="first\n")
    before = (tmp_path / "users.toml").read_bytes()
    ended = users(*arguments, given=given)
    assert (ended.code, ended.out) == (2, "")
    assert reason in ended.err
    assert (tmp_path / "users.toml").read_bytes() == before


def test_there_must_be_a_file_to_change_or_list(users: object, tmp_path: Path) -> None:
    assert callable(users)
    for arguments in (("list",), ("remove", "ann"), ("passwd", "ann", "--stdin")):
        ended = users(*arguments, given="x")
        assert (ended.code, "postroad users add" in ended.err) == (2, True)
    assert not (tmp_path / "users.toml").exists()
