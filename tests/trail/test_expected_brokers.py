"""Which brokers a trail should hold, and what a no is worth where some are not there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from postroad.tracking import Aliases, LinkChanges
from postroad.trail import Trail, TrailDamageError, TrailWriter, note_brokers, noted_brokers
from postroad.trail.coverage import GapReason
from tests.trail.samples import HOUR, NOON, passages, short, wide

if TYPE_CHECKING:
    from pathlib import Path


def recorded(root: Path, broker: int, *, closed: bool = True) -> None:
    """A broker that had a link to 3 and passed a message that entered at 4."""
    writer = TrailWriter(root, broker, NOON)
    link = LinkChanges(wide([3]), wide([NOON]), short([1]), short([10]))
    alias = Aliases(["A-1"], wide([broker]), wide([NOON]), wide([7]), short([0]))
    writer.write([link, alias, passages([(4, NOON, 7, 0)], arrived_from=[3])], NOON + HOUR)
    if closed:
        writer.close(NOON + HOUR)


def test_brokers_that_links_messages_and_plans_tell_of_are_missed(tmp_path: Path) -> None:
    recorded(tmp_path, 1)
    assert Trail(tmp_path).absent() == [3, 4]
    note_brokers(tmp_path, [1, 5])
    note_brokers(tmp_path, [6])
    assert noted_brokers(tmp_path) == {1, 5, 6}
    assert Trail(tmp_path).absent() == [3, 4, 5, 6]


def test_a_list_of_brokers_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    recorded(tmp_path, 1)
    (tmp_path / "brokers.json").write_bytes(b"[1,")
    with pytest.raises(TrailDamageError, match=r"brokers\.json"):
        noted_brokers(tmp_path)
    trail = Trail(tmp_path)
    assert any("brokers.json" in reason for reason in trail.may_hide())


def test_an_alias_is_certainly_unknown_only_where_every_record_is_whole(tmp_path: Path) -> None:
    for broker in (1, 3, 4):
        recorded(tmp_path, broker)
    assert Trail(tmp_path).may_hide() == []
    shutil.copytree(tmp_path, tmp_path / "less")
    shutil.rmtree(tmp_path / "less" / "manifests" / "broker=4")
    assert [reason.partition(":")[0] for reason in Trail(tmp_path / "less").may_hide()] == ["broker 4"]
    recorded(tmp_path, 5, closed=False)
    assert Trail(tmp_path).may_hide() == [f"broker 5: {GapReason.NOT_YET_WRITTEN}"]
    (lost,) = (tmp_path / "aliases" / "broker=1").rglob("*.parquet")
    lost.unlink()
    trail = Trail(tmp_path)
    assert len(trail.aliased("A-1")) == 3
    assert any(str(lost) in reason for reason in trail.may_hide())
