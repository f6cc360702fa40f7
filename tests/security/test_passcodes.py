"""Passcodes are stored as slow hashes, and known again."""

from __future__ import annotations

import pytest

from postroad.security import SecurityError, hash_passcode, is_passcode, passcodes
from postroad.security.passcodes import MAX_PASSCODE_BYTES, check_record
from tests.server.people import record

SALT = bytes(range(16))


@pytest.mark.parametrize("method", ["scrypt", "argon2id"])
def test_a_passcode_is_known_again_and_no_other_is(method: passcodes.Method) -> None:
    stored = hash_passcode("gehe\u00efm wort", SALT, method)
    assert stored.startswith(f"${method}$")
    assert "geh" not in stored
    check_record(stored)
    assert is_passcode(stored, "gehe\u00efm wort")
    assert not is_passcode(stored, "geheim wort")
    assert not is_passcode(stored, "")


def test_the_same_passcode_is_stored_differently_each_time() -> None:
    assert hash_passcode("x", SALT) != hash_passcode("x", bytes(16))


def test_records_of_other_programs_are_read() -> None:
    # Of argon2-cffi itself, and of scrypt with other costs.
    import argon2

    stored = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=2).hash("secret")
    assert (is_passcode(stored, "secret"), is_passcode(stored, "secre")) == (True, False)
    assert (is_passcode(record("secret"), "secret"), is_passcode(record("secret"), "")) == (True, False)


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        ("secret", "not a record of a passcode"),
        ("", "not a record"),
        (record("a")[:-1] + "!", "not a record"),
        ("$scrypt$ln=21,r=8,p=1$AAAA$AAAA", "out of range"),
        ("$scrypt$ln=14,r=8,p=0$AAAA$AAAA", "out of range"),
        ("$argon2id$v=19$m=9999999,t=1,p=1$AAAA$AAAA", "out of range"),
        ("$scrypt$ln=16,r=1,p=1$AAAA$AAAA", "out of range"),
        ("$argon2id$v=19$m=8,t=1,p=2$AAAA$AAAA", "out of range"),
        ("$scrypt$ln=2,r=1,p=1$A$AAAA", "damaged"),
        ("$scrypt$ln=2,r=1,p=1$AAAAAAAAAAAAAA$AAAA", "too short"),
        ("$argon2id$v=19$m=8,t=1,p=1$AAAA$AAAAAAAAAAAAAAAAAAAAAAAAAA", "too short"),
        ("$2b$12$abcdefghijklmnopqrstuv", "not a record"),
    ],
)
def test_what_is_no_record_is_refused_without_showing_it(stored: str, reason: str) -> None:
    for refuse in (check_record, lambda text: is_passcode(text, "x")):
        with pytest.raises(SecurityError, match=reason) as caught:
            refuse(stored)
        assert not stored or stored not in str(caught.value)


def test_a_record_that_needs_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = hash_passcode("x", SALT, "argon2id")
    monkeypatch.setattr(passcodes, "find_spec", lambda name: None)
    with pytest.raises(SecurityError, match=r"postroad\[argon2\]"):
        check_record(stored)
    assert passcodes.best_method() == "scrypt"


@pytest.mark.parametrize(
    ("passcode", "reason"), [("", "empty"), ("x" * (MAX_PASSCODE_BYTES + 1), "MAX_PASSCODE_BYTES")]
)
def test_a_passcode_that_cannot_be_used_is_refused(passcode: str, reason: str) -> None:
    with pytest.raises(SecurityError, match=reason):
        hash_passcode(passcode, SALT)
