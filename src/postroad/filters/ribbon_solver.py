"""The equations of a ribbon filter, and their solution.

Keys are dealt out to parts. In each part the equations are brought into the form where each row begins with a one of
its own, and the solution is read off, from the last row up. The solution is the same whatever the order of the keys:
rows that no equation needs are zero.

All parts are solved in one call: the thread that makes filters shares the interpreter with the one that moves messages,
and must not ask for it more often than it has to.

Layout while a part is solved: `rows[r]` has 64 coefficients, and bit i of it stands for row r + i; it is zero, or its
lowest bit is set. `prints[r]` has the fingerprint of that equation, one bit for each column. An equation starts at row
64 (blocks - 1) at the latest, and no exclusive or sets a coefficient beyond row 64 blocks - 1: every set bit names a
row of the part, so a step from one set bit to the next stays inside `rows` and `prints`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.filters.hashes import mix_word
from postroad.kernels import Int, Truth, count_bits, device, give_way, inlined, kernel, lowest_bit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Keys = NDArray[np.uint64]
    Prints = NDArray[np.uint32]
    Ints = NDArray[np.int64]

__all__ = [
    "BLOCKS",
    "PART_FIELDS",
    "SEED",
    "SHORT",
    "WIDTH",
    "SolverScratch",
    "dealt_keys",
    "equation",
    "part_of",
    "solved_parts",
]

WIDTH = 64  # coefficients per equation, and rows per block: one word

# What is known about a part: its blocks, how many of them have no column more, and the seed that made it solvable.
BLOCKS, SHORT, SEED = range(3)
PART_FIELDS = 3

# What `_solve_parts` returns instead of the size of the solution.
_NO_ROOM, _NO_SEED = -1, -2

_ATTEMPTS_PER_SIZE = 2  # seeds that are tried before rows are added
_GROWTH = 200  # one part in this many, or a block at least
_MAX_ATTEMPTS = 300

_K1 = np.uint64(0x9E3779B97F4A7C15)
_K3 = np.uint64(0xC2B2AE3D27D4EB4F)
_ZERO, _ONE, _TWO, _THREE = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
_HALF, _WORD = np.uint64(32), np.uint64(64)
_CONTRADICTION = np.uint64(1 << 63)  # what `_turn` tells instead of the next word
# Columns that are solved at once: an error rate down to 2^-23 needs no more than the lesser number, and no rate more
# than the larger one.
_LANES, _MOST_LANES = np.uint64(24), np.uint64(32)


@device
def part_of(key: Int, parts: Int) -> Int:
    """Which part a key belongs to: by its upper half."""
    return ((key >> _HALF) * parts) >> _HALF


@device
def equation(word: Int, starts: Int) -> tuple[Int, Int, Int]:
    """Start, coefficients (the first is always 1), and fingerprint of a mixed key."""
    low = word * _K1
    return ((word >> _HALF) * starts) >> _HALF, (low ^ (low >> _HALF)) | _ONE, (word * _K3) >> _HALF


@kernel("void(Array(uint64, 1, 'C', readonly=True), uint64, int64[::1], uint64[::1])", allocates=False)
def _deal(keys: Keys, parts: Int, ends: Ints, out: Keys) -> None:
    for index in range(len(keys)):
        ends[part_of(keys[index], parts) + _ONE] += 1
    for part in range(1, len(ends)):
        ends[part] += ends[part - 1]
    for index in range(len(keys)):
        part = part_of(keys[index], parts)
        out[ends[part]] = keys[index]
        ends[part] += 1


def dealt_keys(keys: Keys, parts: int) -> tuple[Keys, Ints]:
    """The keys part by part, and where each part begins and the last one ends."""
    ends = np.zeros(parts + 1, np.int64)
    if parts == 1:
        ends[1] = len(keys)
        return keys, ends
    out = np.empty(len(keys), np.uint64)
    _deal(keys, np.uint64(parts), ends, out)
    # Each end has moved on to the next one.
    ends[1:] = ends[:-1]
    ends[0] = 0
    return out, ends


@inlined
def _turn(
    words: Keys, after: Int, starts: Int, mask: Int, rows: Words, prints: Prints, at: Int, low: Int, own: Int
) -> tuple[Int, Int, Int, Int]:
    """One step for an equation, which is at row `at`; when it is placed, the one of word `after` takes its turn.

    Returns the number of the next word, then the state of the equation.
    """
    row = rows[at]
    if row == _ZERO:
        rows[at] = low
        prints[at] = np.uint32(own)
    else:
        low ^= row
        own ^= np.uint64(prints[at])
        if low != _ZERO:
            # Both began with a one: it is gone, and there is at least one place to skip.
            skip = np.uint64(lowest_bit(low))
            return after, at + skip, low >> skip, own
        if own != _ZERO:
            return _CONTRADICTION, at, low, own
    at, low, own = equation(words[after], starts)
    return after + _ONE, at, low, own & mask


@inlined
def _fits(rows: Words, prints: Prints, at: Int, low: Int, own: Int) -> Truth:
    """Add one equation; False if it contradicts the others."""
    while rows[at] != _ZERO:
        low ^= rows[at]
        own ^= np.uint64(prints[at])
        if low == _ZERO:
            return own == _ZERO
        skip = np.uint64(lowest_bit(low))
        at += skip
        low >>= skip
    rows[at] = low
    prints[at] = np.uint32(own)
    return True


@device
def _eliminate(words: Keys, count: Int, starts: Int, mask: Int, rows: Words, prints: Prints) -> Truth:
    """Add the equations of this many words to rows that are zero; False if they contradict each other.

    Two equations take turns. Each step of one waits for a row from the cache, and is foreseen by no processor where it
    is the last: with another one in between, three quarters of the time are left. A third gains nothing.
    """
    after = _ZERO
    if count >= _TWO:
        at, low, own = equation(words[0], starts)
        other_at, other_low, other_own = equation(words[1], starts)
        own, other_own, after = own & mask, other_own & mask, _TWO
        # Each of the two turns takes at most one further word.
        while after + _TWO <= count:
            after, at, low, own = _turn(words, after, starts, mask, rows, prints, at, low, own)
            if after == _CONTRADICTION:
                return False
            after, other_at, other_low, other_own = _turn(
                words, after, starts, mask, rows, prints, other_at, other_low, other_own
            )
        if (
            after == _CONTRADICTION
            or not _fits(rows, prints, at, low, own)
            or not _fits(rows, prints, other_at, other_low, other_own)
        ):
            return False
    for index in range(after, count):
        at, low, own = equation(words[index], starts)
        if not _fits(rows, prints, at, low, own & mask):
            return False
    return True


@inlined
def _solved_bit(own: Int, picks: Int, print_: Int, bit: Int) -> Int:
    """`own` with the bit of one row: the parity of what its equation picks, and of its fingerprint."""
    # What is there belongs to the row WIDTH further up.
    own &= ~(_ONE << bit)
    return own | ((count_bits(picks & own) ^ print_) & _ONE) << bit


@device
def _turned(low: Int, bit: Int) -> Int:
    """The coefficients of a row, as they lie on the turning window."""
    return low if bit == _ZERO else (low << bit) | (low >> (_WORD - bit))


@inlined
def _solve_four(rows: Words, prints: Prints, row: Int, lanes: Int, state: Words) -> None:
    """Solve a row and the three below: together, so that what one gives to the next need not go through memory."""
    a, b, c, d = row % _WORD, (row - _ONE) % _WORD, (row - _TWO) % _WORD, (row - _THREE) % _WORD
    a_picks, b_picks = _turned(rows[row], a), _turned(rows[row - _ONE], b)
    c_picks, d_picks = _turned(rows[row - _TWO], c), _turned(rows[row - _THREE], d)
    a_print, b_print = np.uint64(prints[row]), np.uint64(prints[row - _ONE])
    c_print, d_print = np.uint64(prints[row - _TWO]), np.uint64(prints[row - _THREE])
    for column in range(lanes):
        own = _solved_bit(state[column], a_picks, a_print >> column, a)
        own = _solved_bit(own, b_picks, b_print >> column, b)
        own = _solved_bit(own, c_picks, c_print >> column, c)
        state[column] = _solved_bit(own, d_picks, d_print >> column, d)


@inlined
def _substitute(
    rows: Words, prints: Prints, blocks: Int, columns: Int, short: Int, lanes: Int, state: Words, words: Words, end: Int
) -> None:
    """Solve from the last row up, for as many columns as there are lanes, into words up to `end`.

    For each column `state` keeps 64 bits of the solution, those above the current row, in a window that turns: the bit
    of a row is always at its place in the block. So nothing is shifted, and a finished block is ready to be stored.
    A block has at most columns + 1 words, and there are at least as many lanes. The words of all blocks together are as
    many as the caller has counted up to `end`.
    """
    for column in range(lanes):
        state[column] = _ZERO
    for block in range(blocks - 1, -1, -1):
        top = (block + 1) * WIDTH - 1
        for row in range(top, top - WIDTH, -4):
            _solve_four(rows, prints, np.uint64(row), lanes, state)
        wide = columns if block < short else columns + 1
        end -= wide
        for column in range(wide):
            words[end + column] = state[column]


@device
def _solve(
    rows: Words, prints: Prints, blocks: Int, columns: Int, short: Int, state: Words, words: Words, end: Int
) -> None:
    # A number of lanes that the compiler knows becomes whole vectors: a quarter of the time.
    if columns < _LANES:
        _substitute(rows, prints, blocks, columns, short, _LANES, state, words, end)
    else:
        _substitute(rows, prints, blocks, columns, short, _MOST_LANES, state, words, end)


class SolverScratch(NamedTuple):
    """Memory to solve a part in.

    Attributes:
        words: mixed keys.
        rows: the coefficients of an equation for each row, from the row on; zero without an equation.
        prints: what the picked rows of the solution give, a bit for each column.
        state: of the solution, a word for each column.
    """

    words: Words
    rows: Words
    prints: Prints
    state: Words


@device
def _attempt(
    keys: Keys, first: Int, count: Int, blocks: Int, seed: Int, mask: Int, words: Words, rows: Words, prints: Prints
) -> Truth:
    """Bring the equations of some keys into form; False if they contradict each other."""
    mixed = mix_word(np.uint64(seed))
    for index in range(count):
        words[index] = mix_word(keys[first + index] ^ mixed)
    for row in range(blocks * WIDTH):
        rows[row] = _ZERO
        prints[row] = np.uint32(0)
    return _eliminate(words, np.uint64(count), np.uint64((blocks - 1) * WIDTH + 1), mask, rows, prints)


@kernel(
    "int64(Array(uint64, 1, 'C', readonly=True), int64[::1], uint32[:, ::1], int64, float64, "
    "uint64[::1], uint64[::1], uint32[::1], uint64[::1], uint64[::1])",
    allocates=False,
)
def _solve_parts(
    keys: Keys,
    ends: Ints,
    parts: NDArray[np.uint32],
    columns: Int,
    share: float,
    words: Words,
    rows: Words,
    prints: Prints,
    state: Words,
    out: Words,
) -> Int:
    """Solve the equations of each part; the size of the solution, or why there is none.

    Args:
        keys: part by part.
        ends: where each part begins, and the last one ends.
        parts: the blocks to begin with, of each; takes the rest.
        columns: of the first blocks of a part; the others have one more.
        share: of the starts that lie in the first blocks.
        words, rows, prints, state: a `SolverScratch`.
        out: takes the solution, part by part: block by block, in each block column by column.
    """
    mask = (_TWO << np.uint64(columns)) - _ONE
    at = np.int64(0)
    for part in range(len(parts)):
        first, count = ends[part], ends[part + 1] - ends[part]
        blocks = np.int64(parts[part, BLOCKS])
        seed = np.int64(0)
        while True:
            if blocks * WIDTH > len(rows):
                return _NO_ROOM
            if _attempt(keys, first, count, blocks, seed, mask, words, rows, prints):
                break
            seed += 1
            if seed == _MAX_ATTEMPTS:
                return _NO_SEED
            if seed % _ATTEMPTS_PER_SIZE == 0:
                blocks += max(np.int64(1), blocks // _GROWTH)
        short = min(blocks, np.int64(share * ((blocks - 1) * WIDTH + 1) / WIDTH))
        end = at + blocks * (columns + 1) - short
        if end > len(out):
            return _NO_ROOM
        _solve(rows, prints, blocks, columns, short, state, out, end)
        parts[part, BLOCKS], parts[part, SHORT], parts[part, SEED] = blocks, short, seed
        at = end
        give_way()
    return at


def solved_parts(
    keys: Keys, ends: Ints, blocks: NDArray[np.int64], columns: int, share: float
) -> tuple[Words, NDArray[np.uint32]] | int:
    """The solution, and what is known about each part; or why there is none.

    Args:
        keys: part by part.
        ends: where each part begins, and the last one ends.
        blocks: to begin with, of each part.
        columns: of the first blocks of a part; the others have one more.
        share: of the starts that lie in the first blocks.
    """
    parts = np.zeros((len(blocks), PART_FIELDS), np.uint32)
    parts[:, BLOCKS] = blocks
    most = int(np.diff(ends).max())
    # Parts seldom grow, and by a block or two.
    room = np.int64(8)
    while True:
        rows = int(blocks.max() + room) * WIDTH
        scratch = SolverScratch(
            np.empty(most, np.uint64),
            np.empty(rows, np.uint64),
            np.empty(rows, np.uint32),
            np.zeros(int(_MOST_LANES), np.uint64),
        )
        out = np.empty(int(blocks.sum() + len(blocks) * room) * (columns + 1), np.uint64)
        size = _solve_parts(keys, ends, parts, columns, share, *scratch, out)
        if size != _NO_ROOM:
            return size if size < 0 else (out[:size], parts)
        room *= 4
