"""Reads files of a store ahead: while one is decoded, the next ones are fetched by a few threads.

A request to a store takes milliseconds in which nothing is to be done here, and a trail that is not compacted has some
files for each minute of each broker. Files of a directory are opened one after the other, when they are needed: they
are in memory, or on a disk that is no faster for being asked for several at once. Where local copies were dropped, they
are fetched from where they were shipped to, in the same way.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from postroad.trail.file_reader import Reads, TrailFile
from postroad.trail.locations import StoredPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from postroad.trail.files import FileEntry
    from postroad.trail.locations import Location

__all__ = ["REQUESTS", "asked_together", "opened_ahead"]

# Requests of one task that are under way at once. A store takes some 20 ms to answer and a task some 2 ms to decode a
# small file, so that ten keep it busy; a hundred executors of four tasks make some thousands, which stores take.
REQUESTS = 8
# Bytes of files that are fetched and not decoded yet; one file may have more.
AHEAD_BYTES = 32 << 20
Question = TypeVar("Question")
Answer = TypeVar("Answer")


def opened_ahead(
    root: Location, files: Iterable[tuple[int, FileEntry]], reads: Reads
) -> Iterator[tuple[int, FileEntry, TrailFile]]:
    """Yield files in their order, each opened, with its broker and entry.

    Of a file in a store the row groups of its entry are fetched and compared.

    Raises:
        TrailDamageError: a file is missing or differs from what was written.
    """
    asked = list(files)
    if not isinstance(root, StoredPath) and all((root / entry.path).exists() for _, entry in asked):
        for broker, entry in asked:
            yield broker, entry, TrailFile(root, entry, broker, reads)
        return

    def opened(broker: int, entry: FileEntry) -> tuple[TrailFile, Reads]:
        own = Reads()
        file = TrailFile(root, entry, broker, own)
        file.compare(group.index for group in entry.groups)
        return file, own

    waiting: deque[tuple[int, FileEntry, Future[tuple[TrailFile, Reads]]]] = deque()
    held = 0
    pool = ThreadPoolExecutor(REQUESTS)
    try:
        left = iter(asked)
        more = next(left, None)
        while more is not None or waiting:
            while more is not None and (not waiting or (held < AHEAD_BYTES and len(waiting) < 2 * REQUESTS)):
                waiting.append((*more, pool.submit(opened, *more)))
                held += more[1].size
                more = next(left, None)
            broker, entry, future = waiting.popleft()
            file, own = future.result()
            # What reading costs later is counted where all of it is.
            reads.add(own)
            file.reads = reads
            held -= entry.size
            yield broker, entry, file
    finally:
        pool.shutdown(cancel_futures=True)


def asked_together(
    root: Location, questions: Iterable[Question], ask: Callable[[Question, Reads], Answer], reads: Reads
) -> list[Answer]:
    """The answers to questions about a trail, in their order; of one in a store, several are asked at once."""
    if not isinstance(root, StoredPath):
        return [ask(one, reads) for one in questions]
    each = [(one, Reads()) for one in questions]
    with ThreadPoolExecutor(REQUESTS) as pool:
        found = list(pool.map(lambda one: ask(*one), each))
    for _, own in each:
        reads.add(own)
    return found
