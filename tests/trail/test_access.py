"""What Postroad writes is its owner's alone, or a group's too, from the moment it is made."""

from __future__ import annotations

import grp
import os
import stat
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from postroad.tracking import Names
from postroad.trail import SCHEMAS, Journal, TrailWriter, write_file
from postroad.trail.access import AccessError, append_to, claim, close_to_others, create, make_folders, write_private
from postroad.trail.durable_files import LARGE_BYTES
from tests.trail.samples import NOON, passages, wide

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GROUP = grp.getgrgid(os.getgid()).gr_name


@pytest.fixture(autouse=True, params=[0o022, 0o000, 0o077], ids=["usual mask", "no mask", "strict mask"])
def mask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever the user's mask is, the modes are the same."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(root: Path) -> tuple[set[int], set[int]]:
    """Of the directories, and of the files, of a tree."""
    found = [root, *root.rglob("*")]
    return {mode(path) for path in found if path.is_dir()}, {mode(path) for path in found if path.is_file()}


def write_everything(root: Path) -> None:
    writer = TrailWriter(root, 1, NOON)
    writer.write([passages([(1, NOON, 7, 0)]), Names(["publisher"], wide([7]), wide([NOON]), ["bob"])], NOON + 10)
    writer.ledger.checkpoint(NOON)
    names = pa.table({"kind": [""], "number": [1], "at": [NOON], "name": ["x" * 2 * LARGE_BYTES]})
    write_file(root, "names", 1, NOON // 86_400_000, "large", names.cast(SCHEMAS["names"]))
    journal = Journal(root, 1)
    journal.append(b"entry")
    journal.close()
    make_folders(root / "logs" / "deep")
    os.close(append_to(root / "logs" / "broker.log"))
    write_private(root / "state.json", b"{}")


def test_trail_and_its_files_are_their_owners_alone(tmp_path: Path) -> None:
    write_everything(tmp_path / "new" / "trail")
    assert modes(tmp_path / "new") == ({0o700}, {0o600})


def test_group_reads_all_that_is_below_a_directory_given_to_it(tmp_path: Path) -> None:
    assert claim(tmp_path / "trail", GROUP) == ""
    write_everything(tmp_path / "trail")
    assert modes(tmp_path / "trail") == ({0o2750}, {0o640})
    assert {path.stat().st_gid for path in (tmp_path / "trail").rglob("*")} == {os.getgid()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to any group")
def test_files_get_the_group_of_the_directory_and_not_of_the_process(tmp_path: Path) -> None:
    other = next(each for each in grp.getgrall() if each.gr_gid != os.getgid())
    claim(tmp_path / "trail", other.gr_name)
    write_everything(tmp_path / "trail")
    assert {path.stat().st_gid for path in (tmp_path / "trail").rglob("*")} == {other.gr_gid}


def test_directory_that_many_share_does_not_make_what_is_in_it_shared(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool").chmod(0o2775)
    write_everything(tmp_path / "pool" / "trail")
    assert modes(tmp_path / "pool" / "trail") == ({0o700}, {0o600})


def test_empty_directory_is_taken_as_new_and_another_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for name in ("empty", "full"):
        (tmp_path / name).chmod(0o755)
    assert claim(tmp_path / "empty") == ""
    assert mode(tmp_path / "empty") == 0o700
    assert "chmod -R go= " in claim(tmp_path / "full")
    assert f"chgrp -R {GROUP} " in claim(tmp_path / "full", GROUP)
    assert mode(tmp_path / "full") == 0o755


def test_directory_for_many_is_never_closed(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    assert "others can look into it" in claim(tmp_path / "tmp")
    assert mode(tmp_path / "tmp") == 0o1777


def test_unknown_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="there is no group 'no such group'"):
        claim(tmp_path / "trail", "no such group")


def test_file_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    for make in (claim, make_folders):
        with pytest.raises(FileExistsError):
            make(tmp_path / "data")


def test_no_file_is_made_behind_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        create(tmp_path / "link")
    assert not (tmp_path / "target").exists()


def test_tree_of_another_program_is_closed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("")
    (tmp_path / "outside").chmod(0o644)
    (tmp_path / "out" / "table").mkdir(parents=True)
    (tmp_path / "out" / "table" / "part.parquet").touch()
    (tmp_path / "out" / "table" / "link").symlink_to(tmp_path / "outside")
    close_to_others(tmp_path / "out" / "table")
    assert mode(tmp_path / "out" / "table") == 0o700
    assert mode(tmp_path / "out" / "table" / "part.parquet") == 0o600
    assert mode(tmp_path / "outside") == 0o644
