"""What a recorder costs a broker per message that enters and is delivered once: on the loop, to seal, and to write."""

from __future__ import annotations

import argparse
import json
import tempfile
from time import thread_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from postroad.messages import Batch
from postroad.server.memory import keep_freed_memory
from postroad.tracking import BloomRecorder, ExactRecorder, HistorySettings, LogRecorder, SealedRecorder
from postroad.trail import TrailWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.tracking import TrackingRecorder

__all__ = ["recorder_costs", "show_costs"]

BROKER, START = 1, 1_700_000_000_000
PUBLISHER, SUBSCRIBER = 7, 1
# A millisecond of a busy broker: one publisher at a million messages a second, whose ids follow each other.
BATCH = 1_000
# A second of a broker at full speed: a job has some fixed costs, which fewer messages would have to share.
MESSAGES = 3_200_000
# A batch of one costs what the call costs.
SINGLES = 4_000
AMPLE = 1 << 40

MAKERS: dict[str, Callable[[], TrackingRecorder]] = {
    "exact": lambda: ExactRecorder(BROKER, START, budget_bytes=AMPLE),
    "sealed": lambda: SealedRecorder(BROKER, HistorySettings(budget=AMPLE), START),
    "bloom": lambda: BloomRecorder(BROKER, HistorySettings(budget=AMPLE), START),
    "log": lambda: LogRecorder(BROKER, HistorySettings(budget=AMPLE), START),
}


class Cost(NamedTuple):
    """Processor time in ns, and bytes of files, per message.

    Attributes:
        told_ns: on the event loop, in batches.
        alone_ns: the same for batches of one message.
        sealed_ns: building what is stored, on another thread.
        written_ns: making files of it, on that thread; waiting for the disk is not in it.
        stored_bytes: of the files, footers included.
    """

    told_ns: float
    alone_ns: float
    sealed_ns: float
    written_ns: float
    stored_bytes: float


def recorder_costs(messages: int = MESSAGES, rounds: int = 3) -> dict[str, Cost]:
    """The least of some rounds, all recorders in turn."""
    batches, singles = _batches(messages // BATCH, BATCH), _batches(SINGLES, 1)
    found: dict[str, list[Cost]] = {name: [] for name in MAKERS}
    for _ in range(rounds):
        for name, make in MAKERS.items():
            found[name].append(_once(make, batches, singles))
    return {name: Cost(*map(min, zip(*some, strict=True))) for name, some in found.items()}


def _batches(count: int, size: int) -> list[Batch]:
    blank, none = Batch.build([("t",)]), np.zeros(size, np.int64)
    # No recorder looks at these: one of each will do.
    spans, envelopes = blank.spans[none], blank.envelopes[none]
    found = []
    for number in range(count):
        ids = np.empty((size, 2), np.uint64)
        ids[:, 0] = PUBLISHER << 32 | BROKER
        ids[:, 1] = ((START + number) << 16) + np.arange(size)
        batch = Batch(blank.buffer, spans, ids, envelopes)
        batch.run = ids.item(0, 0), ids.item(0, 1)  # as the broker that gives the ids
        found.append(batch)
    return found


def _once(make: Callable[[], TrackingRecorder], batches: list[Batch], singles: list[Batch]) -> Cost:
    recorder, now = make(), START + len(batches)
    told = _tell(recorder, batches)
    with tempfile.TemporaryDirectory(prefix="postroad-bench-") as directory:
        writer = TrailWriter(directory, BROKER, START)
        sealed = written = size = 0
        for job in recorder.due(now, force=True):
            begun = thread_time_ns()
            segments = job.make()
            made = thread_time_ns()
            files = writer.write(segments, job.through)
            sealed, written = sealed + made - begun, written + thread_time_ns() - made
            size += sum(entry.size for entry in files)
            recorder.release(job.number)
    alone = _tell(make(), singles)
    messages = sum(map(len, batches))
    return Cost(told / messages, alone / len(singles), sealed / messages, written / messages, size / messages)


def _tell(recorder: TrackingRecorder, batches: list[Batch]) -> int:
    rows = np.arange(len(batches[0]))
    begun = thread_time_ns()
    for number, batch in enumerate(batches):
        recorder.accepted(batch, START + number)
        recorder.delivered(batch, rows, SUBSCRIBER, START + number)
    return thread_time_ns() - begun


def show_costs(costs: dict[str, Cost]) -> dict[str, Any]:
    """The table on the screen, and its figures by name."""
    print("processor time in ns per message that enters and is delivered once; bytes of files, footers included")
    print(f"{'recorder':10}{'on the loop':>13}{'one by one':>12}{'sealing':>9}{'writing':>9}{'bytes':>7}")
    found: dict[str, Any] = {}
    for name, cost in costs.items():
        print(
            f"{name:10}{cost.told_ns:>13.0f}{cost.alone_ns:>12,.0f}{cost.sealed_ns:>9.0f}{cost.written_ns:>9.0f}"
            f"{cost.stored_bytes:>7.2f}"
        )
        found |= {f"{name}_{key}": round(value, 2) for key, value in cost._asdict().items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench recorder_costs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="the least of them counts (default %(default)s)")
    keep_freed_memory()  # as a broker does
    print(json.dumps({"bench": "recorder_costs", **show_costs(recorder_costs(rounds=parser.parse_args().rounds))}))


if __name__ == "__main__":
    main()
