"""Machine code of old sources is never used for new ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    shutil.copy(PACKAGE / "__init__.py", package / "__init__.py")
    shutil.copytree(PACKAGE / "kernels", package / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "trial" / "__init__.py").touch()
    (package / "trial" / "caller.py").write_text(CALLER)


ASK = "from postroad.trial.caller import ask; print(ask(0))"
LOADED = f"{ASK}; import sys; print('numba' in sys.modules)"


def surroundings(root: Path, home: Path | None = None) -> dict[str, str]:
    # Python's own cache goes by the second and the size of a source, and this test is quicker than that.
    return {"PYTHONPATH": str(root), "HOME": str(home or root), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"}


def run(root: Path, command: str, home: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", command],
        env=surroundings(root, home) | more,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


ANSWER = 44


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package whose kernel is compiled; tests change copies of it."""
    root = tmp_path_factory.mktemp("compiled")
    make_package(root / "postroad")
    (root / "postroad" / "trial" / "piece.py").write_text(PIECE.format(answer=ANSWER))
    first = run(root, LOADED)
    # The process that compiles has the compiler, and says what takes so long.
    assert first.stdout.split() == [str(ANSWER), "True"]
    assert "compiling kernels for this machine, once" in first.stderr
    return root


@pytest.fixture
def kept(compiled_once: Path, tmp_path: Path) -> Path:
    """A copy of that folder: where a package lies makes no difference to the key of its machine code."""
    shutil.copytree(compiled_once, tmp_path, dirs_exist_ok=True)
    return tmp_path


def ask(root: Path, home: Path | None = None) -> int:
    return int(run(root, ASK, home).stdout)


def compiled(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in root.rglob("*@*/*")}


def test_a_kernel_follows_a_change_in_a_piece_of_another_module(kept: Path) -> None:
    (kept / "postroad" / "trial" / "piece.py").write_text(PIECE.format(answer=ANSWER + 1))
    assert ask(kept) == ANSWER + 1


def test_a_change_that_a_kernel_cannot_see_compiles_nothing(kept: Path) -> None:
    before = compiled(kept)
    (kept / "postroad" / "trial" / "stranger.py").write_text("NUMBER = 1\n")
    assert ask(kept) == ANSWER
    assert compiled(kept) == before != {}


def test_kernels_beside_the_sources_are_read_where_nothing_can_be_written(kept: Path) -> None:
    before = compiled(kept)
    # A process of root may write anywhere: say that it may not, as a read-only file system would.
    closed = "import os\nos.access = lambda path, mode: mode != os.W_OK\n"
    (kept / "postroad" / "trial" / "__init__.py").write_text(closed)
    home = kept / "home"
    home.mkdir()
    assert ask(kept, home) == ANSWER
    assert compiled(kept) == before != {}


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


def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path: Path) -> None:
    """The workers of a Spark executor start together, and ask the same kernels."""
    make_package(tmp_path / "postroad")
    (tmp_path / "postroad" / "trial" / "piece.py").write_text(PIECE.format(answer=48))
    # All of them look for machine code before one can have compiled it.
    looked = "from postroad.trial.caller import ask; ask.kept(); input(); print(ask(0))"
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(
            [sys.executable, "-c", looked],
            env=surroundings(tmp_path),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        for _ in range(3)
    ]
    for one in started:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    told = [one.communicate(timeout=120) for one in started]
    assert [out for out, _ in told] == ["48\n"] * 3
    assert sum("compiling kernels for this machine" in err for _, err in told) == 1


def test_machine_code_that_was_sent_is_found_and_not_compiled(kept: Path, tmp_path: Path) -> None:
    archived = "from pathlib import Path; from postroad.pipeline.worker_files import write_kernels"
    (tmp_path / "postroad" / "pipeline").mkdir()
    (tmp_path / "postroad" / "pipeline" / "__init__.py").touch()
    shutil.copy(PACKAGE / "pipeline" / "worker_files.py", tmp_path / "postroad" / "pipeline")
    sender = run(tmp_path, f"{ASK}; {archived}; print(write_kernels(Path({str(tmp_path / 'sent.zip')!r})))")
    assert sender.stdout.split() == [str(ANSWER), "1"]
    shutil.unpack_archive(tmp_path / "sent.zip", tmp_path / "received")
    shutil.rmtree(tmp_path / "postroad" / "__pycache__" / "kernels")
    receiver = run(tmp_path, LOADED, POSTROAD_KERNELS=str(tmp_path / "received"))
    assert receiver.stdout.split() == [str(ANSWER), "False"]
    assert not (tmp_path / "postroad" / "__pycache__" / "kernels").exists()


def test_folder_that_another_process_removes_meanwhile_does_no_harm(tmp_path: Path) -> None:
    """Two brokers that start after an update remove the same old folders."""
    package = tmp_path / "postroad"
    make_package(package)
    (package / "trial" / "piece.py").write_text(PIECE.format(answer=46))
    folder = package / "__pycache__" / "kernels"
    folder.mkdir(parents=True)
    # It is listed, and gone when it is looked at.
    (folder / "postroad.trial.caller@0123456789abcdef").symlink_to(tmp_path / "gone")
    assert ask(tmp_path) == 46


def test_process_that_finds_machine_code_does_not_load_the_compiler(kept: Path) -> None:
    second = run(kept, LOADED)
    assert second.stdout.split() == [str(ANSWER), "False"]
    assert second.stderr == ""


def test_machine_code_that_was_cut_off_is_compiled_again(kept: Path) -> None:
    (path,) = compiled(kept)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert ask(kept) == ANSWER
    assert len(path.read_bytes()) == len(whole)


@pytest.mark.parametrize("damage", ["zeroed", "changed", "older format"])
def test_machine_code_that_is_not_as_it_was_written_is_compiled_again_and_never_run(kept: Path, damage: str) -> None:
    (path,) = compiled(kept)
    head, _, code = path.read_bytes().partition(b"\n")
    if damage == "zeroed":
        code = bytes(len(code))
    elif damage == "changed":
        # An instruction that no processor has, everywhere.
        code = code[:64] + b"\x0f\x0b" * ((len(code) - 64) // 2)
    else:
        head = json.dumps([{**part, "sha256": None} for part in json.loads(head)]).encode()
    path.write_bytes(head + b"\n" + code)
    assert ask(kept) == ANSWER
    assert path.read_bytes() != head + b"\n" + code


def test_cache_that_others_can_write_to_is_not_read(tmp_path: Path) -> None:
    package, cache = tmp_path / "postroad", tmp_path / "cache"
    make_package(package)
    (package / "trial" / "piece.py").write_text(PIECE.format(answer=50))
    cache.mkdir(mode=0o755)
    assert int(run(tmp_path, ASK, NUMBA_CACHE_DIR=str(cache)).stdout) == 50
    before = compiled(cache)
    assert len(before) == 1
    cache.chmod(0o777)
    done = run(tmp_path, ASK, NUMBA_CACHE_DIR=str(cache))
    assert int(done.stdout) == 50
    assert "others than this user can write there" in done.stderr
    assert compiled(cache) == before


def test_compiler_and_machine_code_can_be_in_one_process(kept: Path) -> None:
    both = (
        "from postroad.trial.caller import ask; a = ask(0); import numba; "
        "b = numba.njit(lambda n: n + 1)(a); print(a, b, ask(2))"
    )
    assert run(kept, both).stdout.split() == [str(ANSWER), str(ANSWER + 1), str(ANSWER + 2)]


def test_several_processes_compile_all_kernels_that_are_missing(tmp_path: Path) -> None:
    package = tmp_path / "postroad"
    make_package(package)
    (package / "trial" / "piece.py").write_text(PIECE.format(answer=50))
    several = "".join(
        f'\n@kernel("int64(int64)")\ndef ask_{n}(number):\n    return answer() + number + {n}\n' for n in range(1, 9)
    )
    (package / "trial" / "caller.py").write_text(CALLER + several)
    everything = "from postroad.kernels import compile_everything; print(*compile_everything(processes=2))"
    assert run(tmp_path, everything).stdout.split() == ["9", "9"]
    assert len(compiled(tmp_path)) == 9
    assert run(tmp_path, everything).stdout.split() == ["9", "0"]
    check = "import sys; from postroad.trial.caller import ask_8; print(ask_8(0), 'numba' in sys.modules)"
    assert run(tmp_path, check).stdout.split() == ["58", "False"]


def test_machine_code_that_came_with_the_package_runs_on_processors_of_its_level(kept: Path) -> None:
    levels = "from postroad.kernels.targets import tags; print(*tags())"
    here, *portable = run(kept, levels).stdout.split()
    if not portable:
        pytest.skip("this processor is below the level of machine code in wheels")
    (path,) = compiled(kept)
    shipped = kept / "postroad" / "machine_code" / path.parent.name / path.name.replace(here, portable[0])
    shipped.parent.mkdir(parents=True)
    path.rename(shipped)
    found = run(kept, LOADED)
    assert found.stdout.split() == [str(ANSWER), "False"]
    assert list(compiled(kept)) == [shipped]
