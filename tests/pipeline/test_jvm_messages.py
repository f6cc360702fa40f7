"""Of what the JVM says, only what says something reaches the user."""

from __future__ import annotations

import pytest

from postroad.pipeline.jvm_messages import is_noise


@pytest.mark.parametrize(
    "line",
    [
        b"WARNING: Using incubator modules: jdk.incubator.vector\n",
        b"Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties\n",
        b'Setting default log level to "WARN".\n',
        b'Setting Spark log level to "FATAL".\n',
        b"To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).\n",
        b"26/11/16 17:00:00 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform\n",
    ],
)
def test_what_is_said_at_every_start_is_noise(line: bytes) -> None:
    assert is_noise(line)


@pytest.mark.parametrize(
    "line",
    [
        b"Error: A JNI error has occurred, please check your installation and try again\n",
        b"java.lang.OutOfMemoryError: Java heap space\n",
        b"26/11/16 17:00:00 ERROR SparkContext: Error initializing SparkContext.\n",
        b"26/11/16 17:00:00 WARN TaskSetManager: Lost task 0.0 in stage 0.0\n",
        b"\n",
    ],
)
def test_what_may_matter_is_passed_on(line: bytes) -> None:
    assert not is_noise(line)
