"""The users file and the token of the admin endpoint: what is accepted, what is refused, and what a failure leaves."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from postroad.config import ConfigError
from postroad.config.users_file import changed_users, load_token, load_users, save_users
from postroad.security import SALT_BYTES, best_method, hash_passcode

if TYPE_CHECKING:
    from pathlib import Path

RECORD = hash_passcode("secret", bytes(SALT_BYTES), best_method())
TOKEN = "0123456789abcdef0123456789abcdef"


def test_users_that_were_saved_are_loaded_and_readable_by_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    save_users(path, {"ann": RECORD})
    assert load_users(path) == {"ann": RECORD}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["users.toml"]


def test_a_users_file_that_is_missing_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    with pytest.raises(
        ConfigError, match=r"users_file .*users\.toml: cannot be read .*postroad users add LOGIN --file"
    ):
        load_users(path)


@pytest.mark.parametrize(
    ("data", "reason"), [(b"\xff\xfe", "not text"), (b"users = 3", "users_file"), (b"x" * 200, "more than 100 bytes")]
)
def test_a_users_file_that_is_not_one_is_refused(
    tmp_path: Path, data: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.config.users_file.MAX_FILE_BYTES", 100)
    path = tmp_path / "users.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=reason):
        load_users(path)


def test_users_that_cannot_be_written_are_refused_and_the_old_ones_stay(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    save_users(path, {"ann": RECORD})
    # A folder in the place of the new file: nothing can be written beside the old one.
    (tmp_path / ".users.toml.new").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        save_users(path, {"bob": RECORD})
    assert load_users(path) == {"ann": RECORD}
    with pytest.raises(ConfigError, match="cannot be changed"), changed_users(path / "below-a-file"):
        pass


def test_a_change_that_fails_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    save_users(path, {"ann": RECORD})

    def change() -> None:
        with changed_users(path) as users:
            users["bob"] = RECORD
            raise KeyError("carol")

    with pytest.raises(KeyError, match="carol"):
        change()
    assert load_users(path) == {"ann": RECORD}


def test_users_that_did_not_change_are_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    save_users(path, {"ann": RECORD})
    before = path.stat().st_ino
    with changed_users(path):
        pass
    assert path.stat().st_ino == before
    with changed_users(path) as users:
        users["bob"] = RECORD
    assert path.stat().st_ino != before
    assert sorted(load_users(path)) == ["ann", "bob"]


def test_a_file_of_users_begins_only_where_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    with pytest.raises(ConfigError, match="cannot be read"), changed_users(path):
        pass
    assert not path.exists()
    with changed_users(path, may_begin=True):
        pass
    assert load_users(path) == {}


def test_a_token_may_end_its_line(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    assert load_token(path) == TOKEN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "short",
        "x" * 1_025,
        "0123456789abcdef 0123456789abcdef",
        # No client could send these: a header has one line.
        "0123456789abcdef\n0123456789abcdef",
        "0123456789abcdef\r0123456789abcdef",
        "0123456789abcdef\t0123456789abcdef",
        "0123456789abcdef\x000123456789abcdef",
        "0123456789abcdef\x7f",
        "ééééééééééééééééé",
    ],
)
def test_a_token_that_no_client_could_send_or_that_is_short_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text, "utf-8", newline="")
    with pytest.raises(ConfigError, match="16 to 1,024 ASCII characters without blanks"):
        load_token(path)
