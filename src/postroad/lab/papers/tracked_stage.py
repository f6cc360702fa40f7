"""A process that runs one broker after another, each with its own settings and directory.

Kernels are loaded once for all of them. Every call that forces the disk is counted here, where it is made.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroad.server import Service

__all__ = ["PROGRAM", "Stage", "main"]

PROGRAM = "from postroad.lab.papers.tracked_stage import main; main()"
# A broker checks for full buffers four times a second, too seldom for the paper's small ones: at 5,000 messages/s the
# log fills 20,000 bytes in an eighth of a second.
LOOK_SECONDS = 0.05
# How often to sample the memory of the recorder.
SAMPLE_SECONDS = 0.05
# Tables that hold what happened to messages; the others hold names of subscribers, times and so on.
RECORDS = ("passages", "filters", "records")


class Forces:
    """Counts the calls of `os.fsync` in this process."""

    def __init__(self) -> None:
        self.calls = 0
        self.seconds = 0.0
        self._fsync = os.fsync

    def install(self) -> None:
        os.fsync = self._counted  # type: ignore[assignment]

    def _counted(self, descriptor: int) -> None:
        begun = time.perf_counter()
        self._fsync(descriptor)
        self.calls += 1
        self.seconds += time.perf_counter() - begun


class Stage:
    """Runs at most one broker."""

    def __init__(self, forces: Forces) -> None:
        self._forces = forces
        self._service: Service | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._sampler: asyncio.Task[None] | None = None
        self._held_most = 0

    async def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Carry out a request."""
        do = question["do"]
        if do == "start":
            return await self._start(question["tracking"])
        if do == "count":
            return self._counts()
        if do == "stop":
            return await self._stop()
        raise ValueError(f"a stage can start, count and stop, not {do}")

    async def _start(self, tracking: dict[str, Any]) -> dict[str, Any]:
        from postroad.config import BrokerConfig, TrackingConfig
        from postroad.server import Service

        self._directory = tempfile.TemporaryDirectory(prefix="postroad-lab-")
        # Not through the reader of settings, which refuses the paper's memory as too little.
        settings = TrackingConfig(**tracking)
        self._service = Service(BrokerConfig(port=0, data=self._directory.name, tracking=settings))
        await self._service.start()
        self._held_most = 0
        self._sampler = asyncio.create_task(self._sample())
        return {"port": self._service.port}

    async def _sample(self) -> None:
        assert self._service is not None
        tracking = self._service.tracking
        while tracking is not None:
            self._held_most = max(self._held_most, tracking.statistics()["held_bytes_now"])
            await asyncio.sleep(SAMPLE_SECONDS)

    def _counts(self) -> dict[str, Any]:
        assert self._service is not None
        tracking = self._service.tracking
        written = {} if tracking is None else tracking.statistics()
        return {
            "fsyncs": self._forces.calls,
            "fsync_seconds": self._forces.seconds,
            "commits": written.get("commits", 0),
            "trouble": self._service.troubles(),
            "held_most": self._held_most,
            "cpu_seconds": time.process_time(),
            "at": time.perf_counter(),
        }

    async def _stop(self) -> dict[str, Any]:
        assert self._service is not None
        assert self._directory is not None
        assert self._sampler is not None
        self._sampler.cancel()
        await self._service.stop()
        found = stored(Path(self._directory.name) / "trail")
        self._directory.cleanup()
        self._service = self._directory = self._sampler = None
        return found

    async def leave(self) -> None:
        """Stop what still runs."""
        if self._service is not None:
            await self._stop()


def stored(trail: Path) -> dict[str, Any]:
    """Return the bytes of the record on disk: columns before and after compression, the files, and the whole trail."""
    raw = compressed = files = 0
    if trail.is_dir():
        from pyarrow import parquet

        for table in RECORDS:
            for path in (trail / table).rglob("*.parquet"):
                files += path.stat().st_size
                footer = parquet.read_metadata(path)
                for group in map(footer.row_group, range(footer.num_row_groups)):
                    columns = [group.column(place) for place in range(group.num_columns)]
                    raw += sum(column.total_uncompressed_size for column in columns)
                    compressed += sum(column.total_compressed_size for column in columns)
    everything = sum(path.stat().st_size for path in trail.rglob("*") if path.is_file())
    return {"raw_bytes": raw, "compressed_bytes": compressed, "file_bytes": files, "trail_bytes": everything}


async def perform() -> None:
    """Answer the lines of standard input until it ends."""
    from postroad.recording import writer
    from postroad.server.process import tune_process

    tune_process()  # as the program does
    writer.LOOK_SECONDS = LOOK_SECONDS
    forces = Forces()
    forces.install()
    stage = Stage(forces)
    loop = asyncio.get_running_loop()
    try:
        # A thread waits for lines, so that the broker runs meanwhile.
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            sys.stdout.write(json.dumps(await stage.answer(json.loads(line))) + "\n")
            sys.stdout.flush()
    finally:
        await stage.leave()


def main() -> None:
    """Run the process on the event loop that a broker uses by default."""
    from postroad.config import BrokerConfig
    from postroad.server.extras import loop_factory

    with asyncio.Runner(loop_factory=loop_factory(BrokerConfig())) as runner:
        runner.run(perform())
