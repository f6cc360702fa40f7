"""What paths and URIs name, and which are refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from postroad.trail import TrailError
from postroad.trail.locations import StoredPath, forget_stores, location, put_file, relative, remove_file, size_of

if TYPE_CHECKING:
    from tests.trail.stores import Store


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/var/trail", "/var/trail"),
        ("trail", "trail"),
        ("c:trail", "c:trail"),
        ("file:/var/my%20trail", "/var/my trail"),
        ("file:/var/trail", "/var/trail"),
        ("file://localhost/var/trail", "/var/trail"),
    ],
)
def test_paths_and_file_uris_are_directories_of_this_machine(text: str, path: str) -> None:
    assert location(text) == Path(path)


def test_uri_of_a_store_survives_its_text_form_and_the_way_to_another_process() -> None:
    place = location("s3://bucket/some/trail/?region=eu-west-1")
    assert isinstance(place, StoredPath)
    assert str(place / "passages") == "s3://bucket/some/trail/passages"
    assert location(place.uri) == place
    assert pickle.loads(pickle.dumps(place)) == place
    assert (place / "a" / "b.parquet").name == "b.parquet"
    assert relative(place / "a" / "b.parquet", place) == "a/b.parquet"
    assert str(location("hdfs://host:8020/trail")) == "hdfs://host:8020/trail"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gs://bucket/trail", "no store gs://"),
        ("s3://key:secret@bucket/trail", "leave credentials out"),
        ("s3://bucket/trail?regions=x", "no option 'regions'"),
        ("s3:///trail", "write s3://bucket"),
        ("s3://bucket//trail", "no empty part"),
        ("file://elsewhere/trail", "of this machine"),
    ],
)
def test_other_uris_are_refused_and_told_why(text: str, why: str) -> None:
    with pytest.raises(TrailError, match=why) as refused:
        location(text)
    assert "secret" not in str(refused.value)


def test_directory_is_written_read_and_emptied_like_a_store(tmp_path: Path) -> None:
    place = location(f"file://{tmp_path}") / "a" / "b"
    put_file(place, memoryview(b"some bytes"))
    assert (size_of(place), place.read_bytes()) == (10, b"some bytes")
    remove_file(place)
    remove_file(place)
    with pytest.raises(FileNotFoundError):
        size_of(place)


def test_store_that_refuses_a_file_is_an_error(store: Store) -> None:
    place = store.place("refused")
    assert isinstance(place, StoredPath)
    put_file(place / "note", memoryview(b"before"))
    put_file(place / "large", memoryview(bytes(100_000)))
    store.fault = lambda request: "403" if request.method == "PUT" else ""
    # One of the same size is there already.
    for name, data in (("note", b"behind"), ("other", b"behind"), ("large", bytes(100_001))):
        with pytest.raises(OSError, match="the store did not take it"):
            put_file(place / name, memoryview(data))
    store.fault = lambda _: ""
    assert (place / "note").read_bytes() == b"before"


def test_bucket_that_is_not_there_is_named(store: Store) -> None:
    there = store.place("x")
    assert isinstance(there, StoredPath)
    place = location(there.uri.replace("//trails/", "//nowhere/"))
    with pytest.raises(OSError, match=r"s3://nowhere/x/file: there is no bucket nowhere"):
        put_file(place / "file", memoryview(b"data"))


def test_uploads_are_made_in_the_calling_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import fs

    opened = []

    def open_store(**settings: object) -> fs.FileSystem:
        opened.append(settings)
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())

    monkeypatch.setattr(fs, "S3FileSystem", open_store)
    forget_stores()
    put_file(location("s3://bucket?region=eu-west-1"), memoryview(b"one"))
    forget_stores()
    # A failed upload of pyarrow's own threads reports to a stream that may be gone: the process ends.
    assert [settings["background_writes"] for settings in opened] == [False]
