"""A trail that changes under its writer: each commit makes sure that the one before is still there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from postroad.messages import MessageId
from postroad.tracking import LinkChanges, Names, SubscriptionChanges, Verdict
from postroad.trail import Trail, TrailWriteError, TrailWriter, pin
from postroad.trail.coverage import GapReason
from postroad.trail.durable_files import create_once
from postroad.trail.manifest import change_name, manifest_folder
from postroad.trail.manifest_fit import MISFIT
from postroad.trail.snapshot import DAMAGED_MANIFEST
from tests.trail.samples import HOUR, NOON, passages, short, wide

if TYPE_CHECKING:
    from pathlib import Path

MINUTE = 60_000
FIRST, SECOND = MessageId(7, 1, NOON + 1, 0), MessageId(7, 1, NOON + HOUR + 1, 0)


def begun(root: Path) -> TrailWriter:
    """A writer with a publisher, a subscription, a link, and a message on record, an hour of it complete."""
    writer = TrailWriter(root, 1, NOON)
    writer.write(
        [
            Names(["publisher"], wide([7]), wide([NOON]), ["bob"]),
            SubscriptionChanges(wide([5]), wide([NOON]), short([1]), ["ann"], ["news"], ["price > 3"]),
            LinkChanges(wide([2]), wide([NOON]), short([1]), short([10])),
        ],
        NOON,
    )
    writer.write([passages([(1, FIRST.time, 7, 0)], delivered=[[5]])], NOON + MINUTE)
    writer.write([], NOON + HOUR)
    return writer


def go_on(writer: TrailWriter) -> None:
    writer.write([passages([(1, SECOND.time, 7, 0)], delivered=[[5]])], NOON + HOUR + MINUTE)
    writer.write([], NOON + 2 * HOUR)


def verdict(root: Path, message: MessageId) -> Verdict:
    return Trail(root).trace(message).journey.verdict


def test_a_writer_whose_trail_was_moved_begins_a_run_and_names_what_is_missing(tmp_path: Path) -> None:
    writer = begun(tmp_path / "trail")
    (tmp_path / "trail").rename(tmp_path / "archive")
    go_on(writer)
    assert writer.breaks == 1
    state = pin(tmp_path / "trail", 1)
    assert state.warnings == []
    assert [(run.since, run.through) for run in state.runs] == [(NOON + HOUR, NOON + 2 * HOUR)]
    assert [(hole.since, hole.until, hole.reason) for hole in state.holes] == [(0, NOON + HOUR + 1, GapReason.GONE)]
    assert verdict(tmp_path / "trail", FIRST) is Verdict.NOT_RECORDED
    # Right after the break clocks may differ; later the record is as good as ever, with all names.
    late = MessageId(7, 1, NOON + HOUR + MINUTE, 9)
    assert verdict(tmp_path / "trail", late) is Verdict.NEVER_ACCEPTED
    told = Trail(tmp_path / "trail").trace(SECOND)
    assert (told.publisher, told.subscriptions[1, 5].principal) == ("bob", "ann")
    assert Trail(tmp_path / "trail").neighbours(1, SECOND.time, SECOND.time) == [2]
    assert Trail(tmp_path / "trail").subscriptions(1, SECOND.time, SECOND.time) == [5]
    # The archive says itself where it ends.
    assert verdict(tmp_path / "archive", FIRST) is Verdict.DELIVERED
    assert verdict(tmp_path / "archive", SECOND) is Verdict.NOT_RECORDED


def test_what_stood_when_the_trail_went_is_told_though_it_ended_right_after(tmp_path: Path) -> None:
    writer = begun(tmp_path / "trail")
    gone = writer.prepare(
        [SubscriptionChanges(wide([5]), wide([NOON + 2 * HOUR]), short([0]), [""], [""], [""])], NOON + 3 * HOUR
    )
    shutil.rmtree(tmp_path / "trail")
    writer.commit(gone)
    trail = Trail(tmp_path / "trail")
    assert trail.subscriptions(1, NOON + HOUR + MINUTE, NOON + HOUR + MINUTE) == [5]
    assert trail.subscriptions(1, NOON + 2 * HOUR + 1, NOON + 3 * HOUR) == []


def test_an_archive_that_comes_back_fits_what_was_written_meanwhile(tmp_path: Path) -> None:
    writer = begun(tmp_path / "trail")
    (tmp_path / "trail").rename(tmp_path / "archive")
    go_on(writer)
    writer.close(NOON + 2 * HOUR)
    for checkpoint in manifest_folder(tmp_path / "trail", 1).glob("*.checkpoint.json"):
        checkpoint.unlink()
    shutil.copytree(tmp_path / "archive", tmp_path / "trail", dirs_exist_ok=True)
    trail = Trail(tmp_path / "trail")
    assert [stop.findings.delivered[0].number for stop in trail.trace(FIRST).journey.stops] == [5]
    assert trail.warnings == []


@pytest.mark.parametrize("commits", [1, 12])
def test_an_older_copy_keeps_what_it_has_and_lacks_the_rest(tmp_path: Path, commits: int) -> None:
    writer = begun(tmp_path / "trail")
    writer.maintain(NOON + HOUR)
    shutil.copytree(tmp_path / "trail", tmp_path / "copy")
    for number in range(commits):
        writer.write([passages([(1, SECOND.time, 7, 0)])], NOON + 2 * HOUR + number)
        writer.maintain(NOON + 2 * HOUR)
    shutil.rmtree(tmp_path / "trail")
    shutil.copytree(tmp_path / "copy", tmp_path / "trail")
    writer.write([], NOON + 3 * HOUR)
    assert verdict(tmp_path / "trail", FIRST) is Verdict.DELIVERED
    assert verdict(tmp_path / "trail", SECOND) is Verdict.NOT_RECORDED
    assert verdict(tmp_path / "trail", MessageId(7, 1, NOON + 2 * HOUR + MINUTE, 0)) is Verdict.NEVER_ACCEPTED
    assert pin(tmp_path / "trail", 1).warnings == []
    assert writer.breaks == 1


def test_a_hole_that_an_older_copy_does_not_have_is_with_redelivery_marks(tmp_path: Path) -> None:
    writer = begun(tmp_path / "trail")
    shutil.copytree(tmp_path / "trail", tmp_path / "copy")
    writer.lacks(NOON, NOON + MINUTE, "the clock was set back")
    writer.write([], NOON + 2 * HOUR)
    shutil.rmtree(tmp_path / "trail")
    shutil.copytree(tmp_path / "copy", tmp_path / "trail")
    writer.write([], NOON + 3 * HOUR)
    assert verdict(tmp_path / "trail", MessageId(7, 1, NOON + 30_000, 9)) is Verdict.NOT_RECORDED


def test_a_trail_that_goes_while_a_commit_is_written_is_noticed_right_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begun(tmp_path / "trail")
    append = writer.ledger.append

    def gone_before(*given: Any, **more: Any) -> object:
        monkeypatch.setattr(writer.ledger, "append", append)
        shutil.rmtree(tmp_path / "trail" / "manifests")
        return append(*given, **more)

    monkeypatch.setattr(writer.ledger, "append", gone_before)
    go_on(writer)
    assert writer.breaks == 1
    assert verdict(tmp_path / "trail", FIRST) is Verdict.NOT_RECORDED
    assert pin(tmp_path / "trail", 1).warnings == []
    assert verdict(tmp_path / "trail", MessageId(7, 1, NOON + 2 * HOUR - MINUTE, 9)) is Verdict.NEVER_ACCEPTED


def test_a_change_of_another_trail_is_named_and_claims_nothing(tmp_path: Path) -> None:
    writer = begun(tmp_path / "trail")
    go_on(writer)
    other = TrailWriter(tmp_path / "other", 1, NOON)
    for number in range(5):
        other.write([], NOON + (10 + number) * HOUR)
    for number in (2, pin(tmp_path / "trail", 1).number):
        shutil.copytree(tmp_path / "trail", tmp_path / f"mixed{number}")
        path = manifest_folder(tmp_path / f"mixed{number}", 1) / change_name(number)
        path.write_bytes((manifest_folder(tmp_path / "other", 1) / change_name(number)).read_bytes())
        state = pin(tmp_path / f"mixed{number}", 1)
        assert [warning.partition(": ")[0] for warning in state.warnings] == [str(path)]
        assert any(hole.reason == DAMAGED_MANIFEST for hole in state.holes)
        assert max(run.through for run in state.runs) <= NOON + 2 * HOUR


def test_a_change_under_the_number_of_another_is_named(tmp_path: Path) -> None:
    begun(tmp_path)
    folder = manifest_folder(tmp_path, 1)
    (folder / change_name(3)).write_bytes((folder / change_name(2)).read_bytes())
    assert pin(tmp_path, 1).warnings[0].startswith(str(folder / change_name(3)))


def test_a_checkpoint_of_another_trail_is_not_believed(tmp_path: Path) -> None:
    for name, hours in (("trail", 1), ("other", 9)):
        writer = TrailWriter(tmp_path / name, 1, NOON)
        for number in range(8):
            writer.write([], NOON + hours * HOUR + number)
        writer.maintain(NOON + hours * HOUR)
        writer.write([], NOON + hours * HOUR + 10)
    (path,) = manifest_folder(tmp_path / "trail", 1).glob("*.checkpoint.json")
    path.write_bytes((manifest_folder(tmp_path / "other", 1) / path.name).read_bytes())
    state = pin(tmp_path / "trail", 1)
    assert state.warnings[0].startswith(str(path))
    assert max(run.through for run in state.runs) == NOON + HOUR + 10


def test_a_foreign_change_is_not_believed_where_its_neighbour_that_would_show_it_is_damaged(tmp_path: Path) -> None:
    writer = begun(tmp_path / "trail")
    go_on(writer)
    last = pin(tmp_path / "trail", 1).number
    other = TrailWriter(tmp_path / "other", 1, NOON - HOUR)
    for number in range(last):
        other.write([], NOON + (10 + number) * HOUR)
    folder = manifest_folder(tmp_path / "trail", 1)
    (folder / change_name(last)).write_bytes((manifest_folder(tmp_path / "other", 1) / change_name(last)).read_bytes())
    (folder / change_name(last - 1)).write_bytes(b"damaged")
    state = pin(tmp_path / "trail", 1)
    assert {warning.partition(": ")[0] for warning in state.warnings} == {
        str(folder / change_name(number)) for number in (last - 1, last)
    }
    assert [(run.since, run.through) for run in state.runs] == [(NOON, NOON + HOUR)]
    # A change that names a file which is here needs no neighbour.
    writer.write([passages([(1, SECOND.time + HOUR, 7, 0)], delivered=[[5]])], NOON + 3 * HOUR)
    assert pin(tmp_path / "trail", 1).runs[-1].through == NOON + 3 * HOUR


def test_a_foreign_checkpoint_is_not_believed_where_its_last_change_is_damaged(tmp_path: Path) -> None:
    for name, hours in (("trail", 1), ("other", 9)):
        writer = TrailWriter(tmp_path / name, 1, NOON)
        for number in range(7):
            at = NOON + hours * HOUR + number
            writer.write([passages([(1, at, 7, number)])], at)
        writer.maintain(NOON + hours * HOUR)
    (path,) = manifest_folder(tmp_path / "trail", 1).glob("*.checkpoint.json")
    change = path.with_name(path.name.replace(".checkpoint", ""))
    change.write_bytes(b"damaged")
    assert verdict(tmp_path / "trail", MessageId(7, 1, NOON + HOUR, 0)) is Verdict.MATCHED_NOBODY
    path.write_bytes((manifest_folder(tmp_path / "other", 1) / path.name).read_bytes())
    state = pin(tmp_path / "trail", 1)
    assert state.warnings[0].startswith(str(path))
    assert max(run.through for run in state.runs) == NOON + HOUR + 5


def test_a_manifest_without_messages_is_not_believed_beside_files_of_messages(tmp_path: Path) -> None:
    go_on(begun(tmp_path / "trail"))
    TrailWriter(tmp_path / "other", 1, NOON - HOUR).close(NOON + 9 * HOUR)
    assert verdict(tmp_path / "other", FIRST) is Verdict.NEVER_ACCEPTED
    folder = manifest_folder(tmp_path / "trail", 1)
    shutil.rmtree(folder)
    shutil.copytree(manifest_folder(tmp_path / "other", 1), folder)
    trail = Trail(tmp_path / "trail")
    assert trail.trace(FIRST).journey.verdict is Verdict.NOT_RECORDED
    assert any(MISFIT in warning for warning in trail.warnings)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_run_says_what_is_missing_where_the_trail_went_while_the_broker_was_stopped(
    tmp_path: Path, kept: int
) -> None:
    lives: list[Any] = []
    for life in range(2):
        if life == kept:
            shutil.copytree(tmp_path / "trail", tmp_path / "copy") if life else (tmp_path / "copy").mkdir()
        writer = TrailWriter(tmp_path / "trail", 1, NOON + life * HOUR, earlier=lives[-1] if lives else None)
        writer.close(NOON + life * HOUR + 30 * MINUTE)
        lives.append(writer.run)
    assert not pin(tmp_path / "trail", 1).holes
    shutil.rmtree(tmp_path / "trail")
    (tmp_path / "copy").rename(tmp_path / "trail")
    again = NOON + 2 * HOUR
    TrailWriter(tmp_path / "trail", 1, again, earlier=lives[-1]).close(again + HOUR)
    reached = NOON + 30 * MINUTE if kept else 0
    assert [(hole.since, hole.until, hole.reason) for hole in pin(tmp_path / "trail", 1).holes] == [
        (reached, again + 1, GapReason.MOVED)
    ]
    # By another broker's clock it may have entered before the broker started again, and be in the record that is gone.
    assert verdict(tmp_path / "trail", MessageId(7, 1, again + 3_000, 0)) is Verdict.NOT_RECORDED
    assert verdict(tmp_path / "trail", MessageId(7, 1, again + 6_000, 0)) is Verdict.NEVER_ACCEPTED


def test_a_run_after_a_record_that_is_all_there_states_no_hole(tmp_path: Path) -> None:
    writer = TrailWriter(tmp_path, 1, NOON)
    writer.close(NOON + HOUR)
    TrailWriter(tmp_path, 1, NOON + 2 * HOUR, earlier=writer.run).close(NOON + 3 * HOUR)
    assert not pin(tmp_path, 1).holes
    assert verdict(tmp_path, MessageId(7, 1, NOON + 2 * HOUR + 3_000, 0)) is Verdict.NEVER_ACCEPTED


@pytest.mark.parametrize("harm", ["damaged", "moved"])
def test_what_a_lost_change_had_beyond_what_it_covers_is_in_the_hole_too(tmp_path: Path, harm: str) -> None:
    """A filter that was full is written while an older one is still open: the record does not reach as far as it."""
    writer = TrailWriter(tmp_path / "trail", 1, NOON)
    full = NOON + 20 * MINUTE
    lost = MessageId(7, 1, full - MINUTE, 0)
    writer.commit(writer.prepare([passages([(1, lost.time, 7, 0)])], NOON + MINUTE), told_until=full)
    assert verdict(tmp_path / "trail", lost) is not Verdict.NEVER_ACCEPTED
    if harm == "moved":
        (tmp_path / "trail").rename(tmp_path / "archive")
    writer.commit(writer.prepare([passages([(1, NOON + 2 * MINUTE, 7, 0)])], NOON + 3 * MINUTE), told_until=full)
    writer.write([passages([(1, NOON + HOUR, 7, 0)])], NOON + 2 * HOUR)
    if harm == "damaged":
        assert verdict(tmp_path / "trail", lost) is Verdict.MATCHED_NOBODY
        (manifest_folder(tmp_path / "trail", 1) / change_name(2)).write_bytes(b"damaged")
    assert verdict(tmp_path / "trail", lost) is Verdict.NOT_RECORDED
    assert verdict(tmp_path / "trail", MessageId(7, 1, full + MINUTE, 9)) is Verdict.NEVER_ACCEPTED


def test_a_trail_that_is_deleted_while_its_manifest_is_summed_up_is_found_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begun(tmp_path / "trail")

    def deleted_before(path: Path, data: bytes) -> bool:
        shutil.rmtree(tmp_path / "trail")
        path.parent.mkdir(parents=True)
        return create_once(path, data)

    monkeypatch.setattr("postroad.trail.ledger.create_once", deleted_before)
    with pytest.raises(TrailWriteError, match="gone"):
        writer.ledger.checkpoint(NOON + HOUR)
    monkeypatch.undo()
    go_on(writer)
    assert writer.breaks == 1
    assert verdict(tmp_path / "trail", FIRST) is Verdict.NOT_RECORDED


def test_a_break_that_cannot_be_written_down_at_once_is_written_down_before_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begun(tmp_path / "trail")
    commit, begin = writer._commit, writer.ledger.begin_again

    def lost_meanwhile(prepared: Any) -> Any:
        shutil.rmtree(tmp_path / "trail")
        return commit(prepared)

    def refused(*_: Any) -> Any:
        raise TrailWriteError(tmp_path, "busy")

    monkeypatch.setattr(writer, "_commit", lost_meanwhile)
    monkeypatch.setattr(writer.ledger, "begin_again", refused)
    writer.write([passages([(1, SECOND.time, 7, 0)], delivered=[[5]])], NOON + HOUR + MINUTE)
    monkeypatch.setattr(writer, "_commit", commit)
    monkeypatch.setattr(writer.ledger, "begin_again", begin)
    assert writer.breaks == 0
    writer.write([], NOON + 2 * HOUR)
    assert writer.breaks == 1
    state = pin(tmp_path / "trail", 1)
    assert [hole.reason for hole in state.holes] == [GapReason.GONE]
    assert verdict(tmp_path / "trail", FIRST) is Verdict.NOT_RECORDED
