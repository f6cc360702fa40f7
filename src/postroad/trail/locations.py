"""Places of trails and results: a directory of this machine, or a folder of a store with a URI.

One small layer over pyarrow's file systems. A directory stays a `Path`; a folder of a store is a `StoredPath`, which
has as much of a path as readers need. Credentials, regions and endpoints are found as pyarrow finds them: for `s3://`
in the environment, in profiles, or with the machine's role; for `hdfs://` in Hadoop's own configuration.
"""

from __future__ import annotations

import io
import os
import tempfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from postroad.trail.durable_files import replace_file
from postroad.trail.errors import TrailError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "Location",
    "Spans",
    "StoredPath",
    "changed_ms",
    "file_uri",
    "forget_stores",
    "is_there",
    "location",
    "put_file",
    "relative",
    "remove_file",
    "size_of",
    "store_away",
]

# How long a store may take to respond before it counts as away. The caller gets an error and tries again later.
CONNECT_SECONDS, REQUEST_SECONDS, ATTEMPTS = 10.0, 60.0, 3
# Written at a time; between two, a limit of the bandwidth may pause.
PORTION_BYTES = 1 << 20
# What is written over an earlier file of its name (notes, and lists of what counts) is smaller than this.
COMPARED_BYTES = 64 << 10
# Spans of a file so close to each other are fetched by one request: a second one takes longer than these bytes.
NEAR_BYTES = 1 << 18
_OPTIONS = {"s3": ("region", "endpoint_override", "scheme"), "hdfs": ("user", "replication")}
_SCHEMES = "file://, s3:// or hdfs://"


class _Store(NamedTuple):
    """A store: its scheme, its host (of HDFS), and the options of its URI, sorted."""

    scheme: str
    host: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, order=True)
class StoredPath:
    """A file or folder of a store, as far as it is like a path. It may travel to other processes.

    Attributes:
        store: which.
        path: as the store's file system has it: of S3, `bucket/folder/file`.

    All that asks the store raises `OSError` where the store does not answer, or refuses.
    """

    store: _Store
    path: str

    def __truediv__(self, name: str) -> StoredPath:
        return StoredPath(self.store, f"{self.path}/{name}")

    def __str__(self) -> str:
        return f"{self.store.scheme}://{self.store.host}{self.path}"

    @property
    def uri(self) -> str:
        """The whole URI, from which `location` makes the same."""
        return f"{self}?{urlencode(self.store.options)}" if self.store.options else str(self)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name

    @property
    def parent(self) -> StoredPath:
        return StoredPath(self.store, self.path.rpartition("/")[0])

    def relative_to(self, other: StoredPath) -> PurePosixPath:
        """The way from a folder above to this."""
        return PurePosixPath(self.path).relative_to(other.path)

    def absolute(self) -> StoredPath:
        return self

    def open(self, mode: str = "rb") -> Any:
        """The file, to be read from any place in it."""
        assert mode == "rb"
        return self._files.open_input_file(self.path)

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return bytes(file.read())

    def is_dir(self) -> bool:
        return bool(self._info().type.name == "Directory")

    def is_file(self) -> bool:
        return bool(self._info().type.name == "File")

    def exists(self) -> bool:
        return bool(self._info().type.name != "NotFound")

    def size(self) -> int:
        """Bytes of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        info = self._info()
        if info.type.name != "File":
            raise FileNotFoundError(f"{self} is not there")
        return int(info.size)

    def changed_ms(self) -> int:
        """When a file was put, in Unix ms.

        Raises:
            FileNotFoundError: there is none.
        """
        info = self._info()
        if info.type.name != "File" or info.mtime_ns is None:
            raise FileNotFoundError(f"{self} is not there")
        return int(info.mtime_ns // 1_000_000)

    def iterdir(self) -> Iterator[StoredPath]:
        """What is in a folder; nothing if there is no folder."""
        from pyarrow.fs import FileSelector

        for info in self._files.get_file_info(FileSelector(self.path, allow_not_found=True)):
            yield StoredPath(self.store, info.path)

    def glob(self, pattern: str) -> Iterator[StoredPath]:
        """What is below, by a pattern with `*` in the parts of a path."""
        first, _, rest = pattern.partition("/")
        for one in self.iterdir():
            if fnmatchcase(one.name, first):
                if rest:
                    yield from one.glob(rest)
                else:
                    yield one

    def write(self, data: memoryview, before: Callable[[int], None]) -> None:
        """Put a file in place; `before` is called with its size, before anything is sent.

        A store shows a file only when all of it has come. It is sent by one call, from a file of this machine: Python
        could be interrupted between two, and a stream that is given up half-way is closed by its destructor, which puts
        half a file in place, or holds up every thread of the process for as long as the store does not answer.
        """
        from pyarrow.fs import LocalFileSystem, copy_files

        before(len(data))
        with tempfile.NamedTemporaryFile(prefix="postroad-") as file:
            file.write(data)
            file.flush()
            copy_files(
                file.name,
                self.path,
                source_filesystem=LocalFileSystem(),
                destination_filesystem=self._files,
                chunk_size=PORTION_BYTES,
                use_threads=False,
            )
        self._check(data)

    def _check(self, data: memoryview) -> None:
        """Make sure that a file was taken: a store that refuses one, pyarrow names on stderr, and raises no error.

        Raises:
            OSError: it was not.
        """
        info = self._info()
        taken = info.type.name == "File" and info.size == len(data)
        if taken and len(data) <= COMPARED_BYTES:
            # One of the same size may have been there before. Buffers of pyarrow hold signed bytes, and a view of those
            # equals no view of others.
            taken = self.read_bytes() == bytes(data)
        if not taken:
            bucket = self.path.partition("/")[0]
            is_there = self.store.scheme != "s3" or self._files.get_file_info(bucket).type.name != "NotFound"
            reason = "the store did not take it" if is_there else f"there is no bucket {bucket}"
            raise OSError(f"{self}: {reason}")

    def unlink(self) -> None:
        self._files.delete_file(self.path)

    def _info(self) -> Any:
        return self._files.get_file_info(self.path)

    @property
    def _files(self) -> Any:
        return _file_system(self.store, self.path.partition("/")[0])


# A directory of this machine, or a folder of a store.
Location = Path | StoredPath


def location(where: str | Path | StoredPath) -> Location:
    """What a path or URI names: `/var/trail`, `file:/var/trail`, `s3://bucket/trail`, `hdfs://host:8020/trail`.

    Options follow a question mark, as pyarrow has them: `s3://bucket/trail?region=eu-west-1`.

    Raises:
        TrailError: no such place can be.
    """
    if not isinstance(where, str):
        return where
    scheme, colon, _ = where.partition(":")
    if not colon or not scheme.isalnum() or len(scheme) < 2 or not where[len(scheme) + 1 :].startswith("/"):
        return Path(where)
    parts = urlsplit(where)
    if scheme == "file":
        if parts.netloc not in ("", "localhost") or parts.query:
            raise TrailError(f"{where}: write file:/path for a directory of this machine")
        return Path(unquote(parts.path))
    if scheme not in _OPTIONS:
        raise TrailError(f"{where}: there is no store {scheme}://; give a directory, or a URI with {_SCHEMES}")
    if "@" in parts.netloc:
        # It would be in logs, in manifests and in the list of processes.
        raise TrailError(f"{scheme}://…: leave credentials out of the URI; give them by environment or profile")
    options = tuple(sorted(parse_qsl(parts.query)))
    unknown = [name for name, _ in options if name not in _OPTIONS[scheme]]
    if unknown:
        raise TrailError(f"{where}: there is no option {unknown[0]!r}; there are {', '.join(_OPTIONS[scheme])}")
    inside = unquote(parts.path).rstrip("/")
    if scheme == "s3" and (not parts.netloc or "//" in inside):
        raise TrailError(f"{where}: write s3://bucket/folder, with no empty part")
    if scheme == "s3":
        return StoredPath(_Store("s3", "", options), parts.netloc + inside)
    return StoredPath(_Store(scheme, parts.netloc, options), inside)


@lru_cache
def _file_system(store: _Store, bucket: str) -> Any:
    from pyarrow import fs

    options = dict(store.options)
    if store.scheme == "hdfs":
        host, _, port = store.host.partition(":")
        return fs.HadoopFileSystem(
            host or "default",
            int(port or 0),
            user=options.get("user"),
            replication=int(options.get("replication", 3)),
        )
    endpoint = options.get("endpoint_override") or os.environ.get("AWS_ENDPOINT_URL_S3")
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL")
    region = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and endpoint is None:
        region = fs.resolve_s3_region(bucket)
    scheme, _, rest = (endpoint or "").rpartition("://")
    settings = {
        "region": region,
        "scheme": options.get("scheme") or scheme or None,
        "endpoint_override": rest or None,
        "connect_timeout": CONNECT_SECONDS,
        "request_timeout": REQUEST_SECONDS,
        "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        # In threads of pyarrow, a failed upload may report to a stream that is gone, which ends the process.
        "background_writes": False,
    }
    try:
        # One request for a small file, instead of the three that a file in parts takes.
        return fs.S3FileSystem(**settings, allow_delayed_open=True)
    except TypeError:
        return fs.S3FileSystem(**settings)  # pyarrow before 18 has no such choice


def forget_stores() -> None:
    """Open stores again when they are next asked: settings in the environment may have changed."""
    _file_system.cache_clear()


def store_away(place: object, error: OSError) -> TrailError:
    """What is said about a store that does not answer, or refuses."""
    first = str(error).partition("\n")[0]
    return TrailError(f"{place}: the store does not answer, or refuses ({first}); try again, or look at its settings")


def relative(place: Location, root: Location) -> str:
    """The way from a folder to what is below it, with slashes."""
    if isinstance(place, StoredPath):
        assert isinstance(root, StoredPath)
        return place.relative_to(root).as_posix()
    assert isinstance(root, Path)
    return place.relative_to(root).as_posix()


def size_of(place: Location) -> int:
    """Bytes of a file.

    Raises:
        FileNotFoundError: there is none.
    """
    return place.size() if isinstance(place, StoredPath) else place.stat().st_size


def changed_ms(place: Location) -> int:
    """When a file was put in place, in Unix ms, by the clock of the disk or the store.

    Raises:
        FileNotFoundError: there is none.
    """
    return place.changed_ms() if isinstance(place, StoredPath) else int(place.stat().st_mtime * 1_000)


def put_file(place: Location, data: memoryview, before_each: Callable[[int], None] = lambda _: None) -> None:
    """Put a file in place, whole; one of the same name goes.

    Raises:
        OSError: the store does not take it.
        TrailWriteError: the disk does not.
    """
    if isinstance(place, StoredPath):
        place.write(data, before_each)
    else:
        before_each(len(data))
        replace_file(place, data)


def is_there(place: Location, size: int, crc: int, waits: Callable[[int], None]) -> bool:
    """Whether a file is there with these bytes, by their CRC-32; `waits` is called with the size of each portion."""
    found = 0
    try:
        if size_of(place) != size:
            return False
        with place.open("rb") as file:
            while data := file.read(PORTION_BYTES):
                waits(len(data))
                found = zlib.crc32(data, found)
    except FileNotFoundError:
        return False
    return found == crc


def remove_file(place: Location) -> None:
    """Delete a file, if it is there.

    Raises:
        OSError: the store refuses.
    """
    with suppress(FileNotFoundError):
        place.unlink()


class Spans(io.RawIOBase):
    """A file of a store, each span of which is fetched once: compared with its checksum, then decoded.

    Args:
        file: the file, opened: to open it again would ask for its size again.
        size: its bytes, as the manifest says.
        tail: its end, fetched already.
    """

    def __init__(self, file: Any, size: int, tail: bytes) -> None:
        self._file = file
        self._size = size
        self._held: list[tuple[int, bytes]] = [(size - len(tail), tail)]
        self._at = 0

    def fetch(self, start: int, end: int) -> bytes:
        """The bytes from one place to another."""
        for begin, data in self._held:
            if begin <= start and end <= begin + len(data):
                return data[start - begin : end - begin]
        self._file.seek(start)
        data = bytes(self._file.read(end - start))
        self._held.append((start, data))
        return data

    def fetch_ahead(self, spans: Iterable[tuple[int, int]]) -> None:
        """Fetch several spans, neighbours by one request."""
        begin, end = -1, -1
        for start, stop in sorted(spans):
            if begin >= 0 and start <= end + NEAR_BYTES:
                end = max(end, stop)
                continue
            if begin >= 0:
                self.fetch(begin, end)
            begin, end = start, stop
        if begin >= 0:
            self.fetch(begin, end)

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        found = self.fetch(self._at, end) if end > self._at else b""
        self._at = end
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def file_uri(place: Path) -> str:
    """A directory or file of this machine as Spark reads it, whatever its default file system is."""
    return f"file://{place.resolve()}"
