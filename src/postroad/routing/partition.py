"""Partitioning: for each link, which rows go there, and with which part of their destinations.

`part = destinations & reachable_through[link]`, once per distinct set. The masks of a broker's links are disjoint, so a
destination travels in exactly one packet: it is a token that is handed on, never copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import device, kernel
from postroad.routing.sets import Destinations, fitted

if TYPE_CHECKING:
    from postroad.routing.sets import Flags, Integers, Words

__all__ = ["OUT", "counted", "part", "partition", "union"]

# As the line of a row: this row takes no part.
OUT = -1


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
    words = destinations.sets.shape[1]
    masks = fitted(masks, words)
    touched = np.asarray((masks & union(destinations)).any(axis=1)) | everywhere.any()
    nothing = np.zeros_like(everywhere)
    found: list[tuple[int, Integers, Destinations]] = []
    for link in np.flatnonzero(touched).tolist():
        rows, parts = part(destinations, masks[link], nothing if link == skipped else everywhere)
        if len(rows):
            found.append((link, rows, parts))
    return found


def part(destinations: Destinations, mask: Words, everywhere: Flags | None = None) -> tuple[Integers, Destinations]:
    """The rows with a destination in the mask, and those destinations, with equal sets joined."""
    sets, chosen = destinations
    distinct, words = sets.shape
    if everywhere is None:
        everywhere = np.zeros(distinct, np.bool_)
    parts = np.empty((distinct, words), np.uint64)
    rows = np.empty(len(chosen), np.int64)
    lines = np.empty(len(chosen), np.int64)
    kept, count = _part(
        np.ascontiguousarray(sets),
        np.ascontiguousarray(chosen),
        np.ascontiguousarray(fitted(mask, words)),
        everywhere,
        np.full(_table_size(distinct), -1, np.int64),
        np.empty(distinct, np.int64),
        parts,
        rows,
        lines,
    )
    return rows[:count], Destinations(parts[:kept], lines[:count])


def union(destinations: Destinations) -> Words:
    """uint64[words]: all destinations together."""
    return np.asarray(np.bitwise_or.reduce(destinations.sets, axis=0, initial=np.uint64(0)))


def counted(destinations: Destinations, mask: Words) -> Integers:
    """int64[distinct]: how many of the mask's brokers each set has."""
    within = destinations.sets & fitted(mask, destinations.sets.shape[1])
    return np.asarray(np.bitwise_count(within).sum(axis=1, dtype=np.int64))


def _table_size(entries: int) -> int:
    """A power of two, at most half full."""
    return 1 << (2 * entries).bit_length()


@device
def _line_of(parts: Words, kept: int, table: Integers) -> int:
    """The line that holds what line `kept` holds: an earlier one, or `kept` itself, entered now."""
    words = parts.shape[1]
    value = np.uint64(0)
    for word in range(words):
        value = (value ^ parts[kept, word]) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(29)
    slot = np.int64(value & np.uint64(len(table) - 1))
    while table[slot] != -1:
        line = table[slot]
        same = True
        for word in range(words):
            if parts[line, word] != parts[kept, word]:
                same = False
                break
        if same:
            return int(line)
        slot = (slot + 1) & (len(table) - 1)
    table[slot] = kept
    return kept


@kernel(
    "UniTuple(int64, 2)(uint64[:, ::1], int64[::1], uint64[::1], boolean[::1], int64[::1], int64[::1],"
    " uint64[:, ::1], int64[::1], int64[::1])",
    allocates=False,
)
def _part(
    sets: Words,
    chosen: Integers,
    mask: Words,
    everywhere: Flags,
    table: Integers,
    line_of: Integers,
    parts: Words,
    rows: Integers,
    lines: Integers,
) -> tuple[int, int]:
    """Fill `parts`, `rows` and `lines`; returns how many distinct parts and how many rows there are."""
    kept = 0
    for one in range(len(sets)):
        some = everywhere[one]
        for word in range(sets.shape[1]):
            bits = np.uint64(0) if everywhere[one] else sets[one, word] & mask[word]
            parts[kept, word] = bits
            some = some or bits != 0
        line_of[one] = -1
        if some:
            line_of[one] = _line_of(parts, kept, table)
            if line_of[one] == kept:
                kept += 1
    count = 0
    for row in range(len(chosen)):
        if chosen[row] >= 0 and line_of[chosen[row]] >= 0:
            rows[count] = row
            lines[count] = line_of[chosen[row]]
            count += 1
    return kept, count
