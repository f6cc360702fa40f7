"""A standalone cluster of Spark on loopback: a master and two workers, each a process; and ways to disturb it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HOME = Path(pyspark.__file__).parent
# The processes do little: what starts fast is better than what runs fast.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A bound for what hangs. A test takes half a minute on a quiet machine.
PATIENCE_SECONDS = 600
# A look takes two requests to the driver, and goes through all processes.
LOOK_SECONDS = 0.1
# After this an executor that was stopped has not reported the end of a task that it had ended before.
SETTLED_SECONDS = 0.3
# Executors that have no task for so long go on for a while, longer each time.
STILL_SECONDS = 3.0
FIRST_RUN_SECONDS = 0.1


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def wait_until(met: Callable[[], bool], what: str) -> None:
    """Look until a condition is met; fails after a time in which even a slow machine is through."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not met():
        assert time.monotonic() < end, f"{what}: not within {PATIENCE_SECONDS} seconds"
        time.sleep(LOOK_SECONDS)


def answers(port: int) -> bool:
    """Whether somebody listens on a port of loopback."""
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


@contextmanager
def process(command: Sequence[object], folder: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its own group, which is killed at the end; what it says is in FOLDER/log."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [str(word) for word in command],
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield running
        finally:
            # Executors that a test has stopped die of this too.
            os.killpg(running.pid, signal.SIGKILL)
            running.wait(30)


@dataclass(frozen=True)
class Cluster:
    """Attributes:
    master: its address, for `--master`.
    caches: the user's cache of each worker.
    environment: for drivers: they stay on loopback.
    settings: for drivers: executors that start fast and take little.
    """

    master: str
    caches: Path
    environment: dict[str, str]
    settings: dict[str, str] = field(
        default_factory=lambda: {
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.shuffle.partitions": "2",
        }
    )

    def arguments(self, **more: str) -> list[str]:
        """The settings, and more (with `__` for a point), as arguments of a command."""
        further = {name.replace("__", "."): value for name, value in more.items()}
        return [word for name, value in (self.settings | further).items() for word in ("--conf", f"{name}={value}")]


@contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """A master and two workers with a core each; all that they start ends with them."""
    port = free_port()
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{JAVA_OPTIONS} -Dspark.master.rest.enabled=false",
        "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS,
    }
    # Not those of who runs the tests: workers of a cluster have a Python and a home of their own.
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "NUMBA_CACHE_DIR"):
        environment.pop(name, None)
    address, start = f"spark://127.0.0.1:{port}", [HOME / "bin" / "spark-class"]
    deploy = "org.apache.spark.deploy"
    master = [*start, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", 0]
    worker = [*start, f"{deploy}.worker.Worker", "--port", 0, "--webui-port", 0, "-c", 1, "-m", "1g"]
    with process(master, folder / "master", environment) as first:
        wait_until(lambda: first.poll() is not None or answers(port), "the master")
        # Two hosts, as far as Spark can tell: it tries no task twice on one.
        hosts = ["127.0.0.1", "127.0.0.2"]
        places = [folder / f"worker-{number}" for number in range(2)]
        own = [
            {**environment, "SPARK_LOCAL_IP": host, "XDG_CACHE_HOME": str(folder / "caches" / host)} for host in hosts
        ]
        with (
            process([*worker, "--host", hosts[0], "-d", places[0], address], places[0], own[0]),
            process([*worker, "--host", hosts[1], "-d", places[1], address], places[1], own[1]),
        ):
            yield Cluster(address, folder / "caches", environment)


# --- executors that are stopped or killed ---------------------------------------------------------------------------


def executor_processes(application: str) -> dict[str, int]:
    """Number of an executor of an application -> its process, by the arguments that it was started with."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and application in words:
                found[words[words.index("--executor-id") + 1]] = int(path.parent.name)
    return found


class Disturbance:
    """Stops the executors of a running application, and kills one that is in the middle of a task.

    An executor that is stopped cannot end its task: when it is killed, the task is under way for sure.

    Args:
        port: of the page of the application's driver.
        ended: whether the application is over.
    """

    def __init__(self, port: int, ended: Callable[[], bool]) -> None:
        self._base, self._ended = f"http://127.0.0.1:{port}/api/v1/applications", ended
        self._stopped: set[int] = set()

    def _asked(self, path: str) -> Any:
        """What the driver says; an empty list while it does not."""
        try:
            with urllib.request.urlopen(f"{self._base}{path}", timeout=10) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return []

    def _busy(self) -> tuple[dict[str, int], set[str]]:
        """The processes of the executors that the driver has, and which of them have a task, as far as it knows.

        An executor that has not told the driver of itself yet is left out: stopped then, it would never get a task.
        """
        for one in self._asked(""):
            told = {each["id"]: each for each in self._asked(f"/{one['id']}/executors") if each["isActive"]}
            there = {name: pid for name, pid in executor_processes(one["id"]).items() if name in told}
            return there, {name for name in there if told[name]["activeTasks"]}
        return {}, set()

    def stop_a_busy_one(self) -> int:
        """Stop all executors, wait until one of them has a task, and let the others go on; returns its process."""
        since, running_seconds = time.monotonic(), FIRST_RUN_SECONDS
        end = since + PATIENCE_SECONDS
        while True:
            assert not self._ended(), "the application ended before an executor had a task"
            assert time.monotonic() < end
            if time.monotonic() > since + STILL_SECONDS:
                # The driver has nothing to do; or it waits for an executor that was stopped before it was ready.
                self._go_on()
                time.sleep(running_seconds)
                since, running_seconds = time.monotonic(), 2 * running_seconds
            there, busy = self._busy()
            for pid in there.values():
                self._send(pid, signal.SIGSTOP)
                self._stopped.add(pid)
            if busy:
                time.sleep(SETTLED_SECONDS)
                there, busy = self._busy()
                chosen = [there[name] for name in sorted(busy) if there[name] in self._stopped]
                if chosen:
                    self._go_on(but=chosen[0])
                    return chosen[0]
            time.sleep(LOOK_SECONDS)

    def kill_a_busy_one(self) -> None:
        """Kill an executor in the middle of a task."""
        pid = self.stop_a_busy_one()
        os.kill(pid, signal.SIGKILL)
        self._stopped.discard(pid)

    def _go_on(self, but: int | None = None) -> None:
        for pid in self._stopped - {but}:
            self._send(pid, signal.SIGCONT)
        self._stopped &= {but} if but is not None else set()

    def _send(self, pid: int, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def __enter__(self) -> Disturbance:
        return self

    def __exit__(self, *_: object) -> None:
        self._go_on()


def python_without_package(folder: Path) -> Path:
    """A Python with all libraries of this one but our package, as workers have it that get that with the job."""
    import venv

    venv.create(folder, with_pip=False, symlinks=True)
    here, there = (next(Path(one, "lib").glob("python3*/site-packages")) for one in (sys.prefix, folder))
    # The paths that other .pth files add, that of our sources among them, do not count in a folder that is named so.
    (there / "libraries.pth").write_text(f"{here}\n")
    return folder / "bin" / "python"
