"""Partitioning: for each link, which rows go there, and with which part of their destinations.

`part = destinations & reachable_through[link]`, once per distinct set. The masks of a broker's links are disjoint, so a
destination travels in exactly one packet: it is a token that is relayed, never copied.

Layout: bit b of word w of a set is broker 64 w + b. `sets` is uint64[distinct, words]; `lines[row]` is the place of the
row's set in it, or OUT. Most rows of a batch share a set, so sets are split once each, and rows only follow. What a
link gets has the same layout: `parts[link]` in the place of `sets`. Two sets may differ only in brokers beyond other
links; their parts are then equal and are joined, because a frame carries its dictionary of sets.

Order of steps: `_touched` finds the links that get anything, most of which do not at a hub; `_split` makes the parts of
some of these links and counts their rows; then there is an array of exactly that many rows, which `_write` fills. It
visits the same pairs of row and link that `_split` has counted, so it ends where the array does.

Lines come from a frame of a neighbour or from a match: those of a frame were compared with the number of sets, and
OUT, the only negative one, is tested before it is used. Numbers of brokers do not become indices here, only bits;
that of this broker names a word, which is compared with the width of a set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import device, kernel
from postroad.messages.columns import BROADCAST, FLAGS
from postroad.routing.destinations import Destinations, fitted, same_set, set_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.routing.destinations import Flags, Integers, Words

__all__ = ["OUT", "counted", "leads_beyond", "part", "partition", "rows_for"]

# As the line of a row: this row takes no part.
OUT = -1
# Words of parts written at once, 8 MiB: a hub with a thousand links takes its links in several turns.
_WORDS_AT_ONCE = 2**20


def partition(
    destinations: Destinations, masks: Words, everywhere: Flags, skipped: int = OUT
) -> list[tuple[int, Integers, Destinations]]:
    """(link, rows, their destinations) for each link that gets any row.

    Args:
        destinations: sets and lines; a row whose line is OUT goes nowhere.
        masks: uint64[links, words]; who is reached through each link.
        everywhere: bool[distinct]; sets that go out on every link, with no destinations of their own.
        skipped: the link that gets no rows of those sets: where they came from.
    """
    sets = np.ascontiguousarray(destinations.sets)
    chosen = np.ascontiguousarray(destinations.lines)
    fitting = np.ascontiguousarray(fitted(masks, sets.shape[1]))
    links = np.empty(len(fitting), np.int64)
    touched = links[: _touched(sets, fitting, everywhere, skipped, links)]
    together = max(1, _WORDS_AT_ONCE // max(1, sets.size))
    found: list[tuple[int, Integers, Destinations]] = []
    for start in range(0, len(touched), together):
        found += _split_links(sets, chosen, fitting, everywhere, skipped, touched[start : start + together])
    return found


def part(destinations: Destinations, mask: Words, everywhere: Flags | None = None) -> tuple[Integers, Destinations]:
    """The rows with a destination in the mask, and those destinations, with equal sets joined."""
    if everywhere is None:
        everywhere = np.zeros(len(destinations.sets), np.bool_)
    found = partition(destinations, mask[np.newaxis], everywhere)
    if found:
        return found[0][1:]
    return np.empty(0, np.int64), Destinations(destinations.sets[:0], np.empty(0, np.int64))


def _split_links(
    sets: Words, chosen: Integers, masks: Words, everywhere: Flags, skipped: int, links: Integers
) -> list[tuple[int, Integers, Destinations]]:
    """Some links in two calls of kernels: one that splits the sets and counts rows, one that writes the rows."""
    distinct, words = sets.shape
    parts = np.empty((len(links), distinct, words), np.uint64)
    line_of = np.empty((len(links), distinct), np.int64)
    kept = np.empty(len(links), np.int64)
    ends = np.empty(len(links), np.int64)
    scratch = np.empty(_table_size(distinct) + distinct, np.int64)
    total = _split(sets, chosen, masks, everywhere, skipped, links, scratch, line_of, parts, kept, ends)
    rows = np.empty(total, np.int64)
    lines = np.empty(total, np.int64)
    _write(chosen, line_of, ends, rows, lines)
    found: list[tuple[int, Integers, Destinations]] = []
    start = 0
    for place, (link, count, end) in enumerate(zip(links.tolist(), kept.tolist(), ends.tolist(), strict=True)):
        if end > start:
            found.append((link, rows[start:end], Destinations(parts[place, :count], lines[start:end])))
        start = end
    return found


def counted(destinations: Destinations, mask: Words) -> Integers:
    """int64[distinct]: how many of the mask's brokers each set has."""
    within = destinations.sets & fitted(mask, destinations.sets.shape[1])
    return np.asarray(np.bitwise_count(within).sum(axis=1, dtype=np.int64))


def rows_for(destinations: Destinations, envelopes: NDArray[np.int64], number: int) -> Integers:
    """The rows that are for a broker, or for all; `destinations` were checked for as many rows."""
    rows = np.empty(len(envelopes), np.int64)
    sets, lines = np.ascontiguousarray(destinations.sets), np.ascontiguousarray(destinations.lines)
    return rows[: _rows_for(sets, lines, envelopes, number, rows)]


@kernel("int64(uint64[:, ::1], int64[::1], int64[:, ::1], int64, int64[::1])", allocates=False)
def _rows_for(sets: Words, lines: Integers, envelopes: NDArray[np.int64], number: int, rows: Integers) -> int:
    """Write the rows; returns how many. Every line is the place of a set, and `rows` has one for each row."""
    word, bit = number >> 6, np.uint64(number & 63)
    named = word < sets.shape[1]
    count = 0
    for row in range(len(lines)):
        own = named and (sets[lines[row], word] >> bit) & np.uint64(1) != 0
        if own or envelopes[row, FLAGS] & BROADCAST != 0:
            rows[count] = row
            count += 1
    return count


@kernel("boolean(uint64[:, ::1], uint64[::1], int64)", allocates=False)
def leads_beyond(sets: Words, reachable: Words, number: int) -> bool:
    """Whether any set names a broker that is neither within reach nor this one."""
    own = np.uint64(1) << np.uint64(number & 63)
    for one in range(len(sets)):
        for word in range(sets.shape[1]):
            left = sets[one, word]
            if word < len(reachable):
                left &= ~reachable[word]
            if word == number >> 6:
                left &= ~own
            if left != 0:
                return True
    return False


def _table_size(entries: int) -> int:
    """A power of two, at most half full."""
    return 1 << (2 * entries).bit_length()


@device
def _line_of(parts: Words, kept: int, table: Integers) -> int:
    """The line that holds what line `kept` holds: an earlier one, or `kept` itself, entered now.

    Open addressing with steps of one. Its size is a power of two, and at most half of it is used: each set enters one
    line at most, and `_table_size` counts the sets twice. So every probe ends at an equal line or at a free slot.
    """
    slot = np.int64(set_hash(parts, kept) & np.uint64(len(table) - 1))
    while table[slot] != -1:
        line = table[slot]
        if same_set(parts, line, kept):
            return int(line)
        slot = (slot + 1) & (len(table) - 1)
    table[slot] = kept
    return kept


@kernel("int64(uint64[:, ::1], uint64[:, ::1], boolean[::1], int64, int64[::1])", allocates=False)
def _touched(sets: Words, masks: Words, everywhere: Flags, skipped: int, links: Integers) -> int:
    """Write the links that some set goes to; returns how many there are."""
    count = 0
    for link in range(len(masks)):
        some = False
        for one in range(len(sets)):
            if everywhere[one]:
                some = some or link != skipped
            for word in range(sets.shape[1]):
                some = some or sets[one, word] & masks[link, word] != 0
            if some:
                break
        if some:
            links[count] = link
            count += 1
    return count


@kernel(
    "int64(uint64[:, ::1], int64[::1], uint64[:, ::1], boolean[::1], int64, int64[::1], int64[::1],"
    " int64[:, ::1], uint64[:, :, ::1], int64[::1], int64[::1])",
    allocates=False,
)
def _split(
    sets: Words,
    chosen: Integers,
    masks: Words,
    everywhere: Flags,
    skipped: int,
    links: Integers,
    scratch: Integers,
    line_of: Integers,
    parts: Words,
    kept: Integers,
    ends: Integers,
) -> int:
    """Fill `line_of` and `parts`, and for each link how many parts it has and where its rows end; returns the rows.

    `line_of[place, one]` is the line of set `one` among the parts of link `place`, -1 if none of it goes there. Equal
    parts share a line, so a link has at most as many parts as there are sets. `scratch` holds the hash table of parts,
    a power of two that stays at most half full, and then a count of rows for each set.
    """
    table = scratch[: len(scratch) - len(sets)]
    uses = scratch[len(scratch) - len(sets) :]
    uses[:] = 0
    for row in range(len(chosen)):
        if chosen[row] >= 0:
            uses[chosen[row]] += 1
    total = 0
    for place in range(len(links)):
        table[:] = -1
        count = 0
        for one in range(len(sets)):
            line_of[place, one] = -1
            whole = everywhere[one] and links[place] != skipped
            # A set that no row has any more is left out of the dictionary.
            if uses[one] == 0:
                continue
            some = whole
            for word in range(sets.shape[1]):
                bits = np.uint64(0) if whole else sets[one, word] & masks[links[place], word]
                # `count` is below the number of sets: each set before this one has added one part at most.
                parts[place, count, word] = bits
                some = some or bits != 0
            if some:
                line_of[place, one] = _line_of(parts[place], count, table)
                total += uses[one]
                if line_of[place, one] == count:
                    count += 1
        kept[place] = count
        ends[place] = total
    return total


@kernel("void(int64[::1], int64[:, ::1], int64[::1], int64[::1], int64[::1])", allocates=False)
def _write(chosen: Integers, line_of: Integers, ends: Integers, rows: Integers, lines: Integers) -> None:
    """Write the rows of each link one after the other, and their lines."""
    at = 0
    for place in range(len(ends)):
        if at == ends[place]:
            continue
        for row in range(len(chosen)):
            if chosen[row] >= 0 and line_of[place, chosen[row]] >= 0:
                rows[at] = row
                lines[at] = line_of[place, chosen[row]]
                at += 1
