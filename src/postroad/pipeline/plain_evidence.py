"""What plain evidence says, by array operations over many ids at once.

Nearly all messages of a healthy network leave plain evidence: both ends of every hop recorded it, each broker's record
is one row, nothing still waits. Evidence that is not plain is marked, and left to the general rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from postroad.pipeline.evidence import SOURCES
from postroad.pipeline.findings import DAMAGED, HIT
from postroad.pipeline.tables import ID
from postroad.tracking import HERE, HistoryKind
from postroad.trail import unpack_lists

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from postroad.pipeline.context import Context

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bits = NDArray[np.bool_]
    Triples = tuple[Ints, Ints, Ints]

__all__ = ["Answers", "View", "first_rows", "from_hits", "from_journeys", "from_passages", "triples", "whole_ids"]

# Broker numbers are below 2^16 (postroad.topology.LARGEST_BROKER): a hop fits into 32 bits, with a group beside it.
_BROKER_BITS = 16


class Answers(NamedTuple):
    """What plain evidence says, as rows about groups (ids).

    Attributes:
        stops: (group, broker) of each broker passed.
        hops: (group, from, to) of each hop.
        delivered: (group, broker, subscription) of each delivery.
        doubts: of each delivery.
        acknowledged: (group, broker, subscription).
        refused: (group, broker, subscription).
        surety: 1 minus the doubt that the message entered at its origin; by group.
    """

    stops: tuple[Ints, Ints]
    hops: Triples
    delivered: Triples
    doubts: Floats
    acknowledged: Triples
    refused: Triples
    surety: Floats


class View(NamedTuple):
    """The evidence of a batch, and where its groups begin."""

    context: Context
    rows: Any
    group: Ints
    source: Ints
    at: dict[str, Ints]

    @classmethod
    def of(cls, context: Context, rows: Any) -> View:
        """Build from sorted evidence in which every id is whole."""
        rows = rows.combine_chunks()
        starts = first_rows(rows)
        group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, rows.num_rows)))
        at = {name: rows.column(name).to_numpy()[starts] for name in ID}
        return cls(context, rows, group, rows.column("source").to_numpy(), at)

    def counts(self) -> Ints:
        """Return how many rows of each source every group has: int64[group, source]."""
        groups = len(self.at["origin"])
        return np.bincount(self.group * SOURCES + self.source, minlength=groups * SOURCES).reshape(groups, SOURCES)

    def surely_complete(self, stops: tuple[Ints, Ints], plain: Bits) -> None:
        """Mark ids as not plain if they passed a broker whose record may be incomplete at the time."""
        group, broker = stops
        plain[group[~self.context.is_complete(broker, self.at["time"][group])]] = False

    def chosen(self, groups: Ints, source: int) -> Ints:
        """Return the rows of a kind that belong to some groups."""
        wanted = np.zeros(len(self.at["origin"]), np.bool_)
        wanted[groups] = True
        return np.flatnonzero(wanted[self.group] & (self.source == source))

    def numbers(self, name: str, rows: Ints) -> Ints:
        """Return a column of some rows, in which it is never null."""
        return np.asarray(self.rows.column(name).take(pa.array(rows)).to_numpy(), np.int64)

    def lists(self, name: str, rows: Ints) -> tuple[Ints, Ints]:
        """Return the numbers in the packed lists of some rows, and the place of its row for each number."""
        offsets, numbers = unpack_lists(self.rows.column(name).take(pa.array(rows)))
        return np.repeat(np.arange(len(rows)), np.diff(offsets)), numbers


def first_rows(rows: Any) -> Ints:
    """Return where each id begins in sorted rows."""
    if not rows.num_rows:
        return np.empty(0, np.int64)
    fresh = np.ones(rows.num_rows, np.bool_)
    fresh[1:] = False
    for name in ID:
        values = rows.column(name).to_numpy()
        fresh[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(fresh)


def triples(rows: tuple[Ints, Ints, Ints]) -> Any:
    """Return (group, broker, subscription) as one comparable value."""
    pair = np.empty(len(rows[0]), np.dtype([("place", np.int64), ("subscription", np.int64)]))
    pair["place"] = rows[0] << _BROKER_BITS | rows[1]
    pair["subscription"] = rows[2]
    return pair.view("V16").ravel()


def whole_ids(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield tables of sorted rows in which every id is whole: the last id of a batch waits for the next batch."""
    held: Any = None
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        if held is not None:
            rows = pa.concat_tables([held, rows])
        starts = first_rows(rows)
        cut = int(starts[-1]) if len(starts) else 0
        held = rows.slice(cut)
        if cut:
            yield rows.slice(0, cut)
    if held is not None and held.num_rows:
        yield held


# --- what evidence of each kind says --------------------------------------------------------------------------------


def from_journeys(view: View, rows: Ints, plain: Bits) -> Answers:
    """Read journeys, which are plain by construction: compaction writes only complete ones."""
    group = view.group[rows]
    hops, delivered = _in_pairs(view, "relayed_to", rows), _in_pairs(view, "delivered", rows)
    return Answers(
        (np.concatenate([group, hops[0]]), np.concatenate([view.at["origin"][group], hops[2]])),
        hops,
        delivered,
        np.zeros(len(delivered[0])),
        _in_pairs(view, "acknowledged", rows),
        _in_pairs(view, "refused", rows),
        np.ones(len(plain)),
    )


def from_passages(view: View, rows: Ints, plain: Bits) -> Answers:
    group, broker = view.group[rows], view.numbers("broker", rows)
    came = view.numbers("arrived_from", rows)
    at_origin = broker == view.at["origin"][group]
    _need_each_once(plain, group, broker)
    plain[group[(came < HERE) | (at_origin != (came == HERE))]] = False
    _need_one_origin(plain, group[at_origin])
    place, hop = view.lists("relayed_to", rows)
    claims = _hops(group[place], broker[place], hop)
    arrivals = _hops(group[~at_origin], came[~at_origin], broker[~at_origin])
    plain[np.setxor1d(claims, arrivals) >> 2 * _BROKER_BITS] = False
    lists = {name: view.lists(name, rows) for name in ("delivered", "acknowledged", "refused", "queued")}
    triples_of = {name: (group[place], broker[place], number) for name, (place, number) in lists.items()}
    _doubt_waiting(plain, triples_of["queued"], triples_of["delivered"])
    return Answers(
        (group, broker),
        (group[place], broker[place], hop),
        triples_of["delivered"],
        np.zeros(len(triples_of["delivered"][0])),
        triples_of["acknowledged"],
        triples_of["refused"],
        np.ones(len(plain)),
    )


def from_hits(view: View, rows: Ints, plain: Bits) -> Answers:
    packed = view.rows.column("hits").take(pa.array(rows)).combine_chunks()
    if isinstance(packed, pa.ChunkedArray):
        packed = pa.concat_arrays(packed.chunks)
    offsets = np.frombuffer(packed.buffers()[1], np.int32)[packed.offset : packed.offset + len(rows) + 1]
    hits = np.frombuffer(packed.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].view(HIT)
    place = np.repeat(np.arange(len(rows)), np.diff(offsets) // HIT.itemsize)
    group, broker = view.group[rows], view.numbers("broker", rows)
    _need_each_once(plain, group, broker)
    at_origin = broker == view.at["origin"][group]
    own = np.where(at_origin[place], HistoryKind.ACCEPTED, HistoryKind.ARRIVED) == hits["kind"]
    seen = np.bincount(place[own], minlength=len(rows))
    plain[group[seen != 1]] = False
    plain[group[place[hits["kind"] == DAMAGED]]] = False
    _need_one_origin(plain, group[at_origin])

    def triples_of(kind: int) -> Triples:
        chosen = hits["kind"] == kind
        return group[place[chosen]], broker[place[chosen]], hits["number"][chosen].astype(np.int64)

    claimed = triples_of(HistoryKind.RELAYED)
    # Each broker that recorded the message got it once from a neighbour, and no other broker did.
    relayed = _hops(claimed[0], np.zeros_like(claimed[1]), claimed[2])
    known, times = np.unique(relayed, return_counts=True)
    plain[known[times > 1] >> 2 * _BROKER_BITS] = False
    had = _hops(group[~at_origin], np.zeros(int((~at_origin).sum()), np.int64), broker[~at_origin])
    plain[np.setxor1d(known, had) >> 2 * _BROKER_BITS] = False
    delivered = triples_of(HistoryKind.DELIVERED)
    _doubt_waiting(plain, triples_of(HistoryKind.QUEUED), delivered)
    surety = np.ones(len(plain))
    entered = own & at_origin[place]
    surety[group[place[entered]]] = 1 - hits["doubt"][entered]
    doubts = hits["doubt"][hits["kind"] == HistoryKind.DELIVERED]
    acknowledged, refused = triples_of(HistoryKind.ACKNOWLEDGED), triples_of(HistoryKind.REFUSED)
    return Answers((group, broker), claimed, delivered, doubts, acknowledged, refused, surety)


def _in_pairs(view: View, name: str, rows: Ints) -> Triples:
    place, numbers = view.lists(name, rows)
    return view.group[rows][place[::2]], numbers[::2], numbers[1::2]


def _hops(group: Ints, start: Ints, end: Ints) -> Ints:
    return group << 2 * _BROKER_BITS | start << _BROKER_BITS | end


def _need_each_once(plain: Bits, group: Ints, broker: Ints) -> None:
    """Mark as not plain: several rows of one message at one broker, which mean their union."""
    known, times = np.unique(_hops(group, np.zeros_like(broker), broker), return_counts=True)
    plain[known[times > 1] >> 2 * _BROKER_BITS] = False


def _need_one_origin(plain: Bits, group: Ints) -> None:
    plain &= np.bincount(group, minlength=len(plain)) == 1


def _doubt_waiting(plain: Bits, queued: Triples, delivered: Triples) -> None:
    """Mark as not plain: a message that still waits in a queue."""
    if len(queued[0]):
        plain[queued[0][~np.isin(triples(queued), triples(delivered))]] = False
