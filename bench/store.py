"""The store: appending and syncing, reading back, settling and recovery, messages a second and bytes a message."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.link_codec import batch_of
from postroad.store import FileDisk, Log, StoreSettings, carry_out, recover

if TYPE_CHECKING:
    from postroad.messages import Batch
    from postroad.store import Cursor

BODIES = (100, 1_000)
# One read of a busy publisher, and what comes while a disk is forced: several of them.
ROWS = 1_000
BATCHES_PER_COMMIT = 8


class Score(NamedTuple):
    """Messages a second, by the clock, and processor time in µs per message."""

    rate: float
    cpu: float


class Bench:
    """One store in a folder.

    Args:
        folder: where.
        settings: of the store.
        cursors: how many wait for every message.
    """

    def __init__(self, folder: Path, settings: StoreSettings, cursors: int) -> None:
        self._settings = settings
        self._disk = FileDisk(folder)
        self._log = Log(settings)
        self._cursors = [self._log.open_cursor(number) for number in range(1, cursors + 1)]
        self._commit()

    def _commit(self) -> None:
        while (commit := self._log.take_commit(0)) is not None:
            carry_out(commit, self._disk)
            self._log.committed(commit)

    def append(self, batches: list[Batch], messages: int) -> Score:
        """Store messages, some batches in each commit."""
        rows = np.arange(ROWS)
        return _timed(messages, lambda: self._append(batches, messages, rows))

    def _append(self, batches: list[Batch], messages: int, rows: np.ndarray) -> None:
        for number in range(messages // ROWS):
            self._log.append(batches[number % len(batches)], [(each, rows) for each in self._cursors], 0)
            if number % BATCHES_PER_COMMIT == BATCHES_PER_COMMIT - 1:
                self._commit()
        self._commit()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(self._disk.segments().values())

    def recover(self, messages: int) -> Score:
        """Find out what there is, as a new process does."""
        self._disk.close()

        def recovery() -> None:
            self._log = Log(self._settings, recover(self._disk.segments(), self._disk.read, self._disk.sync))

        score = _timed(messages, recovery)
        assert all(each.waiting.count == messages for each in self._log.cursors.values())
        self._cursors = list(self._log.cursors.values())
        return score

    def drain(self, messages: int) -> Score:
        """Read all back, and settle it."""
        return _timed(messages, lambda: self._drain(self._cursors[0]))

    def _drain(self, cursor: Cursor) -> None:
        while True:
            taken = self._log.pull(cursor, 2_000)
            reads = self._log.take_reads()
            for read in reads:
                self._log.loaded(read, self._disk.read(read.segment, read.start, read.length))
            for each in taken:
                self._log.settle(cursor, each.places)
            if not taken and not reads:
                break
            if len(taken) and not reads:
                self._commit()
        self._commit()

    def close(self) -> None:
        """Close the files."""
        self._disk.close()


def _timed(messages: int, work: object) -> Score:
    start, cpu = perf_counter(), process_time()
    work()  # type: ignore[operator]
    return Score(messages / (perf_counter() - start), (process_time() - cpu) / messages * 1e6)


def measure(folder: Path, body: int, messages: int, fsync: str, cursors: int) -> dict[str, float]:
    """All figures of one kind of store."""
    batches = [batch_of(ROWS, body, seed) for seed in range(8)]
    settings = StoreSettings(fsync=fsync)  # type: ignore[arg-type]
    bench = Bench(folder, settings, cursors)
    appended = bench.append(batches, messages)
    size = bench.size
    recovered = bench.recover(messages)
    drained = bench.drain(messages)
    bench.close()
    return {
        "append_per_s": appended.rate,
        "append_cpu_us": appended.cpu,
        "bytes_per_message": size / messages,
        "recovery_per_s": recovered.rate,
        "drain_per_s": drained.rate,
        "drain_cpu_us": drained.cpu,
    }


def main() -> None:
    """Print a table, and a last line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="messages of each kind of store")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder without")
    arguments = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, numpy {np.__version__}")
    results: dict[str, dict[str, float]] = {}
    for body in BODIES:
        for fsync, cursors in (("always", 1), ("always", 10), ("interval", 1)):
            folder = Path(tempfile.mkdtemp(prefix="postroad-store-", dir=arguments.folder))
            try:
                found = measure(folder / "store", body, arguments.messages, fsync, cursors)
            finally:
                shutil.rmtree(folder)
            results[f"{body}_{fsync}_{cursors}"] = found
            print(
                f"{body:>5} bytes, {fsync:>8}, {cursors:>2} cursors: append {found['append_per_s']:>11,.0f}/s "
                f"({found['append_cpu_us']:.2f} us), {found['bytes_per_message']:,.0f} bytes each, "
                f"recovery {found['recovery_per_s']:>11,.0f}/s, drain {found['drain_per_s']:>11,.0f}/s "
                f"({found['drain_cpu_us']:.2f} us)"
            )
    print(json.dumps({name: {key: round(value, 3) for key, value in found.items()} for name, found in results.items()}))


if __name__ == "__main__":
    main()
