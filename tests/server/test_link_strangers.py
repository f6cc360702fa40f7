"""Who is let go when too many connections have not proved who they are."""

from __future__ import annotations

import pytest

from postroad.server.strangers import Strangers, crowd_of


def test_oldest_of_the_most_crowded_address_goes() -> None:
    strangers: Strangers[int] = Strangers(most=4)
    for key, address in enumerate(["192.0.2.1", "192.0.2.9", "192.0.2.9", "192.0.2.1"]):
        assert strangers.admit(key, address) is None
    strangers.leave(0)
    assert strangers.admit(4, "192.0.2.9") is None
    assert strangers.admit(5, "192.0.2.7") == 1
    assert len(strangers) == 4


def test_no_crowd_takes_the_places_of_neighbours() -> None:
    strangers: Strangers[int] = Strangers(["192.0.2.1", "broker.example"], most=2)
    assert strangers.admit(0, "192.0.2.1") is None
    for key in range(1, 100):
        assert strangers.admit(key, f"198.51.100.{key}") != 0
    strangers.reserve("198.51.100.200")
    assert strangers.admit(100, "198.51.100.200") is None
    assert len(strangers) == 4
    assert strangers.admit(101, "192.0.2.1") == 0


@pytest.mark.parametrize(
    ("address", "crowd"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("broker.example", "broker.example"),
    ],
)
def test_hosts_with_many_addresses_count_as_one(address: str, crowd: str) -> None:
    assert crowd_of(address) == crowd
