"""The equations of a ribbon filter, and their solution.

`mixed_keys` puts keys in an order that keeps the rows at work in the cache, `eliminated` brings their equations into
the form where each row begins with a one of its own, and `solved` reads the solution off, from the last row up. The
solution is the same whatever the order of the keys: rows that no equation needs are zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.filters.hashing import mix_word
from postroad.kernels import Int, Truth, count_bits, device, inlined, kernel, lowest_bit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Keys = NDArray[np.uint64]
    Prints = NDArray[np.uint32]

__all__ = ["WIDTH", "System", "eliminated", "equation", "mixed_keys", "solved"]

WIDTH = 128  # coefficients per equation, and rows per block: two words

_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xD6E8FEB86659FD93)
_K3 = np.uint64(0xC2B2AE3D27D4EB4F)
_ZERO, _ONE, _TWO, _THREE = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
_HALF, _WORD = np.uint64(32), np.uint64(64)
# From so many keys on the rows outgrow the fastest cache, and keys are taken by stretches of 2^10 rows, 20 KiB, which
# do not. At half a million keys that takes a fifth of the time away.
_MANY_KEYS = 1 << 11
_STRETCH = np.uint64(10)
_CONTRADICTION = np.uint64(1 << 63)  # what `_turn` tells instead of the next word
# Columns that are solved at once: an error rate down to 2^-23 needs no more than the lesser number, and no rate more
# than the larger one.
_LANES, _MOST_LANES = np.uint64(24), np.uint64(32)


class System(NamedTuple):
    """Equations in the form where each row begins with a one of its own; a row without an equation is zero.

    Attributes:
        rows: two words of coefficients for each, from the row on.
        prints: what the picked rows of the solution give, a bit for each column.
    """

    rows: Words
    prints: Prints


@device
def _start(word: Int, starts: Int) -> Int:
    return ((word >> _HALF) * starts) >> _HALF


@device
def equation(word: Int, starts: Int) -> tuple[Int, Int, Int, Int]:
    """Start, low and high coefficients (the first is always 1), and fingerprint of a mixed key."""
    low, high = word * _K1, word * _K2
    return _start(word, starts), (low ^ (low >> _HALF)) | _ONE, high ^ (high >> _HALF), (word * _K3) >> _HALF


@kernel("void(Array(uint64, 1, 'C', readonly=True), uint64, uint64[::1])", allocates=False)
def _mix(keys: Keys, seed: Int, out: Keys) -> None:
    for index in range(len(keys)):
        out[index] = mix_word(keys[index] ^ seed)


@kernel("void(uint64[::1], uint64, int64[::1], uint64[::1])", allocates=False)
def _by_stretch(words: Keys, starts: Int, ends: NDArray[np.int64], out: Keys) -> None:
    """Put words whose equations begin in the same stretch of rows next to each other; `ends` is zeros."""
    for word in words:
        ends[(_start(word, starts) >> _STRETCH) + _ONE] += 1
    for stretch in range(1, len(ends)):
        ends[stretch] += ends[stretch - 1]
    for word in words:
        stretch = _start(word, starts) >> _STRETCH
        out[ends[stretch]] = word
        ends[stretch] += 1


def mixed_keys(keys: Keys, seed: int, starts: int) -> Keys:
    """The keys, each mixed with the seed; many of them stretch by stretch of the rows where their equations start."""
    words = np.empty(len(keys), np.uint64)
    _mix(keys, np.uint64(seed), words)
    if len(keys) < _MANY_KEYS:
        return words
    out = np.empty(len(keys), np.uint64)
    _by_stretch(words, np.uint64(starts), np.zeros((starts >> int(_STRETCH)) + 2, np.int64), out)
    return out


@inlined
def _reduced(rows: Words, prints: Prints, at: Int, low: Int, high: Int, own: Int) -> tuple[Int, Int, Int, Int]:
    """An equation less that of the row where it begins, from its next coefficient on; `low` is 0 if none is left."""
    low ^= rows[_TWO * at]
    high ^= rows[_TWO * at + _ONE]
    own ^= np.uint64(prints[at])
    if low == _ZERO:
        low, high = high, _ZERO
        at += _WORD
        if low == _ZERO:
            return at, low, high, own
        skip = np.uint64(lowest_bit(low))
        return at + skip, low >> skip, high, own
    # Both began with a one: it is gone, and there is at least one place to skip.
    skip = np.uint64(lowest_bit(low))
    return at + skip, (low >> skip) | (high << (_WORD - skip)), high >> skip, own


@inlined
def _put(rows: Words, prints: Prints, at: Int, low: Int, high: Int, own: Int) -> None:
    rows[_TWO * at] = low
    rows[_TWO * at + _ONE] = high
    prints[at] = np.uint32(own)


@inlined
def _turn(
    words: Keys, after: Int, starts: Int, mask: Int, rows: Words, prints: Prints, at: Int, low: Int, high: Int, own: Int
) -> tuple[Int, Int, Int, Int, Int]:
    """One step for an equation; the one of word `after` takes its place when it is done with. Tells the word after."""
    if rows[_TWO * at] == _ZERO:
        _put(rows, prints, at, low, high, own)
    else:
        at, low, high, own = _reduced(rows, prints, at, low, high, own)
        if low != _ZERO:
            return after, at, low, high, own
        if own != _ZERO:
            return _CONTRADICTION, at, low, high, own
    at, low, high, own = equation(words[after], starts)
    return after + _ONE, at, low, high, own & mask


@inlined
def _fits(rows: Words, prints: Prints, at: Int, low: Int, high: Int, own: Int) -> Truth:
    """Add one equation; False if it contradicts the others."""
    while rows[_TWO * at] != _ZERO:
        at, low, high, own = _reduced(rows, prints, at, low, high, own)
        if low == _ZERO:
            return own == _ZERO
    _put(rows, prints, at, low, high, own)
    return True


@kernel("boolean(uint64[::1], uint64, uint64, uint64[::1], uint32[::1])", allocates=False)
def _eliminate(words: Keys, starts: Int, mask: Int, rows: Words, prints: Prints) -> Truth:
    """Add the equations of words to rows that are zero; False if they contradict each other.

    Two equations take turns. Each step of one waits for a row from the cache, and is foreseen by no processor where it
    is the last: with another one in between, three quarters of the time are left. A third gains nothing.
    """
    count, after = np.uint64(len(words)), _ZERO
    if count >= _TWO:
        at, low, high, own = equation(words[0], starts)
        other_at, other_low, other_high, other_own = equation(words[1], starts)
        own, other_own, after = own & mask, other_own & mask, _TWO
        while after + _TWO <= count:
            after, at, low, high, own = _turn(words, after, starts, mask, rows, prints, at, low, high, own)
            if after == _CONTRADICTION:
                return False
            after, other_at, other_low, other_high, other_own = _turn(
                words, after, starts, mask, rows, prints, other_at, other_low, other_high, other_own
            )
        if (
            after == _CONTRADICTION
            or not _fits(rows, prints, at, low, high, own)
            or not _fits(rows, prints, other_at, other_low, other_high, other_own)
        ):
            return False
    for index in range(after, count):
        at, low, high, own = equation(words[index], starts)
        if not _fits(rows, prints, at, low, high, own & mask):
            return False
    return True


def eliminated(words: Keys, starts: int, rows: int, columns: int) -> System | None:
    """The equations of mixed keys brought into form; None if they contradict each other."""
    system = System(np.zeros(2 * rows, np.uint64), np.zeros(rows, np.uint32))
    mask = np.uint64((1 << columns) - 1)
    return system if _eliminate(words, np.uint64(starts), mask, *system) else None


@inlined
def _solved_bit(own: Int, other: Int, near: Int, far: Int, print_: Int, bit: Int) -> Int:
    """`own` with the bit of one row: the parity of what its equation picks, and of its fingerprint."""
    # What stands there is of the row WIDTH further up.
    own &= ~(_ONE << bit)
    return own | ((count_bits((near & own) ^ (far & other)) ^ print_) & _ONE) << bit


@device
def _turned(rows: Words, row: Int, bit: Int) -> tuple[Int, Int]:
    """The coefficients of a row: the word with that row's own bit, and the other word of the turning window."""
    low, high = rows[_TWO * row], rows[_TWO * row + _ONE]
    if bit == _ZERO:
        return low, high
    return (low << bit) | (high >> (_WORD - bit)), (high << bit) | (low >> (_WORD - bit))


@inlined
def _solve_four(
    rows: Words,
    prints: Prints,
    row: Int,
    lanes: Int,
    own_at: Int,
    other_at: Int,
    state: Words,
) -> None:
    """Solve a row and the three below: together, so that what one gives to the next need not go through memory."""
    a, b, c, d = row % _WORD, (row - _ONE) % _WORD, (row - _TWO) % _WORD, (row - _THREE) % _WORD
    a_near, a_far = _turned(rows, row, a)
    b_near, b_far = _turned(rows, row - _ONE, b)
    c_near, c_far = _turned(rows, row - _TWO, c)
    d_near, d_far = _turned(rows, row - _THREE, d)
    a_print, b_print = np.uint64(prints[row]), np.uint64(prints[row - _ONE])
    c_print, d_print = np.uint64(prints[row - _TWO]), np.uint64(prints[row - _THREE])
    for column in range(lanes):
        own, other = state[own_at + column], state[other_at + column]
        own = _solved_bit(own, other, a_near, a_far, a_print >> column, a)
        own = _solved_bit(own, other, b_near, b_far, b_print >> column, b)
        own = _solved_bit(own, other, c_near, c_far, c_print >> column, c)
        state[own_at + column] = _solved_bit(own, other, d_near, d_far, d_print >> column, d)


@inlined
def _substitute(
    rows: Words,
    prints: Prints,
    columns: Int,
    short: Int,
    lanes: Int,
    state: Words,
    words: Words,
) -> None:
    """Solve from the last row up, for as many columns as there are lanes.

    For each column `state` keeps 128 bits of the solution, those above the current row, in a window that turns: the bit
    of a row is always at its place in the block. So nothing is shifted, and a finished block is ready to be stored.
    """
    end = np.uint64(len(words))
    for block in range(len(prints) // WIDTH - 1, -1, -1):
        top = (block + 1) * WIDTH - 1
        for row in range(top, top - 64, -4):
            _solve_four(rows, prints, np.uint64(row), lanes, _MOST_LANES, _ZERO, state)
        for row in range(top - 64, top - 128, -4):
            _solve_four(rows, prints, np.uint64(row), lanes, _ZERO, _MOST_LANES, state)
        wide = columns if block < short else columns + _ONE
        end -= _TWO * wide
        for column in range(wide):
            words[end + _TWO * column] = state[column]
            words[end + _TWO * column + _ONE] = state[_MOST_LANES + column]


@kernel("void(uint64[::1], uint32[::1], uint64, int64, uint64[::1], uint64[::1])", allocates=False)
def _solve(rows: Words, prints: Prints, columns: Int, short: Int, state: Words, words: Words) -> None:
    # A number of lanes that the compiler knows becomes whole vectors: a quarter of the time.
    if columns < _LANES:
        _substitute(rows, prints, columns, short, _LANES, state, words)
    else:
        _substitute(rows, prints, columns, short, _MOST_LANES, state, words)


def solved(system: System, columns: int, short: int, size: int) -> Words:
    """The solution, of so many words: block by block, in each block column by column, two words each.

    Args:
        system: the equations.
        columns: of the first blocks; the others have one more.
        short: how many blocks have no column more.
        size: of the answer.
    """
    words = np.empty(size, np.uint64)
    _solve(*system, np.uint64(columns), short, np.zeros(2 * int(_MOST_LANES), np.uint64), words)
    return words
