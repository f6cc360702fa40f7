"""One Spark session for all tests of the pipeline: starting one takes longer than most of the tests."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from postroad.pipeline import session
from tests.pipeline.trails import TROUBLED, make_trail
from tests.trail.stores import CREDENTIALS, Store, opened_store, s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

# Small data: a task costs more than its rows, so there are few of them, and nothing is compiled for a handful of rows.
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.ui.retainedExecutions": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two threads of this process."""
    # Workers have the environment that Spark was started in.
    os.environ.update(CREDENTIALS)
    # A JVM that starts fast: optimising what runs a few times takes a processor longer than it saves.
    made = session("local[2]", name="tests", settings=SETTINGS, small=True)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trail in which everything goes wrong at times; tests do not change it."""
    return make_trail(tmp_path_factory.mktemp("troubled") / "trail")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with few brokers and messages, where it is manifests that change, or nothing at all."""
    return make_trail(tmp_path_factory.mktemp("small") / "trail", replace(TROUBLED, brokers=3, messages=400))


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of an S3 server with an empty bucket."""
    with s3_server() as address:
        yield address


@pytest.fixture
def store(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The server behind a proxy that can go wrong."""
    with opened_store(s3, monkeypatch) as opened:
        yield opened
