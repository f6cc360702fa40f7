"""What the JVM of a local Spark says on stderr, without the lines that it says at every start.

They come before any setting of Spark counts, from the JVM itself and from Spark's logging: whoever runs a command would
have to read five lines to learn that nothing is wrong. All else that the JVM and Spark's Python workers say is passed
on as it comes.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_noise", "start_jvm"]

_BEGINNINGS = (
    b"WARNING: Using incubator modules:",
    b"Using Spark's default log4j profile:",
    b"Setting default log level to ",
    b"Setting Spark log level to ",
    b"To adjust logging level use ",
)
# After a time.
_WARNINGS = (
    b" WARN NativeCodeLoader: Unable to load native-hadoop library",
    b" WARN Utils: Your hostname, ",
    b" WARN Utils: Set SPARK_LOCAL_IP if you need to bind",
)
# What is left in the pipe of a JVM that could not start is passed on within this time.
LAST_WORDS_SECONDS = 5.0


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM with Spark's settings, unless one runs; what it says goes to this process's stderr."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    reading, writing = os.pipe()
    muted = Event()
    passing = Thread(target=_pass_on, args=(reading, muted), name="postroad-jvm-messages", daemon=True)
    passing.start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    except KeyboardInterrupt:
        # It stumbles over what is cleared away here, and says so at length.
        muted.set()
        os.close(writing)
        raise
    except BaseException:
        os.close(writing)
        passing.join(LAST_WORDS_SECONDS)
        raise
    os.close(writing)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def is_noise(line: bytes) -> bool:
    """Whether a line says nothing."""
    return line.startswith(_BEGINNINGS) or any(part in line for part in _WARNINGS)


def _pass_on(reading: int, muted: Event) -> None:
    # Until the JVM and all that it started have ended.
    with os.fdopen(reading, "rb") as said:
        for line in said:
            if not is_noise(line) and not muted.is_set():
                with suppress(OSError, ValueError):
                    sys.stderr.write(line.decode("utf-8", "replace"))
                    sys.stderr.flush()
