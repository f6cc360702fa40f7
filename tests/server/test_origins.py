"""Which web pages may connect."""

from __future__ import annotations

import pytest

from postroad.server.origins import allows_origin


@pytest.mark.parametrize(
    ("origin", "host", "tls", "allowed"),
    [
        (None, "broker.example:15674", False, True),
        ("http://127.0.0.1:8000", "127.0.0.1:15674", False, True),
        ("http://localhost", "localhost:15674", False, True),
        ("http://[::1]:8000", "[::1]:15674", False, True),
        ("https://192.0.2.7", "192.0.2.7:15674", False, True),
        ("https://evil.example", "127.0.0.1:15674", False, False),
        ("https://evil.example", "broker.example:15674", True, False),
        # A name that its owner lets lead to this machine: only a certificate tells it from ours.
        ("http://evil.example", "evil.example:15674", False, False),
        ("https://broker.example", "broker.example:15674", True, True),
        ("https://BROKER.example", "broker.example", True, True),
        ("null", "127.0.0.1:15674", False, False),
        ("", "", False, False),
        ("http://[", "[", False, False),
        ("http://127.0.0.1.evil.example", "127.0.0.1", False, False),
    ],
)
def test_pages_of_the_same_host_may_connect_and_others_not(
    origin: str | None, host: str, tls: bool, allowed: bool
) -> None:
    assert allows_origin(origin, host, [], tls) == allowed


def test_listed_pages_may_connect_and_a_star_lists_all() -> None:
    listed = ["https://ours.example"]
    assert allows_origin("https://ours.example", "broker", listed, False)
    assert not allows_origin("https://ours.example:8443", "broker", listed, False)
    assert not allows_origin("https://other.example", "broker", listed, False)
    assert allows_origin("https://other.example", "broker", ["*"], False)
