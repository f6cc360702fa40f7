"""Machine code of old sources is never used for new ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import postroad

PACKAGE = Path(postroad.__file__).parent

CALLER = """
from postroad.kernels import kernel
from postroad.trial.piece import answer

@kernel("int64(int64)")
def ask(number):
    return answer() + number
"""
PIECE = """
from postroad.kernels import device

@device
def answer():
    return {answer}
"""


def make_package(package: Path) -> None:
    """A package with the real kernels module, and a module that has a kernel."""
    (package / "trial").mkdir(parents=True)
    for name in ("__init__.py", "kernels.py"):
        shutil.copy(PACKAGE / name, package / name)
    (package / "trial" / "__init__.py").touch()
    (package / "trial" / "caller.py").write_text(CALLER)


def ask(root: Path, home: Path | None = None) -> int:
    command = "from postroad.trial.caller import ask; print(ask(0))"
    run = subprocess.run(
        [sys.executable, "-c", command],
        # Python's own cache goes by the second and the size of a source, and this test is quicker than that.
        env={"PYTHONPATH": str(root), "HOME": str(home or root), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return int(run.stdout)


def compiled(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in root.rglob("*.nbc")}


def test_a_kernel_follows_a_change_in_a_piece_of_another_module(tmp_path: Path) -> None:
    package = tmp_path / "postroad"
    make_package(package)
    for answer in (41, 42):
        (package / "trial" / "piece.py").write_text(PIECE.format(answer=answer))
        assert ask(tmp_path) == answer


def test_a_change_that_a_kernel_cannot_see_compiles_nothing(tmp_path: Path) -> None:
    package = tmp_path / "postroad"
    make_package(package)
    (package / "trial" / "piece.py").write_text(PIECE.format(answer=44))
    assert ask(tmp_path) == 44
    before = compiled(tmp_path)
    (package / "trial" / "stranger.py").write_text("NUMBER = 1\n")
    assert ask(tmp_path) == 44
    assert compiled(tmp_path) == before != {}


def test_kernels_beside_the_sources_are_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    package = tmp_path / "postroad"
    make_package(package)
    (package / "trial" / "piece.py").write_text(PIECE.format(answer=45))
    assert ask(tmp_path) == 45
    before = compiled(tmp_path)
    # A process of root may write anywhere: say that it may not, as a read-only file system would.
    (package / "trial" / "__init__.py").write_text("import os\nos.access = lambda path, mode: mode != os.W_OK\n")
    home = tmp_path / "home"
    home.mkdir()
    assert ask(tmp_path, home) == 45
    assert compiled(tmp_path) == before != {}


def test_kernels_of_a_wheel_are_compiled_once_wherever_it_lies(tmp_path: Path) -> None:
    package = tmp_path / "source" / "postroad"
    make_package(package)
    (package / "trial" / "piece.py").write_text(PIECE.format(answer=43))
    home = tmp_path / "home"
    home.mkdir()
    machine_code = []
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        archive = shutil.make_archive(str(tmp_path / folder / "postroad"), "zip", package.parent)
        # The name that a wheel has: Python imports from it, and numba alone would not know it for a zip file.
        wheel = Path(archive).rename(tmp_path / folder / "postroad-0.1.0-py3-none-any.whl")
        assert ask(wheel, home) == 43
        machine_code.append(compiled(home))
    assert machine_code[0] == machine_code[1] != {}


def test_folder_that_another_process_removes_meanwhile_does_no_harm(tmp_path: Path) -> None:
    """Two brokers that start after an update remove the same old folders."""
    package = tmp_path / "postroad"
    make_package(package)
    (package / "trial" / "piece.py").write_text(PIECE.format(answer=46))
    folder = package / "__pycache__" / "kernels"
    folder.mkdir(parents=True)
    # It is listed, and gone when it is looked at.
    (folder / "postroad.trial.caller-0123456789abcdef").symlink_to(tmp_path / "gone")
    assert ask(tmp_path) == 46
