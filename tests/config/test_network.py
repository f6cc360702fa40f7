"""Settings of a network: what links to other machines need, and which keys fit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from postroad.config import NetworkConfig
from postroad.config.network import check_network, is_distant, is_loopback
from postroad.errors import PostroadError

NEAR = {"number": 2, "port": 5, "host": "127.0.0.1"}
FAR = {"number": 2, "port": 5, "host": "192.0.2.7"}
KEYS: dict[str, Any] = {"key": "1.key", "members": [{"number": 1, "key": "a"}, {"number": 2, "key": "b"}]}
TLS: dict[str, Any] = {"tls": {"certificate": "c", "key": "k", "ca": "a"}}


def network(**settings: Any) -> NetworkConfig:
    return msgspec.convert({"neighbours": [NEAR], **settings}, NetworkConfig)


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),
        ("192.0.2.7", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
    ],
)
def test_an_address_is_this_machines_own_or_not(host: str, own: bool) -> None:
    assert is_loopback(host) is own


@pytest.mark.parametrize("settings", [{"neighbours": [FAR]}, {"host": "0.0.0.0"}, {"host": ""}])
def test_another_machine_needs_tls_and_keys(settings: dict[str, Any]) -> None:
    assert is_distant(network()) is None
    check_network(network(), 1)
    assert is_distant(network(**settings)) is not None
    with pytest.raises(PostroadError, match=r"so links need TLS; set network\.tls"):
        check_network(network(**settings, **KEYS), 1)
    with pytest.raises(PostroadError, match=r"so brokers need keys; set network\.key"):
        check_network(network(**settings, **TLS), 1)
    check_network(network(**settings, **TLS, **KEYS), 1)


def test_whoever_does_without_tls_and_keys_says_so_and_has_a_secret() -> None:
    careless = {"insecure_links_without_tls": True, "insecure_records_without_keys": True, "neighbours": [FAR]}
    with pytest.raises(PostroadError, match=r"so links need a secret; set network\.secret"):
        check_network(network(**careless), 1)
    check_network(network(**careless, secret="shared"), 1)
    check_network(network(**careless, **KEYS), 1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"key": "1.key"}, "key and members go together"),
        ({"members": KEYS["members"]}, "key and members go together"),
        ({**KEYS, "members": [*KEYS["members"], {"number": 2, "key": "c"}]}, "a broker is listed twice"),
        ({**KEYS, "members": KEYS["members"][:1]}, "broker 2 is not listed"),
        ({**KEYS, "members": KEYS["members"][1:]}, "broker 1 is not listed"),
    ],
)
def test_keys_that_do_not_fit_the_network_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(PostroadError, match=reason):
        check_network(network(**settings), 1)
