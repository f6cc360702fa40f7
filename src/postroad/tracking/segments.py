"""Segments: what recorders seal, as columns, one named tuple for each table of the trail.

A recorder decides what to store and gives it out in these; where and how it is stored is the trail's business. Numbers
that are unsigned elsewhere (publishers, brokers) are signed 64-bit integers here, because readers of the trail know no
others. docs/trail.md says what each column means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Shorts = NDArray[np.int32]

__all__ = [
    "ADDENDUM",
    "BATCHES_PER_SAMPLE",
    "HERE",
    "LEFT_OUT",
    "Aliases",
    "BatchCost",
    "FilterSegment",
    "HistoryKind",
    "Latencies",
    "LinkChanges",
    "Lists",
    "LogRecords",
    "Names",
    "PassageRuns",
    "Passages",
    "Segment",
    "Shared",
    "Shed",
    "SubscriptionChanges",
    "Timings",
]

# `Passages.arrived_from`: the message entered the network at this broker.
HERE = 0
# `Passages.arrived_from`: the row adds to an earlier row of the same message, for instance a late acknowledgement.
ADDENDUM = -1


class Lists(NamedTuple):
    """One ascending list of numbers (unsigned 32-bit) for each row: row i has numbers[offsets[i]:offsets[i + 1]]."""

    offsets: Ints
    numbers: Ints


class Shared(NamedTuple):
    """Few lists for many: the one at i has list which[i] of `lists`."""

    which: Shorts
    lists: Lists


class Passages(NamedTuple):
    """The exact record: one row for each message that passed this broker.

    Rows are sorted by (origin, time, publisher, counter). Several rows of one message at one broker mean their union.
    """

    origin: Ints
    time: Ints
    publisher: Ints
    counter: Shorts
    arrived_from: Ints
    relayed_to: Lists
    delivered: Lists
    acknowledged: Lists
    refused: Lists
    queued: Lists


class PassageRuns(NamedTuple):
    """Rows of `Passages` as runs: the messages of a busy publisher, reported many at once.

    A run is rows that differ in the counter alone, which rises by one from row to row. Rows are in the same order.

    Attributes:
        counts: rows of each run, at least one.
        origin: of all rows of each run; so the others.
        counter: of the first row of each run.
        lists: the lists of each run, of those that have anything, by the names they have in `Passages`.
    """

    counts: Ints
    origin: Ints
    time: Ints
    publisher: Ints
    counter: Ints
    arrived_from: Ints
    lists: dict[str, Shared]


class HistoryKind:
    """What the keys of a filter mean."""

    ACCEPTED = 1  # id: entered the network here
    ARRIVED = 2  # id: read from a link
    RELAYED = 3  # (id, neighbour): written to the link to a neighbour
    DELIVERED = 4  # (id, subscription): written to a subscription's socket
    ACKNOWLEDGED = 5  # (id, subscription)
    REFUSED = 6  # (id, subscription)
    ARRIVED_FROM = 7  # (id, neighbour): read from the link to a neighbour
    QUEUED = 8  # (id, subscription): had to wait in a subscription's queue
    RELAYED_SET = 9  # (id, set of neighbours): all links it was written to, as one key


class FilterSegment(NamedTuple):
    """One sealed filter of one history.

    Attributes:
        kind: one of `HistoryKind`.
        origin: the broker in the ids.
        subject: a neighbour or subscription where the history is of one alone (keys are then plain ids), else 0.
        time_from: the earliest id time in it that widened its range; later than `time_to` when only `singles` count.
        time_to: the latest.
        singles: id times outside the range: late ids and those out of tolerance.
        opened: when the first id came in, by the broker's clock.
        sealed: when the last could have come in.
        entries: ids in it.
        capacity: ids it was made for.
        method: "bloom" or "ribbon".
        bits: m, the size in bits.
        hashes: k, probes per id.
        seed: of the construction, where one is needed.
        ones: bits set, for the error rate it really has (Bloom); 0 for others.
        data: the filter itself, in the canonical bytes of docs/formats.md.
        keys: the 64-bit hashes it was made of, where the recorder keeps them for merging later.
    """

    kind: int
    origin: int
    subject: int
    time_from: int
    time_to: int
    singles: Ints
    opened: int
    sealed: int
    entries: int
    capacity: int
    method: str
    bits: int
    hashes: int
    seed: int
    ones: int
    data: bytes
    keys: NDArray[np.uint64] | None = None


class LogRecords(NamedTuple):
    """The plain log: one row for each thing that happened to a message, in the order it happened.

    `kind` is one of `HistoryKind`; `subject` is the neighbour or subscription it is about, or 0.
    """

    kind: Shorts
    subject: Ints
    origin: Ints
    time: Ints
    publisher: Ints
    counter: Shorts


class Repeated(NamedTuple):
    """A column of texts, each for a number of consecutive rows."""

    texts: tuple[str, ...]
    counts: Ints


class Shed(NamedTuple):
    """Messages that went no further: at a subscription's queue, or (subscription is 0) towards other brokers."""

    origin: Ints
    time: Ints
    publisher: Ints
    counter: Shorts
    subscription: Ints
    link: Ints
    reason: list[str] | Repeated
    at: Ints


class SubscriptionChanges(NamedTuple):
    """Who was subscribed when: `begins` is 1 when a subscription begins, 0 when it ends."""

    subscription: Ints
    at: Ints
    begins: Shorts
    principal: list[str]
    topic: list[str]
    selector: list[str]


class LinkChanges(NamedTuple):
    """The topology over time, as this broker saw it: `up` is 1 when the link works from then on, 0 when not."""

    neighbour: Ints
    at: Ints
    up: Shorts
    cost: Shorts


class Names(NamedTuple):
    """The names of numbers: `kind` is "publisher" (subscriptions are in `SubscriptionChanges`)."""

    kind: list[str]
    number: Ints
    at: Ints
    name: list[str]


# Stands for aliases that were left out, with the id of the first of these messages: no sender can give an empty one.
LEFT_OUT = ""


class Aliases(NamedTuple):
    """Foreign ids of messages that entered here."""

    alias: list[str]
    origin: Ints
    time: Ints
    publisher: Ints
    counter: Shorts


# Of the reads with messages one in this many is timed. Two looks at a clock and a line in the record are some 3
# microseconds; a read is 35 or more: far below one percent.
BATCHES_PER_SAMPLE = 64


class BatchCost(NamedTuple):
    """What one sampled batch cost: all messages of one read.

    Attributes:
        messages: how many came in.
        subscriptions: how many were resident.
        copies: how many messages went out, to subscriptions and neighbours.
        destinations: to how many sockets they went.
        bytes: of what came in.
        nanoseconds: from the read of its socket until its bytes were written.
    """

    messages: int
    subscriptions: int
    copies: int
    destinations: int
    bytes: int
    nanoseconds: int


class Timings(NamedTuple):
    """What sampled batches cost this broker: the fields of `BatchCost` as columns."""

    at: Ints
    messages: Shorts
    subscriptions: Shorts
    copies: Shorts
    destinations: Shorts
    bytes: Ints
    nanoseconds: Ints


class Latencies(NamedTuple):
    """Counts of deliveries by latency (written to the socket, less the id's time): a sketch that adds up.

    Bucket i holds latencies in (GROWTH ** (i - 1), GROWTH ** i] ms; bucket 0 all up to 1 ms.
    """

    since: Ints
    until: Ints
    bucket: Shorts
    deliveries: Ints


Segment = (
    Passages
    | PassageRuns
    | FilterSegment
    | LogRecords
    | Shed
    | SubscriptionChanges
    | LinkChanges
    | Names
    | Aliases
    | Timings
    | Latencies
)
