"""Writes a generated trail as its brokers would have: a commit for each broker and seal interval, slice by slice."""

from __future__ import annotations

import multiprocessing
import signal
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from postroad.errors import PostroadError
from postroad.lab.trails.costs import latencies, timings
from postroad.lab.trails.histories import filters_of
from postroad.lab.trails.traffic import TrailTraffic
from postroad.lab.trails.truth import write_truth
from postroad.messages import MessageId
from postroad.tracking import Aliases, LinkChanges, Names, SubscriptionChanges
from postroad.trail import TrailWriter
from postroad.trail.durable_files import force_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from postroad.lab.trails.scale import Scale
    from postroad.lab.trails.traffic import Slice
    from postroad.tracking import Passages, Segment
    from postroad.trail import FileEntry

__all__ = ["MARGIN_MS", "Written", "alias_of", "growing_trail", "write_trail"]

# The brokers run some minutes before the first message and after the last, so that the record around each id is
# complete for any skew that a reader allows.
MARGIN_MS = 600_000
# Half of the time goes into forcing files to disk, where threads do not wait for each other.
_THREADS = 8
# How often progress is reported if several processes write.
PROGRESS_SECONDS = 0.5
# Instead of slices that are done: the process is to end.
BROKEN_OFF = -1
GAP_REASON = "the disk was full"
TOPIC = "/topic/lab"


class Written(NamedTuple):
    """The size of a trail.

    Attributes:
        messages: published.
        passages: pairs of a message and a broker.
        deliveries: pairs of a message and a subscription.
        files: in the trail.
        bytes: in those files.
    """

    messages: int
    passages: int
    deliveries: int
    files: int
    bytes: int


def write_trail(
    root: str | Path,
    scale: Scale,
    progress: Callable[[int, int], None] | None = None,
    truth: bool = True,
    processes: int = 1,
) -> Written:
    """Generate a trail. Memory is that of one slice for each process, whatever the size of the trail.

    Args:
        root: a directory that is empty or does not exist.
        scale: what to generate.
        progress: called now and then with the slices done and all of them.
        truth: whether to also write what really happened.
        processes: how many share the brokers. With several, files are not forced to disk, and a crash of the machine
            may leave a trail that has to be made again. The trail is the same with any number.

    Raises:
        PostroadError: the directory is not empty.
    """
    if processes > 1:
        return _in_processes(_checked(root), scale, progress, truth, min(processes, scale.brokers))
    steps: list[Written] = []
    for part, so_far in growing_trail(root, scale, truth):
        steps[:] = [so_far]
        if progress is not None and part:
            progress(part, scale.slices)
    return steps[0]


def _checked(root: str | Path) -> Path:
    root = Path(root)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise PostroadError(f"{root}: is not empty; name a new directory for the trail")
    return root


def growing_trail(root: str | Path, scale: Scale, truth: bool = True) -> Iterator[tuple[int, Written]]:
    """Generate a trail step by step: yield the slices written so far, and the size of the trail, after each step.

    The first step has no messages; the last one, after all slices, closes the record.
    """
    share = _TrailShare(_checked(root), scale, range(1, scale.brokers + 1), range(scale.slices) if truth else ())
    yield from share.steps()


class _TrailShare:
    """Some brokers of a trail, and some slices of its truth, to be written.

    Args:
        root: the directory.
        scale: of the whole trail.
        brokers: those to write.
        truths: the slices whose truth to write.
    """

    def __init__(self, root: Path, scale: Scale, brokers: Iterable[int], truths: Iterable[int]) -> None:
        self._root, self._scale, self._truths = root, scale, frozenset(truths)
        self._traffic = TrailTraffic(scale)
        self._began = scale.start - MARGIN_MS
        self._stations = [_Station(root, self._traffic, number, self._began) for number in brokers]

    def _so_far(self) -> Written:
        sums = [sum(column) for column in zip(*(station.counts for station in self._stations), strict=True)]
        return Written(self._scale.messages, *sums)

    def steps(self) -> Iterator[tuple[int, Written]]:
        """Write step by step, as `growing_trail` does."""
        scale, stations = self._scale, self._stations
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(lambda station: station.begin(self._began), stations))
            yield 0, self._so_far()
            for part in range(scale.slices):
                messages = self._traffic.slice(part)
                list(threads.map(lambda station, messages=messages: station.write(messages), stations))
                if part in self._truths:
                    write_truth(self._root, self._traffic, messages)
                yield part + 1, self._so_far()
            list(threads.map(lambda station: station.writer.close(scale.end + MARGIN_MS), stations))
        yield scale.slices, self._so_far()


# In a process that writes a share: how many slices each of them has done.
_done: list[Any] = []


def _in_processes(
    root: Path, scale: Scale, progress: Callable[[int, int], None] | None, truth: bool, count: int
) -> Written:
    """Write a trail with several processes: each makes all messages, which is little work, and some of the brokers."""
    context = multiprocessing.get_context("spawn")
    done = context.Array("q", count)
    with ProcessPoolExecutor(count, context, initializer=_begin_share, initargs=(done,)) as pool:
        # Ctrl-C goes to all processes of a terminal; those that write are told by this one.
        with _ignored_interrupts():
            shares = [pool.submit(_write_share, root, scale, place, count, truth) for place in range(count)]
        try:
            while wait(shares, PROGRESS_SECONDS, FIRST_EXCEPTION).not_done and not any(map(_failed, shares)):
                if progress is not None:
                    progress(min(done[:]), scale.slices)
        except KeyboardInterrupt:
            done[:] = [BROKEN_OFF] * count
            raise
        sums = [sum(column) for column in zip(*(one.result()[1:] for one in shares), strict=True)]
    if progress is not None:
        progress(scale.slices, scale.slices)
    return Written(scale.messages, *sums)


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Let processes that are started meanwhile ignore Ctrl-C, from their first instruction on."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _failed(share: Future[Written]) -> bool:
    return share.done() and share.exception() is not None


def _begin_share(done: Any) -> None:
    force_nothing()
    _done.append(done)


def _write_share(root: Path, scale: Scale, place: int, count: int, truth: bool) -> Written:
    brokers = range(place + 1, scale.brokers + 1, count)
    truths = range(place, scale.slices, count) if truth else ()
    steps: list[Written] = []
    for part, so_far in _TrailShare(root, scale, brokers, truths).steps():
        steps[:] = [so_far]
        with _done[0].get_lock():
            if _done[0][place] == BROKEN_OFF:
                break
            _done[0][place] = part
    return steps[0]


class _Station:
    """One broker's part in the writing."""

    def __init__(self, root: Path, traffic: TrailTraffic, broker: int, began: int) -> None:
        self.writer = TrailWriter(root, broker, began)
        self._traffic = traffic
        self._broker = broker
        self.counts = [0, 0, 0, 0]  # passages, deliveries, files, bytes

    def begin(self, began: int) -> None:
        self._count(self.writer.write(_beginning(self._traffic, self._broker, began), began + 1))

    def write(self, messages: Slice) -> None:
        """Record what passed here in a slice; a gap is a record that was dropped."""
        traffic = self._traffic
        through = traffic.scale.span(messages.part)[1]
        passages = traffic.passages(messages, self._broker)
        self.counts[0] += len(passages.origin)
        self.counts[1] += len(passages.delivered.numbers)
        prepared = self.writer.prepare(_segments(traffic, messages, passages, self._broker), through)
        if traffic.is_gap(self._broker, messages.part):
            self.writer.drop(prepared, GAP_REASON)
            return
        self._count(self.writer.commit(prepared))
        self.writer.maintain(through)

    def _count(self, entries: list[FileEntry]) -> None:
        self.counts[2] += len(entries)
        self.counts[3] += sum(entry.size for entry in entries)


def _segments(traffic: TrailTraffic, messages: Slice, passages: Passages, broker: int) -> list[Segment]:
    record: list[Segment] = [passages]
    if traffic.scale.recorder != "exact":
        record = list(filters_of(passages, broker, traffic.scale, *traffic.scale.span(messages.part)))
    found: list[Segment] = [
        *record,
        timings(traffic.scale, broker, messages.part),
        latencies(traffic.scale, broker, messages.part),
    ]
    if traffic.scale.aliases:
        found.append(_aliases(messages, broker))
    shed = traffic.shed(messages, broker)
    if len(shed.origin):
        found.append(shed)
    return found


def alias_of(id: MessageId) -> str:
    """The foreign id of a message of a trail with aliases."""
    return f"lab-{id.broker}-{id.publisher}-{id.time}-{id.counter}"


def _aliases(messages: Slice, broker: int) -> Aliases:
    here = np.flatnonzero(messages.origin == broker)
    columns = [column[here] for column in (messages.publisher, messages.origin, messages.time, messages.counter)]
    ids = map(MessageId, *(column.tolist() for column in columns))
    return Aliases([alias_of(id) for id in ids], columns[1], columns[2], columns[0], columns[3].astype(np.int32))


def _beginning(traffic: TrailTraffic, broker: int, at: int) -> list[Segment]:
    scale, graph = traffic.scale, traffic.terrain.graph
    around = graph.neighbours(broker)
    neighbours = np.array(sorted(around), np.int64)
    subscriptions = np.arange(1, scale.subscriptions + 1)
    publishers = np.arange(1, scale.publishers + 1)
    return [
        LinkChanges(
            neighbours,
            np.full(len(neighbours), at),
            np.ones(len(neighbours), np.int32),
            np.array([around[int(number)] for number in neighbours], np.int32),
        ),
        SubscriptionChanges(
            subscriptions,
            np.full(len(subscriptions), at),
            np.ones(len(subscriptions), np.int32),
            [f"subscriber-{broker}-{number}" for number in subscriptions],
            [TOPIC] * len(subscriptions),
            [""] * len(subscriptions),
        ),
        Names(
            ["publisher"] * len(publishers),
            publishers,
            np.full(len(publishers), at),
            [f"publisher-{broker}-{number}" for number in publishers],
        ),
    ]
