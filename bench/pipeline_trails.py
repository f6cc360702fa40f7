"""The trails that `bench.pipeline` measures on, made once and kept; and the ids that it asks for."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from bench.kept_figures import NotMeasuredError
from postroad.lab.trails import TRUTH, Scale, sample_ids, write_trail

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Trails"]

DAY_SECONDS = 86_400
DEMO = Scale(brokers=5, messages=3_000, publishers=10, subscriptions=5, interests=50, seconds=120)
# From here on a day has a file for each of twenty brokers and minute; below it is only to see that all runs.
LARGE = 1_000_000
# Bytes on disk for each message: the trail, its truth, and what jobs write of it; measured, and rounded up.
DISK_BYTES = {"exact": 80, "sealed": 110, "bloom": 150}


@dataclass(frozen=True)
class Trails:
    """Attributes:
    work: the folder for all that is made.
    seed: of the traffic.
    ids: how many are asked for in a bulk trace; half of them never existed.
    seconds: over which the messages of a trail are spread; each broker makes some files of each minute.
    """

    work: Path
    seed: int
    ids: int
    seconds: int = Scale().seconds

    def of(self, messages: int, recorder: str = "exact") -> Path:
        """An hour of twenty brokers, or less."""
        scale = Scale(messages=messages, recorder=recorder, seconds=self.seconds)
        return self._made(f"{recorder}-{messages}-{self.seconds}s-{self.seed}", scale)

    def day(self, messages: int) -> Path:
        """A day of twenty brokers; of two where there are few messages."""
        brokers = Scale().brokers if messages >= LARGE else 2
        scale = Scale(brokers=brokers, messages=messages, seconds=DAY_SECONDS)
        return self._made(f"day-{messages}-{self.seed}", scale)

    def demo(self) -> Path:
        """What a demonstration leaves."""
        return self._made("demo", DEMO)

    def copy(self, trail: Path) -> Path:
        """A copy to compact, without the truth. Files are linked: compaction deletes files, and edits none."""
        place = trail.with_name(f"{trail.name}-compacted")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(trail, place, copy_function=os.link, ignore=shutil.ignore_patterns(TRUTH, "done"))
        return place

    def asked(self, trail: Path, count: int) -> Path:
        """A file of ids of a trail."""
        place = self.work / f"ids-{trail.name}-{count}.parquet"
        if not place.exists():
            fresh = place.with_suffix(".tmp")
            pq.write_table(sample_ids(trail, count), fresh)
            fresh.replace(place)
        return place

    def _made(self, name: str, scale: Scale) -> Path:
        """A trail; one that is there, whole, is taken as it is.

        Raises:
            NotMeasuredError: the disk has no room for it.
        """
        place = self.work / name
        if not (place / "done").exists():
            shutil.rmtree(place, ignore_errors=True)
            wanted, free = DISK_BYTES[scale.recorder] * scale.messages, shutil.disk_usage(self.work).free
            if wanted > free:
                raise NotMeasuredError(f"a trail of {scale.messages:,} messages needs {wanted:,} bytes, {free:,} free")
            began = time.perf_counter()
            # By processes of their own, which do not force files to disk: half of the time would go into that.
            written = write_trail(place, replace(scale, seed=self.seed), processes=max(2, os.cpu_count() or 1))
            (place / "done").touch()
            seconds, each = time.perf_counter() - began, written.bytes / scale.messages
            print(f"{name}: made in {seconds:.0f} s, {written.files:,} files, {each:.1f} bytes a message", flush=True)
        return place
