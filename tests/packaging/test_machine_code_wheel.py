"""The wheel with machine code: the pure one and more files, in order for pip."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.structure.repository import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("tool", ROOT / "scripts" / "lib" / "machine_code_wheel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_wheel_with_more_files_is_installed_and_checked_by_pip(tmp_path: Path) -> None:
    pure = tmp_path / "trial-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pure, "w") as wheel:
        wheel.writestr("trial/__init__.py", "")
        wheel.writestr("trial-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: trial\nVersion: 1.0\n")
        head = "Wheel-Version: 1.0\nGenerator: test\n"
        wheel.writestr("trial-1.0.dist-info/WHEEL", f"{head}Root-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("trial-1.0.dist-info/RECORD", "")
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    made = tool().with_files(pure, {"trial/code/one": b"\x00\x01"}, f"{python}-{python}-linux_x86_64")
    assert made.name == f"trial-1.0-{python}-{python}-linux_x86_64.whl"
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    options = ["--platform", "linux_x86_64", "--only-binary", ":all:", "--target", str(target)]
    subprocess.run([*pip, *options, str(made)], check=True)
    assert (target / "trial" / "code" / "one").read_bytes() == b"\x00\x01"


def test_machine_code_of_a_wheel_is_found_by_any_processor_of_its_level(tmp_path: Path) -> None:
    making = tool()
    kernel = making.every_kernel()[0]
    folder = tmp_path / kernel.folder
    folder.mkdir()
    # As the compiler names them: for one kind of processor, in one state of the sources.
    (folder / kernel.file(f"x86-64-v3-89abcdef.{making.interface()}")).write_bytes(b"code")
    (folder / kernel.file(f"znver3-89abcdef.{making.interface()}")).write_bytes(b"another processor's")
    older = tmp_path / f"{kernel.folder[:-1]}x"
    older.mkdir()
    (older / kernel.file(f"x86-64-v3-89abcdef.{making.interface()}")).write_bytes(b"older code")
    assert making.machine_code(tmp_path, "x86-64-v3", [kernel]) == {
        f"postroad/machine_code/{kernel.folder}/{kernel.file(f'x86-64-v3.{making.interface()}')}": b"code"
    }


def test_wheel_without_the_machine_code_of_a_kernel_is_refused(tmp_path: Path) -> None:
    making = tool()
    kernel = making.every_kernel()[0]
    with pytest.raises(SystemExit, match=f"{kernel.name} was not compiled for x86-64-v3"):
        making.machine_code(tmp_path, "x86-64-v3", [kernel])
