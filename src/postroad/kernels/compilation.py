"""Compiling what is missing: once, by several processes, and not in silence.

Every kernel is compiled by itself, so the work can be shared. A helper loads the compiler and forks; its processes take
module after module, the largest first: pieces that kernels of several modules use are then compiled in each of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from postroad.kernels import folders
from postroad.kernels.functions import KERNELS
from postroad.kernels.sources import kernel_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from postroad.kernels.functions import Kernel
    from postroad.kernels.machine_code import Compiled

    Progress = Callable[[int, int], None]

__all__ = ["compile_everything", "compile_missing", "compile_one", "compile_or_wait", "load_all", "missing_kernels"]

# How often progress is reported: often enough to see that it continues, seldom enough for a log.
PROGRESS_SECONDS = 5.0
# How often the work of other processes is looked at.
LOOK_SECONDS = 0.2
# Fewer are compiled here: a process that loads the compiler costs as much as some kernels.
WORTH_SHARING = 8

_PROGRAM = "import sys; from postroad.kernels.compilation import compile_share; compile_share(sys.argv[1:])"
_log = logging.getLogger("postroad.kernels")
_announced: set[str] = set()


def missing_kernels(spared: tuple[str, ...] = ()) -> list[Kernel]:
    """The kernels of the imported modules that have no machine code for this machine yet.

    Args:
        spared: modules and folders of modules that do not count.
    """
    return [kernel for kernel in _wanted(spared) if not kernel.is_loaded and kernel.kept() is None]


def load_all(spared: tuple[str, ...] = ()) -> None:
    """Load the kernels of the imported modules now, so that no later call waits for them.

    Args:
        spared: modules and folders of modules that can wait for a first call.
    """
    for kernel in _wanted(spared):
        kernel.load()


def _wanted(spared: tuple[str, ...]) -> Iterator[Kernel]:
    inside = tuple(f"{name}." for name in spared)
    return (kernel for kernel in KERNELS if not f"{kernel.function.__module__}.".startswith(inside))


def compile_one(kernel: Kernel) -> list[Compiled]:
    """Compile a kernel and keep its machine code."""
    from postroad.kernels.machine_code import packed
    from postroad.kernels.targets import tags

    _announce()
    from postroad.kernels import compiler

    parts = compiler.compiled(kernel)
    with contextlib.suppress(OSError):  # A full disk costs time at the next start, not at this one.
        folders.write(kernel.folder, kernel.file(tags()[0]), packed(parts))
        folders.forget_older(kernel.function.__module__, kernel.folder)
    return parts


def compile_or_wait(kernel: Kernel) -> list[Compiled]:
    """Compile a kernel; where another process compiles, wait for it and take what it made of this one.

    The workers of a Spark executor meet the same kernels at the same time.
    """
    with _alone():
        return kernel.read() or compile_one(kernel)


def compile_missing(
    progress: Progress | None = None, processes: int | None = None, spared: tuple[str, ...] = ()
) -> int:
    """Compile the kernels of the imported modules that are missing; returns how many those were.

    Args:
        progress: called with how many of how many are done; by default this is logged every few seconds.
        processes: how many compile; by default one for each processor.
        spared: modules and folders of modules that can wait for a first call.
    """
    if not missing_kernels(spared):
        return 0
    with _alone():
        missing = missing_kernels(spared)
        if not missing:
            return 0
        _announce()
        report = progress or _Log()
        report(0, len(missing))
        count = processes or len(os.sched_getaffinity(0))
        if count == 1 or len(missing) < WORTH_SHARING or not folders.is_lasting():
            for done, kernel in enumerate(missing):
                compile_one(kernel)
                report(done + 1, len(missing))
        else:
            _share(missing, count, report)
    return len(missing)


def compile_everything(progress: Progress | None = None, processes: int | None = None) -> tuple[int, int]:
    """Compile all kernels that are missing; returns how many there are, and how many were compiled."""
    for module in kernel_modules():
        import_module(module)
    missing = compile_missing(progress, processes)
    return len(KERNELS), missing


class _Log:
    """Tells the log of progress, not too often."""

    def __init__(self) -> None:
        self._shown_at = time.monotonic()

    def __call__(self, done: int, count: int) -> None:
        now = time.monotonic()
        if now - self._shown_at > PROGRESS_SECONDS:
            self._shown_at = now
            _log.warning("postroad: compiled %d of %d kernels", done, count)


def _announce() -> None:
    """Says once why this start takes long."""
    if not _announced:
        _announced.add("compiling")
        _log.warning("postroad: compiling kernels for this machine, once; this takes about half a minute")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Only one process at a time compiles into a folder; others wait, and find what it has compiled."""
    folder = folders.store_folder()
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((folder / "lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.warning("postroad: another process compiles the kernels; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            # A full disk, or one without locks: the same kernel may be compiled twice, and is written whole each time.
            _log.debug("postroad: %s cannot be locked", folder)
        yield


def _share(missing: list[Kernel], processes: int, report: Progress) -> None:
    """Let processes compile; what they leave is compiled here."""
    modules = sorted({kernel.function.__module__ for kernel in missing}, key=lambda module: -_weight(missing, module))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with tempfile.TemporaryDirectory(prefix="postroad-") as claims:
        helper = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(min(processes, len(modules))), claims, *modules],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            process_group=0,
        )
        try:
            while helper.poll() is None:
                time.sleep(LOOK_SECONDS)
                report(sum(kernel.kept() is not None for kernel in missing), len(missing))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(helper.pid, signal.SIGTERM)
            helper.wait()
    for kernel in missing:
        if kernel.kept() is None:
            compile_one(kernel)


def _weight(kernels: Iterable[Kernel], module: str) -> int:
    """A guess at what compiling a module takes: kernels with many arguments are the large ones."""
    return sum(len("".join(kernel.signatures)) for kernel in kernels if kernel.function.__module__ == module)


def compile_share(arguments: Iterable[str]) -> None:
    """What a helper does: become several, and compile one module after the other that none of them has claimed.

    It is forked when it has loaded the compiler, which takes as long as some kernels.
    """
    processes, claims, *modules = arguments
    _announced.add("compiling")
    for module in modules:
        import_module(module)
    from postroad.kernels import compiler

    compiler.prepare()
    children: list[int] = []
    for _ in range(int(processes) - 1):
        child = os.fork()
        if not child:
            children = []
            break
        children.append(child)
    for module in modules:
        try:
            Path(claims, module).touch(exist_ok=False)
        except FileExistsError:
            continue
        for kernel in KERNELS:
            if kernel.function.__module__ == module and kernel.kept() is None:
                compile_one(kernel)
    for child in children:
        os.waitpid(child, 0)
