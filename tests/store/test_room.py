"""What a log accepts, by its limit, by what waits for the disk, and by what the disk has left."""

from __future__ import annotations

import pytest

from postroad.store import TIGHT_BYTES, UNLIMITED, StoreSettings
from postroad.store.room import MAX_WAITING_BYTES, StoreRoom, StoreUse

MIB = 1024 * 1024
SETTINGS = StoreSettings(max_bytes=1_000 * MIB, segment_bytes=64 * MIB)


def room(used: int = 0, waiting: int = 0, trouble: str = "", disk: int = UNLIMITED) -> StoreRoom:
    made = StoreRoom(SETTINGS, lambda: StoreUse(used, waiting, trouble))
    made.disk = disk
    return made


@pytest.mark.parametrize(
    ("made", "left"),
    [
        (room(), MAX_WAITING_BYTES),
        (room(used=990 * MIB), 10 * MIB),
        (room(used=1_001 * MIB), 0),
        (room(used=100 * MIB, waiting=100 * MIB), 28 * MIB),
        (room(disk=7 * MIB), 7 * MIB),
        (room(waiting=5 * MIB, disk=7 * MIB), 2 * MIB),
        (room(waiting=9 * MIB, disk=7 * MIB), 0),
    ],
)
def test_room_is_the_least_of_three_limits(made: StoreRoom, left: int) -> None:
    assert made.left == left
    assert made.lack(left + 1)
    if left:
        assert not made.lack(left)


def test_reasons_say_which_limit_it_is_and_what_to_do() -> None:
    assert room(used=990 * MIB).lack(11 * MIB) == (
        "the store is full (it has 1,038,090,240 bytes; store.max_bytes is 1,048,576,000): let subscribers catch up, "
        "delete subscriptions that nobody needs, or raise the limit"
    )
    slow = room(waiting=MAX_WAITING_BYTES)
    assert slow.lack(1) == f"{MAX_WAITING_BYTES:,} bytes wait to be stored: the disk is slower than them"
    failing = room(waiting=MAX_WAITING_BYTES, trouble="it fails")
    assert failing.lack(1) == f"{MAX_WAITING_BYTES:,} bytes wait to be stored: it fails"
    assert room(disk=1_000).lack(1_001) == room(disk=1_000).lack_on_disk(1_001)
    assert "the disk is full (1,000 bytes are left" in room(disk=1_000).lack_on_disk(1_001)
    # A full store is not a full disk.
    assert not room(used=1_000 * MIB).lack_on_disk(1)


def test_log_with_little_room_writes_short_segments() -> None:
    assert [made.is_tight for made in (room(), room(waiting=MAX_WAITING_BYTES), room(disk=TIGHT_BYTES))] == [False] * 3
    for tight in (room(used=1_000 * MIB - TIGHT_BYTES + 1), room(disk=TIGHT_BYTES - 1)):
        assert tight.is_tight
        assert tight.segment_bytes(0) == MIB
        # With large checkpoints they are longer, or they would hold little else.
        assert tight.segment_bytes(3 * MIB) == 6 * MIB
    assert room().segment_bytes(0) == 64 * MIB
    assert room().segment_bytes(10 * MIB) == 80 * MIB


def test_disk_near_the_mark_is_not_reported_as_having_room_again() -> None:
    assert [room(disk=disk).is_disk_ample for disk in (TIGHT_BYTES, 2 * TIGHT_BYTES - 1, 2 * TIGHT_BYTES)] == [
        False,
        False,
        True,
    ]
    assert room().is_disk_ample
