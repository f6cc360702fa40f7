"""Options of the JVM that runs Spark for this process alone, when starting it costs more than the work.

A class-data archive holds the classes that Spark loads in the form the JVM keeps in memory, so the JVM maps them
instead of parsing and verifying them. `postroad warm --spark` makes one, for this Java and this Spark. If it is missing
or does not fit, the JVM does without it silently.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from postroad.pipeline.errors import PipelineError
from postroad.trail.access import make_folders

__all__ = ["SMALL", "archive_path", "java_options", "make_archive"]

# Only the first of two compilers, and a collector without threads of its own. A short session runs most of its code a
# few times: optimising it takes longer than it saves.
SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# The JVM warns about an archive that does not fit. `warm` renews it; a user who traces a message need not know.
_SILENT = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")
# A session, a small job and the archive at the end, on a busy machine.
MAKING_SECONDS = 600

# What jobs do: read and write Parquet, run Python over Arrow batches, shuffle, join, sort and sum up.
_PROGRAM = """
import sys, tempfile
from pyspark import SparkContext
from pyspark.sql import functions as f
from postroad.pipeline.session import session

spark = session("local[2]", settings={"spark.driver.extraJavaOptions": sys.argv[1]}, small=True)
with tempfile.TemporaryDirectory(prefix="postroad-") as folder:
    rows = spark.range(1000).select("id", f.pmod("id", f.lit(7)).alias("part"), f.xxhash64("id").alias("key"))
    rows.write.parquet(folder + "/rows")
    read = spark.read.schema("id bigint, part bigint, key bigint").parquet(folder + "/rows")
    sums = read.groupBy("part").agg(f.sum("id").alias("sum"), f.count("*").alias("count"))
    joined = read.join(f.broadcast(sums), "part", how="inner").repartition(2, "part").sortWithinPartitions("id")
    mapped = joined.mapInArrow(lambda batches: batches, joined.schema)
    mapped.write.partitionBy("part").parquet(folder + "/mapped")
    read.groupBy("part").applyInArrow(lambda table: table, read.schema).collect()
    spark.read.parquet(folder + "/mapped").orderBy("id").limit(3).collect()
process = SparkContext._gateway.proc
spark.stop()
SparkContext._gateway.shutdown()
process.stdin.close()
sys.exit(process.wait())
"""


def archive_path() -> Path | None:
    """Return where the archive for this Java and this Spark is or would be; None for a user without a home."""
    import pyspark

    java = os.environ.get("JAVA_HOME") or os.path.realpath(shutil.which("java") or "java")
    place = Path(pyspark.__file__).parent / "jars"
    key = f"{java}:{pyspark.__version__}:{place}:{place.stat().st_mtime_ns if place.exists() else 0}"
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return cache / "postroad" / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def java_options(*, small: bool) -> str:
    """Return options for a local master; `small` if little work is expected."""
    chosen = [*SMALL] if small else []
    archive = archive_path()
    if archive is not None and archive.is_file() and archive.stat().st_uid == os.geteuid():
        chosen += [f"-XX:SharedArchiveFile={archive}", *_SILENT]
    return " ".join(chosen)


def make_archive() -> Path:
    """Make the archive with a session that does a little of all that jobs do; return its path.

    Raises:
        PipelineError: it cannot be made.
    """
    archive = archive_path()
    if archive is None:
        raise PipelineError("there is no home for a cache; set XDG_CACHE_HOME")
    try:
        make_folders(archive.parent)
    except OSError as error:
        raise PipelineError(f"{archive.parent}: cannot be made ({error.strerror})") from None
    unfinished = archive.with_name(f"{archive.name}.{uuid.uuid4().hex[:16]}")
    options = " ".join([*SMALL, f"-XX:ArchiveClassesAtExit={unfinished}", *_SILENT[1:]])
    try:
        made = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM, options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=MAKING_SECONDS,
        )
        if made.returncode or not unfinished.is_file():
            last = next(reversed(made.stderr.strip().splitlines()), f"it ended with {made.returncode}")
            raise PipelineError(f"the classes of Spark cannot be archived: {last}")
        unfinished.chmod(0o600)
        unfinished.replace(archive)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineError(f"{archive}: cannot be made ({error})") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return archive
