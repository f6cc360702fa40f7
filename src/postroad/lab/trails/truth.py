"""What really happened to the messages of a generated trail: a Parquet dataset beside it, one file for each slice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from postroad.errors import PostroadError
from postroad.tracking import Lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.lab.trails.traffic import Slice, TrailTraffic

    Ints = NDArray[np.int64]

__all__ = ["ABSENT_COUNTER", "TRUTH", "read_truth", "sample_ids", "truth_of", "write_truth"]

# The folder in the trail's directory. Readers of the trail use manifests and never look there.
TRUTH = "truth"
# Requested ids that never existed have counters from here on: no publisher of a generated trail gets there.
ABSENT_COUNTER = 30_000

_SORTED_BITS = 63
_PAIRS = pa.list_(pa.int64())
TRUTH_SCHEMA = pa.schema(
    [
        ("origin", pa.int64()),
        ("time", pa.int64()),
        ("publisher", pa.int64()),
        ("counter", pa.int32()),
        ("path", _PAIRS),  # hops that happened, each as from << 32 | to, ascending
        ("deliveries", _PAIRS),  # each as broker << 32 | subscription, ascending
        ("lost", pa.int64()),  # the broker it was relayed to and never reached; 0 for none
        ("shed_at", pa.int64()),
        ("shed_from", pa.int64()),
    ]
)


def truth_of(traffic: TrailTraffic, messages: Slice) -> Any:
    """Return what happened to the messages of a slice, as an Arrow table."""
    path = _hops(traffic, messages)
    deliveries = _deliveries(traffic, messages)
    arrays = [
        pa.array(messages.origin),
        pa.array(messages.time),
        pa.array(messages.publisher),
        pa.array(messages.counter.astype(np.int32)),
        _list_array(path),
        _list_array(deliveries),
        pa.array(messages.lost),
        pa.array(messages.shed_at),
        pa.array(messages.shed_from),
    ]
    return pa.Table.from_arrays(arrays, schema=TRUTH_SCHEMA)


def _hops(traffic: TrailTraffic, messages: Slice) -> Lists:
    reached = messages.visited.copy()
    reached[np.arange(len(messages.origin)), messages.origin] = False
    row, broker = np.nonzero(reached)
    return _gathered(len(messages.origin), row, traffic.terrain.parents[messages.origin[row], broker], broker)


def _deliveries(traffic: TrailTraffic, messages: Slice) -> Lists:
    rows: list[Ints] = []
    brokers: list[Ints] = []
    numbers: list[Ints] = []
    for broker in traffic.terrain.graph.brokers:
        here = np.flatnonzero(messages.visited[:, broker])
        lists = traffic.delivered(messages, here, broker)
        rows.append(np.repeat(here, np.diff(lists.offsets)))
        brokers.append(np.full(len(lists.numbers), broker))
        numbers.append(lists.numbers)
    return _gathered(len(messages.origin), *(np.concatenate(one) for one in (rows, brokers, numbers)))


def _gathered(count: int, row: Ints, first: Ints, second: Ints) -> Lists:
    """Return pairs by row, ascending, each as first << 32 | second."""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=count), out=offsets[1:])
    # Sorted as one number, in place, which is many times faster than by several columns.
    wide, high = (int(one.max(initial=0)).bit_length() for one in (second, first))
    if count.bit_length() + high + wide > _SORTED_BITS:
        order = np.lexsort((second, first, row))
        return Lists(offsets, (first << 32 | second)[order])
    keys = (row << high | first) << wide | second
    keys.sort()
    return Lists(offsets, (keys >> wide & ((1 << high) - 1)) << 32 | keys & ((1 << wide) - 1))


def _list_array(lists: Lists) -> Any:
    return pa.ListArray.from_arrays(pa.array(lists.offsets.astype(np.int32)), pa.array(lists.numbers))


def write_truth(root: Path, traffic: TrailTraffic, messages: Slice) -> None:
    """Write the truth of one slice."""
    folder = root / TRUTH
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"slice-{messages.part:06d}.parquet"
    pq.write_table(truth_of(traffic, messages), path, compression="zstd")


def read_truth(root: str | Path) -> Any:
    """Return the truth of a whole trail, as an Arrow table.

    Raises:
        PostroadError: the trail was not generated, or not with its truth.
    """
    folder = Path(root) / TRUTH
    if not folder.is_dir():
        raise PostroadError(f"{folder}: there is no truth to this trail; only `postroad lab trail` writes one")
    return pq.read_table(folder)


def sample_ids(root: str | Path, count: int, absent: float = 0.5, seed: int = 1) -> Any:
    """Return ids to ask for: some of the trail's, drawn without repetition, mixed with a share that never existed.

    The result is an Arrow table of origin, time, publisher, counter.
    """
    random = np.random.default_rng([seed, count])
    columns = ["origin", "time", "publisher", "counter"]
    known = pq.read_table(Path(root) / TRUTH, columns=columns)
    wanted = round(count * (1 - absent))
    if wanted > known.num_rows:
        raise PostroadError(f"the trail has {known.num_rows:,} messages, fewer than the {wanted:,} ids asked for")
    there = known.take(pa.array(np.sort(random.choice(known.num_rows, wanted, replace=False))))
    other = known.take(pa.array(random.integers(0, known.num_rows, count - wanted)))
    strange = np.unique(_strange(other, random), axis=0)
    arrays = [pa.array(strange[:, place].astype(known.schema.types[place].to_pandas_dtype())) for place in range(4)]
    mixed = pa.concat_tables([there, pa.Table.from_arrays(arrays, schema=known.schema)])
    return mixed.take(pa.array(random.permutation(mixed.num_rows)))


def _strange(other: Any, random: np.random.Generator) -> Ints:
    columns = [column.to_numpy().astype(np.int64) for column in other.columns]
    columns[3] = ABSENT_COUNTER + random.integers(0, ABSENT_COUNTER, len(columns[3]))
    return np.stack(columns, axis=1)
