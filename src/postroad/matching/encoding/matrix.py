"""`PredicateMatrix`: which brokers may want a message, by their encoded predicates.

A row matches a message when all of its bits are set in the message's vector. Testing each row against each vector
reads a vector per pair; here up to 64 messages are tested at once. `columns[p]` holds, for one position p, a bit per
message of a group of 64; the AND of the columns at a row's positions is the set of messages that the row matches.

The first four positions of a row, the *lead*, are ANDed without a branch: most rows end there, and a branch after
every position would be mispredicted as often as not. They are the positions that fewest rows have, because the
common ones are those of categories that most messages have. The column behind the last position is all ones and fills
short leads, so that an empty row matches everything.

Positions of a row were compared with the width of the scheme when it was read (`wire`), and are unsigned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.filters.positions import start, step
from postroad.kernels import device, kernel
from postroad.matching.encoding.content import message_categories
from postroad.matching.encoding.errors import EncodingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.encoding.content import Categories
    from postroad.matching.encoding.predicates import EncodedPredicates
    from postroad.matching.encoding.scheme import Scheme
    from postroad.messages.batch import Batch

    Columns = NDArray[np.uint8] | NDArray[np.uint64]

__all__ = ["MAX_OWNER", "PredicateMatrix"]

MAX_OWNER = 65_535  # a broker's number is its bit in the result, 8 KiB per message at the limit

_LEAD = 4
_FEW = 8
_ONE, _ALL = np.uint64(1), np.uint64(2**64 - 1)
_SIXTEEN, _LOW_SIXTEEN = np.uint64(16), np.uint64(0xFFFF)
_WORD_SHIFT, _BIT_MASK = np.uint64(6), np.uint64(63)


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


class _Compiled:
    """The rows of all owners in the layout of the kernel."""

    __slots__ = ("bounds", "leads", "owners", "places", "tails", "width")

    def __init__(self, lists: dict[int, EncodedPredicates], bits: int) -> None:
        owners = sorted(lists)
        flat = [lists[owner].flat() for owner in owners]
        places = np.concatenate([np.empty(0, np.int64), *flat])
        sizes = np.array([len(row) for owner in owners for row in lists[owner].rows], np.int64)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        rarity = np.bincount(places, minlength=bits)[places]
        places = places[np.lexsort((places, rarity, rows))]
        self.owners = np.array(owners, np.int64)
        self.bounds = np.cumsum([0, *(len(lists[owner]) for owner in owners)], dtype=np.int64)
        self.width = max(owners, default=0) // 64 + 1
        starts = np.concatenate(([0], np.cumsum(sizes)))
        rank = np.arange(len(places)) - starts[rows]
        leads = np.full((len(sizes), _LEAD), bits, np.uint16)
        leads[rows[rank < _LEAD], rank[rank < _LEAD]] = places[rank < _LEAD]
        self.leads = leads.astype("<u2").view("<u8").reshape(-1).astype(np.uint64)
        self.tails = np.concatenate(([0], np.cumsum(np.maximum(sizes - _LEAD, 0)))).astype(np.int64)
        self.places = places[rank >= _LEAD].astype(np.uint16)


class PredicateMatrix:
    """The encoded predicates of many brokers under one scheme.

    A match is a necessary condition: every broker with a subscription that the message satisfies is found, and some
    others, with a probability that depends on the scheme and on how full the messages' vectors are.
    """

    __slots__ = ("_compiled", "_lists", "scheme")

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self._lists: dict[int, EncodedPredicates] = {}
        self._compiled: _Compiled | None = None

    def replace(self, owner: int, predicates: EncodedPredicates) -> None:
        """Set the whole list of a broker, in place of what it advertised before.

        Raises:
            EncodingError: the list was made under another scheme, so its bits mean something else.
            LimitError: the broker's number is above `MAX_OWNER`.
        """
        if predicates.scheme != self.scheme:
            raise EncodingError(f"broker {owner} encodes by {predicates.scheme}, this matrix by {self.scheme}")
        if not 0 <= owner <= MAX_OWNER:
            raise LimitError("the number of a broker", owner, MAX_OWNER)
        self._lists[owner] = predicates
        self._compiled = None

    def remove(self, owner: int) -> bool:
        """Forget the list of a broker; False when there was none."""
        self._compiled = None
        return self._lists.pop(owner, None) is not None

    def match(self, batch: Batch) -> NDArray[np.uint64]:
        """The brokers that may want each message: uint64[n, words], bit b of word w for broker 64 w + b."""
        return self.match_categories(message_categories(batch, self.scheme))

    def match_categories(self, categories: Categories) -> NDArray[np.uint64]:
        """`match` for categories computed before, with this matrix's scheme."""
        if self._compiled is None:
            self._compiled = _Compiled(self._lists, self.scheme.bits)
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
        compiled = self._compiled or _Compiled(self._lists, self.scheme.bits)
        arrays = (compiled.owners, compiled.bounds, compiled.leads, compiled.tails, compiled.places)
        return {
            "brokers": len(self._lists),
            "rows": len(compiled.leads),
            "bytes": sum(array.nbytes for array in arrays),
        }

    def __len__(self) -> int:
        return len(self._lists)
