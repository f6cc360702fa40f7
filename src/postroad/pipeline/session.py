"""The Spark session that jobs run in: on this machine by default, on any master, or over Spark Connect."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from postroad.pipeline.errors import JavaMissingError, PipelineError
from postroad.pipeline.java_options import SMALL, java_options
from postroad.pipeline.jvm_messages import start_jvm
from postroad.pipeline.warm_server import warm_address
from postroad.pipeline.worker_files import KERNEL_SETTINGS, send_kernels, send_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = [
    "DEFAULT_MASTER",
    "SparkStart",
    "changed_environment",
    "check_java",
    "is_local_master",
    "session",
    "surroundings",
]

DEFAULT_MASTER = "local[*]"
OLDEST_JAVA = 17
# The default port of a Connect server, and how long it may take to answer.
CONNECT_PORT, CONNECT_SECONDS = 15_002, 20.0

# The arrays of one batch, its decoded rows and Spark's own buffers, for two tasks at a time.
LOCAL_MEMORY = "4g"

# umask: no rights for the group and others.
PRIVATE_MASK = 0o077

_SETTINGS = {
    # The jobs themselves broadcast or cogroup ids. A sort-merge join over raw records is the one plan that Spark must
    # not choose (docs/pipeline.md has the numbers).
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # One Arrow batch holds as many rows as a row group of the trail; rows with filters are bounded by bytes instead.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The trail's partition columns are declared, not inferred.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.shuffle.partitions": "32",
    # The manifests name every file. Spark only has to look at their sizes, which needs no job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # One line reports what ends a job. Spark would print forty lines of Java for each task that met the error.
    "spark.log.level": "FATAL",
}


# For work that takes less time than Spark's start: no code generation for a few rows, and few tasks.
_SMALL_SETTINGS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.shuffle.partitions": "4"}


def session(
    master: str | None = None,
    *,
    name: str = "postroad",
    settings: Mapping[str, str] | None = None,
    small: bool = False,
) -> SparkSession:
    """Return a Spark session, or the running one with the same name.

    Args:
        master: `local[2]`, `spark://host:7077`, `k8s://…`, `yarn`; `sc://host` is Spark Connect. By default `local[*]`,
            or what `spark-submit` says.
        name: shown in Spark's own pages.
        settings: further Spark settings; they override the defaults made here.
        small: little work is expected, so that a local Spark should start fast rather than run fast.

    Raises:
        JavaMissingError: Spark would run here, and there is no Java for it.
        PipelineError: PySpark is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineError(
            f"the pipeline needs PySpark ({error}); install it with: pip install 'postroad[spark]'"
        ) from None
    if master is not None and master.startswith("sc://"):
        return _connected(master, dict(settings or {}))
    submitted = is_submitted()
    if master is None and not submitted:
        master = DEFAULT_MASTER
    if not submitted:
        check_java()
    builder = SparkSession.builder.appName(name)
    chosen = dict(_SETTINGS)
    is_local = master is not None and is_local_master(master)
    if master is not None:
        builder = builder.master(master)
    if is_local:
        chosen |= {"spark.driver.memory": LOCAL_MEMORY, "spark.driver.bindAddress": "127.0.0.1"}
        chosen |= _SMALL_SETTINGS if small else {}
        options = java_options(small=small)
        chosen |= {"spark.driver.extraJavaOptions": options} if options else {}
    else:
        chosen |= KERNEL_SETTINGS
    if submitted:
        chosen = _not_given(chosen)
    chosen |= dict(settings or {})
    for key, value in chosen.items():
        builder = builder.config(key, value)
    # What Spark spills and writes is as private as the trail; its processes inherit the mask.
    before = os.umask(PRIVATE_MASK)
    try:
        with changed_environment(surroundings(is_local, submitted=submitted)):
            if is_local and not submitted:
                start_jvm({"spark.app.name": name, "spark.master": str(master), **chosen})
            made = builder.getOrCreate()
    finally:
        os.umask(before)
    if not is_local_master(made.sparkContext.master or ""):
        send_package(made.sparkContext)
        send_kernels(made.sparkContext)
    return made


def _not_given(chosen: dict[str, str]) -> dict[str, str]:
    """Return those of our settings that `spark-submit` did not override."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    given = SparkConf()
    return {key: value for key, value in chosen.items() if not given.contains(key)}


def is_local_master(master: str) -> bool:
    """Return whether Spark runs on this machine alone, even in several processes (`local-cluster[…]`)."""
    return master.startswith("local")


def is_submitted() -> bool:
    """Return whether `spark-submit` started this process; it then says where Spark runs."""
    return os.environ.get("SPARK_ENV_LOADED") is not None or "PYSPARK_GATEWAY_PORT" in os.environ


class SparkStart:
    """Starts Spark when a job first needs it; several jobs may share one session.

    Args:
        master: where Spark runs.
        name: shown in Spark's own pages.
        settings: further Spark settings.

    Attributes:
        made: the session, once a job needed one.
        seconds: what its start took.
        is_small: whether the work is little, as far as is known before the start.
    """

    def __init__(self, master: str | None = None, name: str = "postroad", settings: Mapping[str, str] | None = None):
        self._master, self._name, self._settings = master, name, settings
        self.made: SparkSession | None = None
        self.seconds = 0.0
        self.is_small = False

    @property
    def is_here(self) -> bool:
        """Return whether Spark would serve this process alone, so that small work is faster without it."""
        return not is_submitted() and is_local_master(self._master or DEFAULT_MASTER)

    def __call__(self) -> SparkSession:
        if self.made is None:
            began = time.monotonic()
            master = self._master
            # A server that runs already takes no settings of the start; then another Spark starts.
            if master is None and not is_submitted() and not _of_a_start(self._settings or {}):
                master = warm_address()
            with _own_interrupts():
                self.made = session(master, name=self._name, settings=self._settings, small=self.is_small)
            self.seconds = time.monotonic() - began
        return self.made

    def stop(self) -> None:
        """Stop Spark, if it was started."""
        made, self.made = self.made, None
        if made is not None:
            made.stop()


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep the handler of Ctrl-C: Spark installs its own on start, which would end a job in the middle of a call."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if current_thread() is main_thread():
            signal.signal(signal.SIGINT, before)


def _connected(address: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session on a Spark Connect server, with those settings that a client may change.

    Raises:
        PipelineError: the client's libraries are missing, or no server responds.
    """
    from pyspark.errors import PySparkException, PySparkImportError
    from pyspark.sql import SparkSession

    there = urlsplit(address)
    if late := _of_a_start(settings):
        raise PipelineError(
            f"{_shown(address)}: --conf {late[0]}: a Spark Connect server takes this setting when it starts: set it "
            "there, or leave it out"
        )
    try:
        # Spark itself would retry for ten minutes.
        socket.create_connection((there.hostname or "", there.port or CONNECT_PORT), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise PipelineError(f"{_shown(address)}: there is no Spark Connect server that answers ({error})") from None
    try:
        made = SparkSession.builder.remote(address).getOrCreate()
        for key, value in {**_SETTINGS, **settings}.items():
            if made.conf.isModifiable(key):
                made.conf.set(key, value)
            elif key in settings:
                raise PipelineError(
                    f"{_shown(address)}: --conf {key}: the server lets no client set this; leave it out"
                )
    except PySparkImportError as error:
        first = str(error).splitlines()[0]
        raise PipelineError(f"Spark Connect needs more ({first}); pip install 'postroad[connect]'") from None
    except PySparkException as error:
        first = next(line for line in [*str(error).splitlines(), type(error).__name__] if line.strip())
        raise PipelineError(f"{_shown(address)}: the Spark Connect server refuses: {first}") from None
    return made


def _of_a_start(settings: Mapping[str, str]) -> list[str]:
    """Return those settings that Spark takes only when it starts."""
    return [key for key in settings if not key.startswith("spark.sql.")]


def _shown(address: str) -> str:
    """Return an address without its parameters, which may contain a secret."""
    return address.partition("/;")[0]


def check_java() -> None:
    """Refuse to start where Spark could not, before Spark prints forty lines about it.

    Raises:
        JavaMissingError: there is no Java, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None:
        raise JavaMissingError("there is no `java` on the PATH and JAVA_HOME is not set")
    try:
        output = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    except OSError as error:
        raise JavaMissingError(f"{command} cannot be run ({error.strerror})") from None
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    if found is None or int(found[1]) < OLDEST_JAVA:
        raise JavaMissingError(f"{command} is {'version ' + found[1] if found else 'of an unknown version'}")


def surroundings(is_local: bool, *, submitted: bool = False) -> dict[str, str]:
    """Return the environment variables that Spark reads from the process that starts it.

    Workers run the same Python as this process. Without this setting a worker picks the first `python3` it finds, which
    may lack our package. On other machines the same path must exist, or `PYSPARK_PYTHON` names another; `spark-submit`
    sets that from `spark.pyspark.python`. A local master opens no socket beyond loopback; by default, `local-cluster`
    would bind to the machine's outer address. The workers of a cluster must reach the driver, so there Spark chooses
    the address, or `SPARK_LOCAL_IP` does.
    """
    if is_local:
        return {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            # A JVM that only builds the command line of the next one.
            "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", " ".join(SMALL)),
        }
    python = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    return python if submitted else {**python, "PYSPARK_DRIVER_PYTHON": sys.executable}


@contextmanager
def changed_environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while: the next session may have another master."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
