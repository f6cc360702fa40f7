"""Trails shipped to a store: the same answers there, whatever goes wrong on the way, and none that is not true."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from postroad.messages import MessageId
from postroad.tracking import Verdict
from postroad.trail import DAY_MS, Trail, TrailError, TrailWriter, note_brokers, noted_brokers, pin
from postroad.trail import locations as locations_module
from postroad.trail.ledger import CHECKPOINT_EVERY
from postroad.trail.locations import StoredPath, location, relative
from postroad.trail.retention import DEFAULT_GRACE_MS, sweep
from postroad.trail.shipped_files import earlier_places
from postroad.trail.shipper import Shipper
from tests.trail.samples import HOUR, NOON, passages
from tests.trail.shipments import LATER, files_below, first_file, message, more, verdict, written

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trail.stores import Request, Store


def test_shipped_trail_is_the_same_byte_for_byte_and_answers_the_same(store: Store, tmp_path: Path) -> None:
    writer, to = written(tmp_path, CHECKPOINT_EVERY + 1), store.place("same")
    note_brokers(tmp_path, [1, 5])
    Shipper(tmp_path, 1, to).ship(LATER)
    assert files_below(to) == files_below(tmp_path)
    assert noted_brokers(to) == {1, 5}
    assert Trail(to).absent() == [5]
    for commit in (0, CHECKPOINT_EVERY):
        assert verdict(to, commit) == verdict(tmp_path, commit) == (Verdict.DELIVERED, 1.0)
    never = MessageId(8, 1, NOON, 0)
    assert Trail(tmp_path).trace(never).journey.verdict is Verdict.NEVER_ACCEPTED
    assert Trail(to).trace(never).journey.verdict is Verdict.NOT_RECORDED
    writer.close(LATER)
    again = Shipper(tmp_path, 1, to)
    again.ship(LATER)
    # Another process knows what is there, and ships what is new: the end of the run, and its checkpoint with a part.
    assert again.statistics().files == 3


def test_shipping_goes_on_after_refusals_silence_and_halves(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations_module, "REQUEST_SECONDS", 0.5)
    written(tmp_path, 5)
    to = store.place("troubled")
    shipper = Shipper(tmp_path, 1, to)
    for kind in ("500", "hang", "half"):
        left = [3]

        def fault(request: Request, kind: str = kind, left: list[int] = left) -> str:
            # Some requests go through, then one kind of trouble lasts.
            left[0] -= request.method == "PUT"
            return kind if left[0] < 0 else ""

        store.fault = fault
        with pytest.raises(TrailError, match=r"does not answer|is not what was sent"):
            shipper.ship(LATER)
        assert shipper.behind() > 0
        store.fault = lambda _: ""
        claimed = files_below(to)
        named = {entry.path for entry in pin(to, 1).all_entries()[0]}
        assert named <= claimed.keys(), "a manifest came before its files"
    shipper.ship(LATER)
    assert shipper.behind() == 0
    assert files_below(to) == files_below(tmp_path)


def test_lists_that_lag_show_an_earlier_state_and_no_lie(store: Store, tmp_path: Path) -> None:
    writer, to = written(tmp_path, 2), store.place("lagging")
    shipper = Shipper(tmp_path, 1, to)
    shipper.ship(LATER)
    assert verdict(to, 1) == (Verdict.DELIVERED, 1.0)
    more(writer, 2)
    shipper.ship(LATER)
    store.fault = lambda request: "lag" if request.lists else ""
    told, _ = verdict(to, 2)
    assert told not in (Verdict.NEVER_ACCEPTED, Verdict.DELIVERED)
    store.fault = lambda _: ""
    assert verdict(to, 2) == (Verdict.DELIVERED, 1.0)


def test_missing_object_is_named_and_nothing_is_denied(store: Store, tmp_path: Path) -> None:
    written(tmp_path, 2)
    to = store.place("holed")
    Shipper(tmp_path, 1, to).ship(LATER)
    lost = next(entry for entry in pin(tmp_path, 1).all_entries("passages")[0] if entry.time_from == message(0).time)
    (to / lost.path).unlink()
    trail = Trail(to)
    journey = trail.trace(message(0)).journey
    assert journey.verdict is not Verdict.NEVER_ACCEPTED
    assert any(lost.path.rpartition("/")[2] in gap.reason for _, gap in journey.gaps)
    assert any(lost.path in warning for warning in trail.warnings)
    assert verdict(to, 1) == (Verdict.DELIVERED, 1.0)
    change = sorted((tmp_path / "manifests" / "broker=1").glob("*.json"))[1]
    (to / relative(change, tmp_path)).unlink()
    assert verdict(to, 0)[0] is not Verdict.NEVER_ACCEPTED
    # Another file of the trail is as it was: what is missing there is shipped no more, because it was once.
    assert verdict(tmp_path, 0) == (Verdict.DELIVERED, 1.0)


def test_dropped_copies_are_read_from_the_store_and_nothing_is_denied_while_it_is_away(
    store: Store, tmp_path: Path
) -> None:
    written(tmp_path, 3)
    to = store.place("dropped")
    shipper = Shipper(tmp_path, 1, to, keep_local_ms=0)
    shipper.ship(NOON + 60_000)  # what is of the last minute stays
    assert shipper.statistics().dropped == 1
    entries = pin(tmp_path, 1).all_entries("passages")[0]
    entries.sort(key=lambda one: one.time_from)
    assert [(tmp_path / entry.path).exists() for entry in entries] == [False, True, True]
    assert [verdict(tmp_path, commit)[0] for commit in range(3)] == [Verdict.DELIVERED] * 3
    store.fault = lambda _: "500"
    trail = Trail(tmp_path)
    journey = trail.trace(message(0)).journey
    assert journey.verdict is not Verdict.NEVER_ACCEPTED
    assert any("s3://" in warning for warning in trail.warnings)
    assert verdict(tmp_path, 2) == (Verdict.DELIVERED, 1.0)


def test_what_manifests_take_out_goes_in_the_store_after_the_grace_period(store: Store, tmp_path: Path) -> None:
    writer, to = written(tmp_path, 2), store.place("thinned")
    shipper = Shipper(tmp_path, 1, to)
    shipper.ship(LATER)
    old = first_file(tmp_path)
    writer.ledger.replace(LATER, [old.path])
    shipper.ship(LATER)
    assert (to / old.path).exists()
    # Swept here before, as a compaction does while the broker is stopped.
    after = LATER + DEFAULT_GRACE_MS + 1
    for commit in range(CHECKPOINT_EVERY):
        writer.write([], after + commit)
        writer.maintain(after + commit)
    sweep(tmp_path, 1, after)
    assert not (tmp_path / old.path).exists()
    shipper.ship(after)
    assert not (to / old.path).exists()
    for commit in range(CHECKPOINT_EVERY):
        writer.write([], after + DAY_MS + commit)
        writer.maintain(after + DAY_MS + commit)
    shipper.ship(after + DAY_MS)
    assert files_below(to) == files_below(tmp_path)


def test_a_trail_that_is_shipped_to_another_place_remembers_where_erased_files_stay(tmp_path: Path) -> None:
    trail = tmp_path / "trail"
    writer = written(trail, 2)
    places = [tmp_path / name for name in ("first", "second")]
    Shipper(trail, 1, places[0]).ship(LATER)
    assert earlier_places(trail, [1]) == []
    old = first_file(trail)
    writer.ledger.replace(LATER, [old.path])
    Shipper(trail, 1, places[0]).ship(LATER)
    # Copied before the file was deleted there, and moved: it goes from the new place, and from the old one never.
    shutil.copytree(places[0], places[1])
    moved = Shipper(trail, 1, places[1])
    moved.ship(LATER)
    moved.ship(LATER + DEFAULT_GRACE_MS + 1)
    assert not (places[1] / old.path).exists()
    assert (places[0] / old.path).exists()
    assert earlier_places(trail, [1]) == [str(places[0])]
    Shipper(trail, 1, places[0]).ship(LATER)
    assert earlier_places(trail, [1]) == [str(places[1])]


def test_another_trail_of_the_same_number_and_an_older_copy_are_refused(store: Store, tmp_path: Path) -> None:
    writer, to = written(tmp_path / "one", 2), store.place("owned")
    shutil.copytree(tmp_path / "one", tmp_path / "older")
    Shipper(tmp_path / "one", 1, to).ship(LATER)
    shutil.copytree(tmp_path / "one" / "shipped", tmp_path / "older" / "shipped")
    more(writer, 2)
    Shipper(tmp_path / "one", 1, to).ship(LATER)
    before = files_below(to)
    more(TrailWriter(tmp_path / "other", 1, NOON - 2 * HOUR), 0)
    with pytest.raises(TrailError, match="has another trail of a broker 1"):
        Shipper(tmp_path / "other", 1, to).ship(LATER)
    later = TrailWriter(tmp_path / "older", 1, NOON + 120_000)
    more(later, 2)
    with pytest.raises(TrailError, match="says something else"):
        Shipper(tmp_path / "older", 1, to).ship(LATER)
    assert files_below(to) == before
    written(tmp_path / "other", 2, broker=2)
    Shipper(tmp_path / "other", 2, to).ship(LATER)
    assert Trail(to).brokers() == [1, 2]


def test_trail_that_has_lost_what_the_store_has_is_not_shipped_over_it(tmp_path: Path) -> None:
    root, to = tmp_path / "trail", tmp_path / "store"
    writer, shipper = written(root, 12), Shipper(tmp_path / "trail", 1, to)
    shipper.ship(LATER)
    before = files_below(to)
    # Somebody moves the folder while the broker runs, and its writer begins again.
    root.rename(tmp_path / "moved")
    for commit in range(12, 32):
        writer.check()
        more(writer, commit)
        with pytest.raises(TrailError, match="has lost its manifests of 12 files"):
            shipper.ship(LATER + commit)
    assert files_below(to) == before
    assert verdict(to, 0) == verdict(to, 11) == (Verdict.DELIVERED, 1.0)


def test_part_that_is_missing_here_by_mistake_stays_in_the_store(tmp_path: Path) -> None:
    root, to = tmp_path / "trail", tmp_path / "store"
    writer, shipper = written(root, 9), Shipper(tmp_path / "trail", 1, to)
    # Checkpoints of the next day leave the part of the first one as it is.
    for commit in range(30):
        at = NOON + DAY_MS + 60_000 * commit
        writer.write([passages([(1, at, 7, 0)], delivered=[[3]])], at + 30_000)
        writer.maintain(at + 30_000)
    shipper.ship(NOON + DAY_MS + HOUR)
    sweep(root, 1, NOON + 3 * DAY_MS)
    shipper.ship(NOON + 3 * DAY_MS)
    before = files_below(to)
    min((root / "manifests" / "broker=1" / "parts").iterdir()).unlink()
    shipper.ship(NOON + 3 * DAY_MS + 1)
    assert files_below(to) == before
    assert verdict(to, 0) == (Verdict.DELIVERED, 1.0)


def test_file_that_is_not_sent_leaves_what_is_in_the_store(store: Store) -> None:
    place = store.place("kept") / "file"
    locations_module.put_file(place, memoryview(b"before"))

    def interrupted(size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        locations_module.put_file(place, memoryview(bytes(20_000_000)), interrupted)
    assert place.read_bytes() == b"before"


def test_question_about_a_late_message_asks_no_store(store: Store, tmp_path: Path) -> None:
    root, now = tmp_path / "trail", NOON + 10 * DAY_MS
    writer = written(root, 3)
    for commit in range(3):
        writer.write([passages([(1, now + commit, 7, 0)], delivered=[[3]])], now + commit + 30_000)
    Shipper(root, 1, store.place("dropped"), keep_local_ms=DAY_MS).ship(now + HOUR)
    assert not (root / first_file(root).path).exists()
    store.asked.clear()
    assert Trail(root).trace(MessageId(7, 1, now, 0)).journey.verdict is Verdict.DELIVERED
    assert store.asked == []


def test_bandwidth_is_bounded_by_waiting_before_each_portion(tmp_path: Path) -> None:
    written(tmp_path / "trail", 2)
    waits: list[float] = []
    Shipper(tmp_path / "trail", 1, location(f"file://{tmp_path / 'copy'}"), 1_000, None, waits.append).ship(LATER)
    shipped = files_below(tmp_path / "copy")
    # Sent once, and read back once.
    note = (tmp_path / "copy" / "shipped" / "broker=1.json").stat().st_size
    sent = sum(map(len, shipped.values()))
    assert shipped == files_below(tmp_path / "trail")
    assert sum(waits) == pytest.approx((2 * sent) / 1_000, abs=note / 1_000)


def test_damaged_file_is_not_shipped_and_is_told_there_as_missing(tmp_path: Path) -> None:
    written(tmp_path / "trail", 2)
    first = first_file(tmp_path / "trail")
    data = bytearray((tmp_path / "trail" / first.path).read_bytes())
    data[20] ^= 1
    (tmp_path / "trail" / first.path).write_bytes(data)
    shipper = Shipper(tmp_path / "trail", 1, tmp_path / "copy")
    shipper.ship(LATER)
    assert shipper.statistics().damaged == 1
    journey = Trail(tmp_path / "copy").trace(message(0)).journey
    assert journey.verdict is not Verdict.NEVER_ACCEPTED
    assert journey.gaps


def test_trail_in_a_store_that_is_away_is_told_so(store: Store, tmp_path: Path) -> None:
    to = store.place("away")
    assert isinstance(to, StoredPath)
    store.fault = lambda _: "500"
    with pytest.raises(TrailError, match="the store does not answer, or refuses"):
        Trail(to)
