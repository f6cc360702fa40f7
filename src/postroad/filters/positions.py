"""The k positions of a hash in an array of m bits.

Three words x, y, z are cut out of the 64 bits: the low 21, the next 21 and the top 22, each reduced modulo m. The i-th
position is x; then x += y, y += z, z += i + 1, all modulo m (enhanced double hashing with a third word, after Dillinger
and Manolios). Plain double hashing misses the textbook false-positive rate by 15 % at k = 16; this misses it by 2 %.

Above 2^21 bits 21 bits cannot reach every position. There the words are *remixed*: a second word mix64(hash) is cut in
the same way, and its pieces become the high bits of x, y and z (42, 42 and 44 bits).

Every position is below m, by the remainders and the one subtraction of each step, and m was compared with the words
that there are; all numbers are unsigned, so none is negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.errors import LimitError
from postroad.filters.hashes import mix_word
from postroad.kernels import device, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAX_HASHES", "MAX_POSITIONS", "ONE_WORD_POSITIONS", "check_shape", "positions", "start", "step"]

ONE_WORD_POSITIONS = 1 << 21  # the words cut from one hash reach no further
MAX_POSITIONS = 1 << 32  # 512 MiB; the remixed words, 2^10 times larger, stay uniform to one part in a thousand
MAX_HASHES = 64  # beyond the best k of any error rate above 2^-64

_PIECE = np.uint64(21)
_MASK = np.uint64(ONE_WORD_POSITIONS - 1)


@device
def start(word: np.uint64, m: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """The words x, y, z of a hash; x is the first position."""
    x, y, z = word & _MASK, (word >> _PIECE) & _MASK, word >> (_PIECE + _PIECE)
    if m > np.uint64(ONE_WORD_POSITIONS):
        more = mix_word(word)
        x |= (more & _MASK) << _PIECE
        y |= ((more >> _PIECE) & _MASK) << _PIECE
        z |= (more >> (_PIECE + _PIECE)) << (_PIECE + np.uint64(1))
    return x % m, y % m, z % m


@device
def step(
    x: np.uint64, y: np.uint64, z: np.uint64, index: np.uint64, m: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """The words after position number `index` (from 0) was taken.

    Each sum is below 2 m while index + 1 <= m (k <= 64 <= m holds that), so one subtraction reduces it. Where there is
    nothing to subtract the unsigned difference wraps to a huge number and `min` keeps the sum: no branch to mispredict.
    """
    x += y
    y += z
    z += index + np.uint64(1)
    return min(x, x - m), min(y, y - m), min(z, z - m)


@kernel("void(uint64[::1], uint64, uint32[:, ::1])", allocates=False)
def _positions(hashes: NDArray[np.uint64], m: np.uint64, out: NDArray[np.uint32]) -> None:
    for row in range(len(hashes)):
        x, y, z = start(hashes[row], m)
        for index in range(out.shape[1]):
            out[row, index] = x
            x, y, z = step(x, y, z, np.uint64(index), m)


def positions(hashes: NDArray[np.uint64], k: int, m: int) -> NDArray[np.uint32]:
    """The k positions of each hash in an array of m bits: uint32[n, k]. Positions of one hash may repeat.

    Raises:
        LimitError: m is above `MAX_POSITIONS` or k above `MAX_HASHES`.
        ValueError: k is below 1, or m below `MAX_HASHES`.
    """
    check_shape(k, m)
    out = np.empty((len(hashes), k), np.uint32)
    _positions(hashes, np.uint64(m), out)
    return out


def check_shape(k: int, m: int) -> None:
    """Refuse numbers of positions and of bits for which the rule is not defined."""
    if m > MAX_POSITIONS:
        raise LimitError("the number of bits of a filter", m, MAX_POSITIONS, "use several filters")
    if k > MAX_HASHES:
        raise LimitError("the number of positions per key", k, MAX_HASHES)
    if k < 1 or m < MAX_HASHES:
        raise ValueError(
            f"a filter of {m} bits with {k} positions per key: want at least {MAX_HASHES} bits and 1 position"
        )
