"""A wheel with machine code, made of the pure one: python scripts/lib/machine_code_wheel.py FOLDER CACHE.

FOLDER holds the pure wheel and gets the other one. CACHE is where kernels are compiled to, and kept for the next time.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from postroad.kernels.functions import KERNELS
from postroad.kernels.sources import kernel_modules
from postroad.kernels.targets import PORTABLE, interface

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.kernels.functions import Kernel

INSIDE = "postroad/machine_code"


def compile_kernels(cache: Path, level: str) -> None:
    """Compile all kernels for a level of processors, into a folder of their own."""
    # No features beside those that the level stands for.
    target = {"NUMBA_CACHE_DIR": str(cache), "NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}
    program = "from postroad.cli import main; main()"
    subprocess.run([sys.executable, "-P", "-c", program, "warm"], env={**os.environ, **target}, check=True)


def machine_code(cache: Path, level: str, kernels: Iterable[Kernel]) -> dict[str, bytes]:
    """The machine code of kernels, under the names by which any processor of the level finds it.

    A cache also holds older states of kernels, and code for other processors: these are left out.
    """
    found = {}
    for kernel in kernels:
        paths = sorted((cache / kernel.folder).glob(kernel.file(f"{level}-*.{interface()}")))
        if not paths:
            raise SystemExit(f"{kernel.name} was not compiled for {level} in {cache}")
        found[f"{INSIDE}/{kernel.folder}/{kernel.file(f'{level}.{interface()}')}"] = paths[0].read_bytes()
    return found


def every_kernel() -> list[Kernel]:
    """All kernels of the package."""
    for module in kernel_modules():
        import_module(module)
    return list(KERNELS)


def with_files(pure: Path, files: dict[str, bytes], tag: str) -> Path:
    """The wheel with more files, for a platform."""
    name, version, *_ = pure.name.split("-")
    result = pure.with_name(f"{name}-{version}-{tag}.whl")
    information = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(pure) as source:
        content = {entry: source.read(entry) for entry in source.namelist() if entry != f"{information}/RECORD"}
    described = content[f"{information}/WHEEL"].decode()
    lines = [line for line in described.splitlines() if not line.startswith(("Tag:", "Root-Is-Purelib:"))]
    content[f"{information}/WHEEL"] = "\n".join([*lines, "Root-Is-Purelib: false", f"Tag: {tag}", ""]).encode()
    content |= files
    record = [f"{entry},sha256={_digest(data)},{len(data)}" for entry, data in content.items()]
    record.append(f"{information}/RECORD,,")
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as target:
        for entry, data in content.items():
            target.writestr(entry, data)
        target.writestr(f"{information}/RECORD", "\n".join(record) + "\n")
    return result


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main(folder: Path, cache: Path) -> int:
    machine = os.uname().machine
    if machine not in PORTABLE:
        print(f"no level of processors is known for {machine}; there is the pure wheel alone", file=sys.stderr)
        return 0
    level = PORTABLE[machine][0]
    compile_kernels(cache, level)
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    tag = f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    pure = max(folder.glob("postroad-*-py3-none-any.whl"), key=lambda path: path.stat().st_mtime)
    files = machine_code(cache, level, every_kernel())
    made = with_files(pure, files, tag)
    print(f"{made}: {len(files)} kernels for {level}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
