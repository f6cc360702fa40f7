"""The text of a users file, and what a login may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.messages.characters import first_invisible
from postroad.security import UNVERIFIED, SecurityError, check_login, principal_of, read_users, users_text
from tests.server.people import record

logins = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda text: first_invisible(text, blanks=True) is None and not text.startswith(UNVERIFIED)
)


@given(st.dictionaries(logins, st.sampled_from([record("a"), record("b")]), max_size=4))
def test_users_are_read_as_they_were_written(users: dict[str, str]) -> None:
    assert read_users(users_text(users)) == users


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        ("", "empty"),
        ("x" * 256, "MAX_LOGIN_BYTES"),
        ("an\u200bn", r"U\+200B"),
        ("an\nn", r"U\+000A"),
        (f"{UNVERIFIED}ann", "are not verified"),
    ],
)
def test_a_login_that_would_mislead_is_refused(login: str, reason: str) -> None:
    with pytest.raises(SecurityError, match=reason):
        check_login(login)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("users = 3", "table"),
        ("[users", "not a users file"),
        ('[users]\nann = "secret"', "user 'ann': this is not a record"),
        ("[users]\nann = 3", "user 'ann': this is not a record"),
        (f'[users]\n"unverified:ann" = "{record("a")}"', "are not verified"),
    ],
)
def test_what_is_no_users_file_is_refused_without_showing_passcodes(text: str, reason: str) -> None:
    with pytest.raises(SecurityError, match=reason) as caught:
        read_users(text)
    assert "secret" not in str(caught.value)


def test_no_unproved_login_can_pass_for_a_proved_one() -> None:
    assert principal_of("ann", verified=True) == "ann"
    assert principal_of("ann", verified=False) == "unverified:ann"
    assert principal_of("", verified=False) == ""
    # What a client may claim, and what a user may be called, never meet.
    with pytest.raises(SecurityError):
        check_login(principal_of("ann", verified=False))
