"""What the driver of a cluster sends its workers: compiled kernels, and the package if it came as a wheel.

Machine code is named by the processor, the Python and the numba that it was made for. A worker that differs in one of
them finds nothing that fits, and compiles for itself once.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import postroad
from postroad.kernels.folders import RECEIVED_VARIABLE
from postroad.kernels.functions import KERNELS

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["KERNEL_SETTINGS", "send_kernels", "send_package", "write_kernels"]

# Executors unpack archives in their working directory, where their workers run.
FOLDER = "postroad-kernels"
KERNEL_SETTINGS = {f"spark.executorEnv.{RECEIVED_VARIABLE}": FOLDER}


def write_kernels(archive: Path) -> int:
    """Write the machine code of all kernels that this process knows and need not compile; return how many.

    Its kernels are those of the modules that it has imported. A driver imports what its workers run.
    """
    found = [(kernel.folder, path) for kernel in KERNELS if (path := kernel.kept()) is not None]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for folder, path in found:
            file.write(path, f"{folder}/{path.name}")
    return len(found)


def send_kernels(context: SparkContext) -> None:
    """Send this machine's compiled kernels to all executors of a session, once."""
    from pyspark import SparkFiles

    if any(name.endswith(f"#{FOLDER}") for name in context.listArchives):
        return
    # Spark deletes this directory when it stops.
    archive = Path(SparkFiles.getRootDirectory()) / f"{FOLDER}.zip"
    if write_kernels(archive):
        context.addArchive(f"{archive}#{FOLDER}")


def send_package(context: SparkContext) -> None:
    """Send the package to all executors of a session, once, if the driver has it in a wheel (`--py-files`).

    Spark passes wheels on to executors, but their workers only look for modules in files that end in .zip or .egg.
    """
    from pyspark import SparkFiles

    wheel = Path(postroad.__file__).parent.parent
    if not wheel.is_file():
        return
    folder = Path(SparkFiles.getRootDirectory()) / "package"
    if not folder.exists():
        folder.mkdir()
        context.addPyFile(str(shutil.copyfile(wheel, folder / "postroad.zip")))
