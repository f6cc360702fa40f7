"""A recorded trail as a workload: what entered where and when, and which brokers delivered it.

A trail has no bodies and no attributes. So a message is played under a topic that stands for the set of brokers that
delivered it, and those brokers have a stand-in subscriber for the topic. The network then has to make exactly the
recorded deliveries. What a broker delivers to its own clients is the same in any network, and counted from the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from postroad.lab.errors import LabError
from postroad.lab.scenarios.scenario import Publications, Scenario, Subscriber
from postroad.messages import Draft
from postroad.pipeline.sources import open_sources
from postroad.trail import unpack_lists

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from postroad.pipeline.sources import SourceFile, Sources

    Ints = NDArray[np.int64]

__all__ = ["RecordedScenario", "RecordedTraffic", "read_record"]

# What is played is held in memory: some 200 bytes per message, and some 20 microseconds of simulation per event.
MAX_RECORDED = 2_000_000
# If no timed read says how large messages are.
DEFAULT_MESSAGE_BYTES = 200
_ID = ("origin", "time", "publisher", "counter")


class RecordedTraffic(NamedTuple):
    """The traffic of a trail.

    Attributes:
        origins: int64[n]: the broker where each message entered, in order of time.
        times: int64[n]: when, in Unix ms.
        sets: the distinct sets of brokers that delivered a message.
        set_of: int64[n]: the place of each message's set.
        copies: deliveries to clients, over all messages.
        carried: (from, to) -> messages that went over that link, by the record.
        links: (lower, higher) -> cost, of the links that existed.
        message_bytes: of an average message, from timed reads; 0 if there were none.
    """

    origins: Ints
    times: Ints
    sets: list[frozenset[int]]
    set_of: Ints
    copies: int
    carried: dict[tuple[int, int], int]
    links: dict[tuple[int, int], int]
    message_bytes: float

    @property
    def brokers(self) -> list[int]:
        """Return all brokers in the record."""
        named = {end for ends in (*self.carried, *self.links) for end in ends}
        return sorted(named | set(self.origins.tolist()) | set().union(*self.sets))


class RecordedScenario(Scenario):
    """A record, replayed with its timing.

    Args:
        record: what was read from a trail.
        places: recorded broker -> broker of the network it is played on.
        body: bytes of each message.
        speed: how many times as fast as it was.
    """

    kind: ClassVar[str] = "recorded"

    def __init__(self, record: RecordedTraffic, places: Mapping[int, int], body: int, speed: float = 1.0) -> None:
        if not speed > 0:
            raise LabError(f"a record is played at a speed above 0, not {speed:g}")
        self._record = record
        self._places = places
        self._body = body
        self._speed = speed

    def settings(self) -> dict[str, Any]:
        """Return what it was made of."""
        return {"kind": self.kind, "messages": len(self._record.times), "body": self._body, "speed": self._speed}

    def subscribers(self) -> list[Subscriber]:
        """Return one stand-in for each broker and set."""
        return [
            Subscriber(broker, f"set.{place}")
            for place, brokers in enumerate(self._record.sets)
            for broker in sorted({self._places[one] for one in brokers})
        ]

    def publications(self) -> Publications:
        """Return messages at the recorded times."""
        record, body = self._record, b"x" * self._body
        since = (record.times - record.times[0]) * 1_000 if len(record.times) else record.times
        entries = np.array([self._places[origin] for origin in record.origins.tolist()], np.int32)
        sets = record.set_of.tolist()
        return Publications(
            (since / self._speed).astype(np.int64),
            entries,
            np.zeros(len(entries), np.int32),
            lambda row: Draft(f"set.{sets[row]}", {}, body=body),
        )


def read_record(trail: Path, since: int | None = None, until: int | None = None) -> RecordedTraffic:
    """Read the traffic of a trail that `exact` wrote, compacted or not.

    Raises:
        PipelineError: it is not a trail, or has nothing in that time.
        LabError: it has no exact record, or more messages than can be played.
    """
    sources = open_sources(trail, since, until)
    if not any(sources.of(name) for name in ("passages", "journeys")):
        raise LabError(
            f"{trail}: has no exact record of messages in that time; a trail of `sealed`, `bloom` or `log` says "
            "whether a message passed, but cannot list what did"
        )
    rows = _RecordedRows()
    for source in sources.of("passages"):
        rows.add_passages(sources, source)
    for source in sources.of("journeys"):
        rows.add_journeys(sources, source)
    return rows.record(sources)


class _RecordedRows:
    """Rows of all files: (id, what happened at which broker)."""

    def __init__(self) -> None:
        self._entered: list[Ints] = []
        self._delivered: list[Ints] = []
        self._copies = 0
        self._carried: dict[tuple[int, int], int] = {}

    def add_passages(self, sources: Sources, source: SourceFile) -> None:
        table = sources.read(source, [*_ID, "arrived_from", "relayed_to", "delivered"])
        ids = self._ids(sources, table)
        inside = ids[1]
        if not inside.any():
            return
        entered = inside & (table.column("arrived_from").to_numpy() == 0)
        self._entered.append(ids[0][entered])
        delivered = np.diff(_lists(table, "delivered")[0])
        here = inside & (delivered > 0)
        self._delivered.append(np.column_stack([ids[0][here], np.full(int(here.sum()), source.broker)]))
        self._copies += int(delivered[inside].sum())
        offsets, hops = _lists(table, "relayed_to")
        counted = np.repeat(inside, np.diff(offsets))
        for neighbour, count in zip(*np.unique(hops[counted], return_counts=True), strict=True):
            self._carry((source.broker, int(neighbour)), int(count))

    def add_journeys(self, sources: Sources, source: SourceFile) -> None:
        table = sources.read(source, [*_ID, "path", "delivered"])
        ids, inside = self._ids(sources, table)
        self._entered.append(ids[inside])
        for column in ("path", "delivered"):
            offsets, numbers = _lists(table, column)
            rows = np.repeat(np.arange(len(ids)), np.diff(offsets) // 2)
            pairs = numbers.reshape(-1, 2)[inside[rows]]
            rows = rows[inside[rows]]
            if column == "path":
                found, counts = np.unique(pairs, axis=0, return_counts=True)
                for (one, other), count in zip(found.tolist(), counts.tolist(), strict=True):
                    self._carry((one, other), count)
            else:
                self._copies += len(pairs)
                self._delivered.append(np.column_stack([ids[rows], pairs[:, 0]]))

    def _carry(self, ends: tuple[int, int], count: int) -> None:
        self._carried[ends] = self._carried.get(ends, 0) + count

    @staticmethod
    def _ids(sources: Sources, table: Any) -> tuple[Ints, NDArray[np.bool_]]:
        """Return int64[rows, 4] of (time, origin, publisher, counter), and which of them are in the requested time."""
        columns = [
            table.column(name).to_numpy().astype(np.int64) for name in ("time", "origin", "publisher", "counter")
        ]
        ids = np.column_stack(columns)
        return ids, (ids[:, 0] >= sources.since) & (ids[:, 0] < sources.until)

    def record(self, sources: Sources) -> RecordedTraffic:
        entered = np.concatenate(self._entered) if self._entered else np.zeros((0, 4), np.int64)
        entered = np.unique(entered, axis=0)
        if not len(entered):
            raise LabError(f"{sources.root}: no message entered in that time")
        if len(entered) > MAX_RECORDED:
            raise LabError(
                f"{sources.root}: {len(entered):,} messages; at most {MAX_RECORDED:,} can be played at once: "
                "give --since and --until"
            )
        sets, set_of = _sets(entered, np.concatenate(self._delivered))
        return RecordedTraffic(
            entered[:, 1], entered[:, 0], sets, set_of, self._copies, self._carried, _links(sources), _size(sources)
        )


def _lists(table: Any, name: str) -> tuple[Ints, Ints]:
    """Return offsets and numbers of a column of packed lists; files may hold them by a dictionary."""
    return unpack_lists(table.column(name).cast(pa.binary()))


def _sets(entered: Ints, delivered: Ints) -> tuple[list[frozenset[int]], Ints]:
    """Return the distinct sets of brokers that delivered a message, and which of them each message has."""
    delivered = np.unique(delivered, axis=0)
    # Both are sorted by id: the place of each delivery's message, if that entered in the requested time.
    both = np.concatenate([entered, delivered[:, :4]])
    _, place = np.unique(both, axis=0, return_inverse=True)
    message_at = np.full(int(place.max()) + 1, -1)
    message_at[place[: len(entered)]] = np.arange(len(entered))
    rows = message_at[place[len(entered) :]]
    known = rows >= 0
    by_message: list[list[int]] = [[] for _ in range(len(entered))]
    for row, broker in zip(rows[known].tolist(), delivered[known, 4].tolist(), strict=True):
        by_message[row].append(broker)
    places: dict[frozenset[int], int] = {}
    set_of = np.array([places.setdefault(frozenset(brokers), len(places)) for brokers in by_message])
    return list(places), set_of


def _links(sources: Sources) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for source in sources.of("links", always=True):
        table = sources.read(source, ["neighbour", "up", "cost"])
        for neighbour, up, cost in zip(
            *(table.column(name).to_pylist() for name in ("neighbour", "up", "cost")), strict=True
        ):
            if up:
                found[min(source.broker, neighbour), max(source.broker, neighbour)] = max(1, cost)
    return found


def _size(sources: Sources) -> float:
    messages = size = 0
    for source in sources.of("timings"):
        table = sources.read(source, ["messages", "bytes"])
        messages += int(table.column("messages").to_numpy().sum())
        size += int(table.column("bytes").to_numpy().sum())
    return size / messages if messages else 0.0
