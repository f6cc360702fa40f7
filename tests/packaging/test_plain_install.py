"""The source distribution has everything; installed into an empty environment without extras, it serves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import venv
from typing import TYPE_CHECKING, Any

import pytest

from postroad import __version__
from tests.structure.repository import ROOT, files, name

if TYPE_CHECKING:
    from pathlib import Path

# Compiling is tested elsewhere and takes a minute. The key of compiled kernels is their source: what the tests have
# compiled is what the installed package would compile.
KERNELS = ROOT / "src" / "postroad" / "__pycache__" / "kernels"
PATIENCE_SECONDS = 240


def run(command: list[str | Path], **options: Any) -> str:
    finished = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=PATIENCE_SECONDS, **options
    )
    assert finished.returncode == 0, f"{command}:\n{finished.stdout}\n{finished.stderr}"
    return str(finished.stdout)


@pytest.fixture(scope="module")
def source_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built from a copy: building leaves folders behind."""
    folder = tmp_path_factory.mktemp("source")
    tree = folder / "tree"
    for path in files():
        copy = tree / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run([sys.executable, "-c", build, folder], cwd=tree)
    return folder / f"postroad-{__version__}.tar.gz"


def test_source_distribution_has_every_file_of_the_repository(source_archive: Path) -> None:
    with tarfile.open(source_archive) as archive:
        packed = {one.name.partition("/")[2]: one for one in archive if one.isfile()}
    made = {path for path in packed if path in ("PKG-INFO", "setup.cfg") or ".egg-info/" in path}
    assert set(packed) - made == {name(path) for path in files()}
    assert packed["scripts/test"].mode & 0o111


@pytest.fixture(scope="module")
def installed(source_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment into which pip has put the package and what it declares, and nothing else."""
    folder = tmp_path_factory.mktemp("install")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run([*pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, source_archive])
    (wheel,) = folder.glob(f"postroad-{__version__}-*.whl")
    environment = folder / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    # Without bytecode: most modules of the libraries are never imported here.
    run([*pip, "--python", python, "install", "--no-compile", "--constraint", ROOT / "constraints.txt", wheel])
    return environment / "bin"


def test_plain_install_publishes_subscribes_and_traces(installed: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", str(KERNELS)),
    }
    environment.pop("PYTHONPATH", None)
    options: dict[str, Any] = {"cwd": tmp_path, "env": environment}
    command = installed / "postroad"
    assert run([command, "--version"], **options) == f"postroad {__version__}\n"

    with subprocess.Popen(
        [command, "broker", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    ) as broker:
        try:
            assert broker.stdout is not None
            ready = broker.stdout.readline()
            assert "is ready: stomp://" in ready, broker.stderr.read() if broker.stderr else ""
            address = ready.split("is ready: ")[1].strip()
            with subprocess.Popen(
                [command, "subscribe", "greetings", "--server", address, "--count", "1"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                **options,
            ) as subscriber:
                assert subscriber.stderr is not None
                assert "subscribed to" in subscriber.stderr.readline()
                message = run([command, "publish", "greetings", "hello", "--server", address, "--receipt"], **options)
                assert "hello" in subscriber.communicate(timeout=PATIENCE_SECONDS)[0]
        finally:
            broker.send_signal(signal.SIGTERM)
            broker.wait(PATIENCE_SECONDS)
    trace = run([command, "trace", message.strip(), "--trail", "postroad-data/trail"], **options)
    assert "delivered, certain" in trace
