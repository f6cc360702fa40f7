"""Shortest paths from one broker, and the masks that make routing one AND per link.

Among paths of equal cost every broker takes the neighbour with the lowest number. Then the branches of one message
never meet again. Suppose two destinations' paths part at r, towards neighbours a and b, and meet again at v: both
stretches from r to v are shortest, so a lies on a shortest path to either destination, and so does b; r would have
taken the lower of the two for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from postroad.kernels import device, kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Integers: TypeAlias = NDArray[np.int64]
    Words: TypeAlias = NDArray[np.uint64]

__all__ = ["UNREACHED", "Routes", "bit_words", "routes"]

UNREACHED = -1
_WORD_BITS = 64


@dataclass(frozen=True, eq=False)
class Routes:
    """What one broker knows about the ways to all others.

    Attributes:
        number: the broker itself.
        neighbours: int64[links], rising; a link is known by its place here. Links no way begins with are here too.
        masks: uint64[links, words]; bit d of line i: the way to broker d begins with link i. The lines are disjoint.
        first_hops: int64[64 * words]; by broker number, the neighbour its way begins with, or UNREACHED.
        distances: int64[64 * words]; by broker number, the cost of the way, or UNREACHED.
    """

    number: int
    neighbours: Integers
    masks: Words
    first_hops: Integers
    distances: Integers

    @property
    def words(self) -> int:
        """Words of a destination set here."""
        return int(self.masks.shape[1])

    @cached_property
    def reachable(self) -> Words:
        """uint64[words]: all brokers with a way to them, without the broker itself."""
        return np.asarray(np.bitwise_or.reduce(self.masks, axis=0, initial=np.uint64(0)))

    @cached_property
    def reached(self) -> int:
        """How many brokers have a way to them."""
        return int(np.bitwise_count(self.reachable).sum())

    def first_hop(self, destination: int) -> int:
        """The neighbour on the way to a broker, or UNREACHED."""
        return int(self.first_hops[destination]) if 0 <= destination < len(self.first_hops) else UNREACHED


def bit_words(largest: int) -> int:
    """Words that hold the bits 0 to `largest`."""
    return largest // _WORD_BITS + 1


def routes(number: int, neighbours_of: Mapping[int, Mapping[int, int]]) -> Routes:
    """The ways from one broker.

    Args:
        number: where they begin.
        neighbours_of: broker -> neighbour -> cost, the same in both directions; `number` may be missing.
    """
    numbers = sorted({number, *neighbours_of})
    place = {broker: position for position, broker in enumerate(numbers)}
    offsets = np.zeros(len(numbers) + 1, np.int64)
    targets: list[int] = []
    costs: list[int] = []
    for position, broker in enumerate(numbers):
        around = neighbours_of.get(broker, {})
        targets += [place[other] for other in around]
        costs += around.values()
        offsets[position + 1] = len(targets)
    found_distances = np.full(len(numbers), UNREACHED, np.int64)
    found_hops = np.full(len(numbers), UNREACHED, np.int64)
    _search(
        offsets,
        np.array(targets, np.int64),
        np.array(costs, np.int64),
        place[number],
        found_distances,
        found_hops,
        np.empty((len(targets) + 1, 2), np.int64),
    )
    neighbours = np.array(sorted(neighbours_of.get(number, {})), np.int64)
    return _tables(number, neighbours, np.array(numbers, np.int64), found_distances, found_hops)


def _tables(number: int, neighbours: Integers, numbers: Integers, distances: Integers, hops: Integers) -> Routes:
    words = bit_words(int(numbers[-1]))
    all_distances = np.full(words * _WORD_BITS, UNREACHED, np.int64)
    all_distances[numbers] = distances
    all_hops = np.full(words * _WORD_BITS, UNREACHED, np.int64)
    reached = hops != UNREACHED
    all_hops[numbers[reached]] = numbers[hops[reached]]
    masks = np.zeros((len(neighbours), words), np.uint64)
    destinations = numbers[reached]
    lines = np.searchsorted(neighbours, all_hops[destinations])
    bits = np.left_shift(np.uint64(1), (destinations % _WORD_BITS).astype(np.uint64))
    np.bitwise_or.at(masks, (lines, destinations // _WORD_BITS), bits)
    return Routes(number, neighbours, masks, all_hops, all_distances)


@device
def _push(heap: Integers, size: int, cost: int, node: int) -> None:
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if heap[above, 0] <= cost:
            break
        heap[place, 0] = heap[above, 0]
        heap[place, 1] = heap[above, 1]
        place = above
    heap[place, 0] = cost
    heap[place, 1] = node


@device
def _drop_first(heap: Integers, size: int) -> None:
    """Take the first entry of a heap of `size` out, by letting the last one sink from the top."""
    last = size - 1
    cost = heap[last, 0]
    node = heap[last, 1]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= last:
            break
        if below + 1 < last and heap[below + 1, 0] < heap[below, 0]:
            below += 1
        if heap[below, 0] >= cost:
            break
        heap[place, 0] = heap[below, 0]
        heap[place, 1] = heap[below, 1]
        place = below
    heap[place, 0] = cost
    heap[place, 1] = node


@kernel("void(int64[::1], int64[::1], int64[::1], int64, int64[::1], int64[::1], int64[:, ::1])", allocates=False)
def _search(
    offsets: Integers,
    targets: Integers,
    costs: Integers,
    source: int,
    distances: Integers,
    hops: Integers,
    heap: Integers,
) -> None:
    """Dijkstra's search; `hops` gets the lowest first step of any shortest path.

    Costs are positive, so all steps into a broker that lie on a shortest path come from brokers settled before it,
    and the lowest first step is the lowest of theirs. A broker is pushed when its distance falls: at most once for
    each direction of a link, which bounds the heap.
    """
    distances[source] = 0
    heap[0, 0] = 0
    heap[0, 1] = source
    size = 1
    while size > 0:
        cost = heap[0, 0]
        node = heap[0, 1]
        _drop_first(heap, size)
        size -= 1
        if cost > distances[node]:
            continue
        for edge in range(offsets[node], offsets[node + 1]):
            other = targets[edge]
            reached = cost + costs[edge]
            hop = other if node == source else hops[node]
            known = distances[other]
            if known == -1 or reached < known:
                distances[other] = reached
                hops[other] = hop
                _push(heap, size, reached, other)
                size += 1
            elif reached == known and other != source and hop < hops[other]:
                hops[other] = hop
