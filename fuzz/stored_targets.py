"""Targets of bytes that come from disk: anybody may have written, moved or damaged them."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import zlib
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from fuzz.choices import Choices
from postroad.errors import LimitError
from postroad.filters import BloomFilter, FilterError, RibbonFilter
from postroad.messages import MessageId
from postroad.pipeline.commit_note import FOLDER, finish_commits
from postroad.pipeline.errors import PipelineError
from postroad.store import Log, SimulatedDisk, StoreSettings, carry_out, recover
from postroad.store.records import Kind, segment_header
from postroad.store.records import frame as store_frame
from postroad.tracking import ExactRecorder, FilterSegment
from postroad.tracking.journaled_recorder import JournalEntryError, retell
from postroad.trail import (
    FileEntry,
    Ledger,
    Reads,
    TrailDamageError,
    TrailError,
    TrailFile,
    ask_filters,
    pin,
    replay,
    sweep,
    table_named,
    unpack,
    unpack_lists,
)
from postroad.trail.file_checksums import footer_checksum
from postroad.trail.journal import MAGIC, journal_folder
from postroad.trail.manifest import change_name, checkpoint_name, manifest_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["filters", "journals", "manifests", "notes", "packed_lists", "parquet_files", "store_segments"]

BROKER = 1
_IDENTITY = MessageId(1, 1, 1_700_000_000_000, 0)
_NOW = 1_700_000_000_000
_MEMORY = Path("/dev/shm")


@contextmanager
def _folder() -> Iterator[Path]:
    """A directory in memory where there is one: the targets force files to disk many times a second."""
    made = Path(tempfile.mkdtemp(prefix="postroad-fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _with_checksum(body: bytes) -> bytes:
    return b"postroad-manifest 2 %08x\n%s\n" % (zlib.crc32(body), body)


def store_segments(data: bytes) -> None:
    """Records of a store with good checksums: what they hold is taken up, or named as damage; rows that are handed out
    can be read.
    """
    choices = Choices(data)
    disk = SimulatedDisk()
    disk.create(1)
    disk.append(1, [segment_header(1)])
    number = 0
    while choices and number < 20:
        number += 1
        kind = choices.pick(tuple(Kind))
        payload = choices.blob(choices.number(2))
        disk.append(1, [store_frame(1, kind, number, choices.byte(), [payload]), payload])
    log = Log(StoreSettings(), recover(disk.segments(), disk.read, disk.sync))
    for cursor in list(log.cursors.values()):
        for _ in range(20):
            taken = log.pull(cursor, 100)
            for read in log.take_reads():
                log.loaded(read, disk.read(read.segment, read.start, read.length))
            for each in taken:
                each.batch.take(each.rows)
                log.settle(cursor, each.places)
    while (commit := log.take_commit(0)) is not None:
        carry_out(commit, disk)
        log.committed(commit)


def manifests(data: bytes) -> None:
    """Changes and checkpoints: damage is a warning and a hole, and nothing outside the trail is touched."""
    choices = Choices(data)
    is_raw, name = choices.byte() % 4 == 0, choices.pick((change_name, checkpoint_name))
    with _folder() as root:
        folder = manifest_folder(root, BROKER)
        folder.mkdir(parents=True)
        body = choices.rest()
        (folder / name(1)).write_bytes(body if is_raw else _with_checksum(body))
        pinned = pin(root, BROKER)
        pinned.all_entries()
        pinned.entries("passages", 1, 0, _NOW, Reads())
        list(pinned.numbered("names", 7, Reads()))
        try:
            ledger = Ledger(root, BROKER)
            ledger.checkpoint(_NOW)
            ledger.append(_NOW)
            sweep(root, BROKER, _NOW, grace_ms=0)
        except TrailError:
            pass


def notes(data: bytes) -> None:
    """Notes of compactions: what they name is below the trail, or they are refused."""
    with _folder() as root:
        (root / FOLDER).mkdir()
        (root / FOLDER / "compact-1.json").write_bytes(data)
        with suppress(PipelineError, TrailError):
            finish_commits(root)


def journals(data: bytes) -> None:
    """Segments of a journal, and what their entries tell a recorder."""
    choices = Choices(data)
    if choices.byte() % 4 == 0:
        segment = choices.rest()
    else:
        segment = MAGIC
        while choices:
            entry = choices.short_blob()
            segment += len(entry).to_bytes(4, "little") + zlib.crc32(entry).to_bytes(4, "little") + entry
    with _folder() as root:
        journal_folder(root, BROKER).mkdir(parents=True)
        (journal_folder(root, BROKER) / "000000000001.journal").write_bytes(segment)
        recorder = ExactRecorder(BROKER, _NOW)
        for entry in replay(root, BROKER, []):
            try:
                retell(entry, recorder)
            except JournalEntryError:
                continue
        for job in recorder.due(_NOW, force=True):
            job.make()


def packed_lists(data: bytes) -> None:
    """Lists of numbers in binary columns."""
    choices = Choices(data)
    column = [choices.short_blob() or None for _ in range(1 + choices.byte() % 4)]
    try:
        alone = [unpack(one) for one in column]
    except TrailDamageError:
        alone = None
    try:
        offsets, numbers = unpack_lists(pa.array(column, pa.binary()))
    except TrailDamageError:
        assert alone is None
        return
    assert [tuple(numbers[first:last]) for first, last in itertools.pairwise(offsets)] == alone


def parquet_files(data: bytes) -> None:
    """Files of a table: whatever the bytes are, they are read as rows or refused by name."""
    choices = Choices(data)
    table = choices.pick(("passages", "subscriptions", "names", "filters"))
    body = choices.rest()
    with _folder() as root:
        path = f"{table}/broker={BROKER}/date=2023-11-14/a.parquet"
        (root / path).parent.mkdir(parents=True)
        (root / path).write_bytes(body)
        try:
            entry = FileEntry(path, table, 19_675, 1, len(body), footer_checksum(body, path), ())
            TrailFile(root, entry, BROKER, Reads()).read(table_named(table).schema.names)
        except TrailDamageError:
            pass


class _Stored(msgspec.Struct, array_like=True):
    """What a row of `filters` says of a filter, beside its bytes."""

    kind: int
    subject: int
    entries: int
    capacity: int
    method: str
    bits: int
    hashes: int
    seed: int
    ones: int


def filters(data: bytes) -> None:
    """Filters of every kind, by themselves and as rows of the trail: they answer, or are refused."""
    choices = Choices(data)
    keys = np.array([1, 2**63, 2**64 - 1], np.uint64)
    m, k, method = choices.number(choices.byte() % 5), choices.byte(), choices.pick(("bloom", "ribbon", "other"))
    stored = _Stored(choices.byte() % 16, choices.byte() % 3, choices.number(2), choices.number(2), method, m, k, 0, 0)
    body = choices.rest()
    for read in (lambda: BloomFilter.from_bytes(body, m, k), lambda: RibbonFilter.from_bytes(body)):
        try:
            read().contains(keys)
        except (FilterError, LimitError):
            continue
    row = FilterSegment(
        stored.kind,
        _IDENTITY.broker,
        stored.subject,
        0,
        2 * _NOW,
        np.empty(0, np.int64),
        0,
        _NOW,
        stored.entries,
        stored.capacity,
        stored.method,
        stored.bits,
        stored.hashes,
        stored.seed,
        stored.ones,
        body,
        None,
    )
    ask_filters([row], _IDENTITY, [1, 2], [1])
