"""`PredicateMatrix`: which brokers may want a message, by their encoded predicates.

A row matches a message when all of its bits are set in the message's vector: B_p AND NOT B_m = 0, as B-DRP has it.
Testing each row against each vector reads a vector per pair; here up to 64 messages are tested at once. `columns[p]`
holds, for one position p, a bit per message of a group of 64; the AND of the columns at a row's positions is the set of
messages that the row matches.

The first four positions of a row, the *lead*, are ANDed without a branch: most rows end there, and a branch after
every position would be mispredicted as often as not. They are the positions that fewest rows have, because the
common ones are those of categories that most messages have. The column after the last position is all ones and fills
short leads, so that an empty row matches everything.

Rows of all brokers are end to end: those of `owners[i]` are `bounds[i]` to `bounds[i + 1]`. `leads[row]` packs four
positions of 16 bits; the others are `places[tails[row] : tails[row + 1]]`. A batch of up to eight messages has columns
of one byte, a larger one of eight, and takes 64 messages at a time.

Positions of a row were compared with the width of the scheme when it was read (`wire`), and are unsigned; there is one
column more than the scheme has bits. Positions of a message are below that width by `step`. An owner's word is within
`out`, which is as wide as the largest owner needs.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.filters.positions import start, step
from postroad.kernels import device, kernel
from postroad.matching.encoding.content import message_categories
from postroad.matching.encoding.errors import EncodingError

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from postroad.matching.encoding.content import Categories
    from postroad.matching.encoding.predicates import EncodedPredicates
    from postroad.matching.encoding.scheme import Scheme
    from postroad.messages import Batch

    Columns = NDArray[np.uint8] | NDArray[np.uint64]

__all__ = ["MAX_OWNER", "PredicateMatrix"]

MAX_OWNER = 65_535  # a broker's number is its bit in the result, 8 KiB per message at the limit

_LEAD = 4
# Rows that are laid out in one step, and their positions, but one row at least: some 3 ms.
_STEP, _STEP_PLACES = 1_024, 16_384
_FEW = 8
_ONE, _ALL = np.uint64(1), np.uint64(2**64 - 1)
_SIXTEEN, _LOW_SIXTEEN = np.uint64(16), np.uint64(0xFFFF)


@device
def _fill(
    offsets: NDArray[np.int64], words: NDArray[np.uint64], first: int, last: int, k: int, columns: Columns
) -> None:
    """Set the columns for the messages `first` to `last`."""
    columns[:-1] = 0
    m = np.uint64(len(columns) - 1)
    for row in range(first, last):
        bit = _ONE << np.uint64(row - first)
        for place in range(offsets[row], offsets[row + 1]):
            x, y, z = start(words[place], m)
            for index in range(k):
                columns[x] |= bit
                x, y, z = step(x, y, z, np.uint64(index), m)


@device
def _matched(
    rows: tuple[int, int],
    everyone: np.uint64,
    leads: NDArray[np.uint64],
    tails: NDArray[np.int64],
    places: NDArray[np.uint16],
    columns: Columns,
) -> np.uint64:
    """The messages of the group that some of these rows match."""
    found = np.uint64(0)
    for row in range(np.uint64(rows[0]), np.uint64(rows[1])):
        lead = leads[row]
        half = columns[lead & _LOW_SIXTEEN] & columns[(lead >> _SIXTEEN) & _LOW_SIXTEEN]
        lead >>= _SIXTEEN + _SIXTEEN
        hits = np.uint64(half & columns[lead & _LOW_SIXTEEN] & columns[lead >> _SIXTEEN])
        if hits:
            for place in range(np.uint64(tails[row]), np.uint64(tails[row + _ONE])):
                hits &= np.uint64(columns[places[place]])
            found |= hits
            if found == everyone:
                break
    return found


def _signature(columns: str) -> str:
    return (
        f"void(int64[::1], uint64[::1], int64, {columns}[::1], int64[::1], int64[::1], uint64[::1], int64[::1],"
        " uint16[::1], uint64[:, ::1])"
    )


@kernel(_signature("uint8"), _signature("uint64"), allocates=False)
def _match(
    offsets: NDArray[np.int64],
    words: NDArray[np.uint64],
    k: int,
    columns: Columns,
    owners: NDArray[np.int64],
    bounds: NDArray[np.int64],
    leads: NDArray[np.uint64],
    tails: NDArray[np.int64],
    places: NDArray[np.uint16],
    out: NDArray[np.uint64],
) -> None:
    """Set in `out` the bit of each owner that has a matching row; rows of owner i are `bounds[i]:bounds[i + 1]`."""
    count = len(offsets) - 1
    group = 8 * columns.itemsize
    for first in range(0, count, group):
        last = min(first + group, count)
        _fill(offsets, words, first, last, k, columns)
        everyone = _ALL >> np.uint64(64 - (last - first))
        for index in range(len(owners)):
            word, bit = owners[index] >> 6, _ONE << np.uint64(owners[index] & 63)
            found = _matched((bounds[index], bounds[index + 1]), everyone, leads, tails, places, columns)
            for message in range(last - first):
                if found >> np.uint64(message) & _ONE:
                    out[first + message, word] |= bit


def _columns(bits: int, count: int) -> Columns:
    """Room for the columns of a batch: a few messages need bytes only, which are quicker to clear and stay in cache."""
    columns: Columns = np.empty(bits + 1, np.uint8) if count <= _FEW else np.empty(bits + 1, np.uint64)
    columns[-1] = np.iinfo(columns.dtype).max
    return columns


class _Part:
    """The rows of one owner in the layout of the kernel.

    Attributes:
        leads: four positions of each row, 16 bits each.
        tails: how many more each row has.
        places: those, row by row.
    """

    __slots__ = ("leads", "places", "tails")

    def __init__(self, leads: NDArray[np.uint64], tails: NDArray[np.int64], places: NDArray[np.uint16]) -> None:
        self.leads = leads
        self.tails = tails
        self.places = places


def _part_in_steps(predicates: EncodedPredicates) -> Generator[None, None, _Part]:
    """Lay out the rows of a list, some hundred at a time; the leads are the positions that fewest of its rows have."""
    bits, rows = predicates.scheme.bits, predicates.rows
    counted = np.zeros(bits, np.int64)
    pieces: list[tuple[NDArray[np.uint16], NDArray[np.int64]]] = []
    first = 0
    while first < len(rows):
        if first:
            yield
        last = _step_from(rows, first)
        part = rows[first:last]
        places = np.fromiter(chain.from_iterable(part), np.uint16)
        counted += np.bincount(places, minlength=bits)
        pieces.append((places, np.fromiter(map(len, part), np.int64, len(part))))
        first = last
    parts: list[tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint16]]] = []
    for places, sizes in pieces:
        if parts:
            yield
        parts.append(_laid_out(places, sizes, counted, bits))
    leads, tails, rest = ([part[column] for part in parts] for column in range(3))
    return _Part(
        np.concatenate([np.empty(0, np.uint64), *leads]),
        np.concatenate([np.empty(0, np.int64), *tails]),
        np.concatenate([np.empty(0, np.uint16), *rest]),
    )


def _step_from(rows: tuple[tuple[int, ...], ...], first: int) -> int:
    """Where the step ends that begins with a row: after so many rows or positions, and one row at least."""
    last, places = first, 0
    while last < len(rows) and last - first < _STEP and places < _STEP_PLACES:
        places += len(rows[last])
        last += 1
    return last


def _laid_out(
    places: NDArray[np.uint16], sizes: NDArray[np.int64], counted: NDArray[np.int64], bits: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint16]]:
    rows = np.repeat(np.arange(len(sizes)), sizes)
    places = places[np.lexsort((places, counted[places], rows))]
    starts = np.concatenate(([0], np.cumsum(sizes)))
    rank = np.arange(len(places)) - starts[rows]
    leads = np.full((len(sizes), _LEAD), bits, np.uint16)
    leads[rows[rank < _LEAD], rank[rank < _LEAD]] = places[rank < _LEAD]
    words = leads.astype("<u2").view("<u8").reshape(-1).astype(np.uint64)
    return words, np.maximum(sizes - _LEAD, 0), places[rank >= _LEAD]


class _Compiled:
    """The rows of all owners in the layout of the kernel."""

    __slots__ = ("bounds", "leads", "owners", "places", "tails", "width")

    def __init__(self, parts: dict[int, _Part]) -> None:
        owners = sorted(parts)
        ordered = [parts[owner] for owner in owners]
        self.owners = np.array(owners, np.int64)
        self.bounds = np.cumsum([0, *(len(part.leads) for part in ordered)], dtype=np.int64)
        self.width = max(owners, default=0) // 64 + 1
        self.leads = np.concatenate([np.empty(0, np.uint64), *(part.leads for part in ordered)])
        tails = np.concatenate([np.zeros(1, np.int64), *(part.tails for part in ordered)])
        self.tails = np.cumsum(tails, dtype=np.int64)
        self.places = np.concatenate([np.empty(0, np.uint16), *(part.places for part in ordered)])


class PredicateMatrix:
    """The encoded predicates of many brokers under one scheme.

    A match is a necessary condition: every broker with a subscription that the message satisfies is found, and some
    others, with a probability that depends on the scheme and on how full the messages' vectors are.
    """

    __slots__ = ("_compiled", "_parts", "scheme")

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self._parts: dict[int, _Part] = {}
        self._compiled: _Compiled | None = None

    def replace(self, owner: int, predicates: EncodedPredicates) -> None:
        """Set the whole list of a broker, in place of what it advertised before.

        Raises:
            EncodingError: the list was made under another scheme, so its bits mean something else.
            LimitError: the broker's number is above `MAX_OWNER`.
        """
        for _ in self.replace_in_steps(owner, predicates):
            pass

    def replace_in_steps(self, owner: int, predicates: EncodedPredicates) -> Generator[None, None, None]:
        """As `replace`, some hundred rows at a time; what the broker advertised before holds until all are done."""
        if predicates.scheme != self.scheme:
            raise EncodingError(f"broker {owner} encodes by {predicates.scheme}, this matrix by {self.scheme}")
        if not 0 <= owner <= MAX_OWNER:
            raise LimitError("the number of a broker", owner, MAX_OWNER)
        self._parts[owner] = yield from _part_in_steps(predicates)
        self._compiled = None

    def remove(self, owner: int) -> bool:
        """Forget the list of a broker; False when there was none."""
        self._compiled = None
        return self._parts.pop(owner, None) is not None

    def match(self, batch: Batch) -> NDArray[np.uint64]:
        """The brokers that may want each message: uint64[n, words], bit b of word w for broker 64 w + b."""
        return self.match_categories(message_categories(batch, self.scheme))

    def match_categories(self, categories: Categories) -> NDArray[np.uint64]:
        """`match` for categories computed before, with this matrix's scheme."""
        if self._compiled is None:
            self._compiled = _Compiled(self._parts)
        compiled = self._compiled
        out = np.zeros((len(categories.offsets) - 1, compiled.width), np.uint64)
        columns = _columns(self.scheme.bits, len(out))
        _match(
            categories.offsets,
            categories.words,
            self.scheme.hashes,
            columns,
            compiled.owners,
            compiled.bounds,
            compiled.leads,
            compiled.tails,
            compiled.places,
            out,
        )
        return out

    def statistics(self) -> dict[str, int]:
        """Brokers, rows, and the bytes that matching reads."""
        compiled = self._compiled or _Compiled(self._parts)
        arrays = (compiled.owners, compiled.bounds, compiled.leads, compiled.tails, compiled.places)
        return {
            "brokers": len(self._parts),
            "rows": len(compiled.leads),
            "bytes": sum(array.nbytes for array in arrays),
        }

    def __len__(self) -> int:
        return len(self._parts)
