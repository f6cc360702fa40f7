"""Who may connect, and whose place a newcomer takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.broker import Limits
from postroad.sessions import Entrance, address_of
from postroad.sessions.entrance import FAIR_PART


def entrance(strangers: int = 4, per_address: int = 100, sessions: int = 100) -> Entrance[str]:
    return Entrance(Limits(strangers=strangers, connections_per_address=per_address, sessions=sessions))


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("192.0.2.7", 5), "192.0.2.7"),
        (("::ffff:192.0.2.7", 5, 0, 0), "192.0.2.7"),
        (("2001:db8::1", 5, 0, 0), "2001:db8::/64"),
        (("2001:db8::ffff:1", 5, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        (None, ""),
    ],
)
def test_addresses_of_one_household_count_together(peer: object, address: str) -> None:
    assert address_of(peer) == address


def test_a_newcomer_takes_the_place_of_the_oldest_stranger() -> None:
    door = entrance(strangers=8)
    for number in range(8):
        assert door.arrive(f"s{number}", f"address {number}").evicted == []
    assert door.arrive("new", "another address").evicted == ["s0"]
    assert door.arrive("newer", "another address").evicted == ["s1"]
    assert (door.stranger_count, door.evicted, len(door)) == (8, 2, 8)


def test_an_address_with_more_than_its_part_gives_up_its_own_places() -> None:
    door = entrance(strangers=8)
    door.arrive("honest", "a")
    for number in range(7):
        door.arrive(f"idle{number}", "flood")
    assert [door.arrive(f"more{number}", "flood").evicted for number in range(20)][:2] == [["idle0"], ["idle1"]]
    assert "honest" in door.strangers
    # Somebody else's newcomer still takes the place of the oldest of all.
    assert door.arrive("second", "b").evicted == ["honest"]


def test_a_connected_client_is_no_stranger_and_cannot_be_evicted() -> None:
    door = entrance(strangers=2, sessions=2)
    door.arrive("a", "x")
    assert door.connect("a") == ""
    for number in range(5):
        door.arrive(f"s{number}", "y")
    assert door.strangers == ["s3", "s4"]
    assert door.connect("s3") == ""
    assert "2 connections, its limit (limits.sessions)" in door.connect("s4")
    door.leave("a")
    assert door.connect("s4") == ""


def test_an_address_is_refused_beyond_its_limit_and_let_in_again_when_one_leaves() -> None:
    door = entrance(strangers=10, per_address=2)
    assert [door.arrive(name, "x").refusal for name in "ab"] == ["", ""]
    door.connect("a")
    assert "connections_per_address" in door.arrive("c", "x").refusal
    assert door.arrive("d", "y").refusal == ""
    door.leave("a")
    door.leave("a")
    assert door.arrive("e", "x").refusal == ""
    assert door.refused == 1


steps = st.lists(
    st.tuples(st.sampled_from(["arrive", "connect", "leave"]), st.integers(0, 15), st.sampled_from("xyz")), max_size=60
)


@given(steps=steps, strangers=st.integers(1, 6), per_address=st.integers(1, 6), sessions=st.integers(1, 6))
def test_no_limit_is_ever_exceeded(
    steps: list[tuple[str, int, str]], strangers: int, per_address: int, sessions: int
) -> None:
    door = Entrance[int](Limits(strangers=strangers, connections_per_address=per_address, sessions=sessions))
    there: dict[int, str] = {}
    members: set[int] = set()
    for what, key, address in steps:
        if what == "arrive" and key not in there:
            arrival = door.arrive(key, address)
            for evicted in arrival.evicted:
                assert evicted not in members
                del there[evicted]
            if not arrival.refusal:
                there[key] = address
        elif what == "connect" and key in there and key not in members:
            if not door.connect(key):
                members.add(key)
        elif what == "leave":
            door.leave(key)
            there.pop(key, None)
            members.discard(key)
        counts = [list(there.values()).count(each) for each in "xyz"]
        assert max(counts, default=0) <= per_address
        assert len(members) <= sessions
        assert set(door.strangers) == set(there) - members
        assert door.stranger_count <= strangers
        assert len(door) == len(there)
    assert FAIR_PART > 1
