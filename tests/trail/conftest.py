"""One S3 server for all tests of a room that ship trails: its libraries take longer to load than the tests take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.trail.stores import Store, opened_store, s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of a server with an empty bucket."""
    with s3_server() as address:
        yield address


@pytest.fixture
def store(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The server behind a proxy that can go wrong."""
    with opened_store(s3, monkeypatch) as opened:
        yield opened
