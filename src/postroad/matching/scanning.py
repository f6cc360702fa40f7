"""The match of a batch: read each row, collect what it reaches, test what is left.

For each row: (1) read the attributes that constraints mention; (2) collect the buckets that its values reach, by
equality, existence, prefix, suffix, gram and topic; (3) test the entries of these buckets; (4) walk the range chunks of
its numbers. A subscription with several conjunctions is reported once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Float, Int, Truth, device, inlined, kernel
from postroad.matching.columns import (
    ACCESS,
    ALWAYS_CONSTRAINT,
    ATTRIBUTE,
    BUCKET,
    COUNT,
    DIRECTORY,
    DIRECTORY_COUNT,
    END,
    ENTRY_SHIFT,
    ENTRY_WORDS,
    EXISTS_CONSTRAINT,
    FALSE_CONSTRAINT,
    FORM,
    GRAM_LENGTHS,
    IN_SCRATCH,
    INTRICATE,
    IS_FALSE,
    IS_INEXACT,
    IS_NUMBER,
    IS_TEXT,
    IS_TRUE,
    KIND,
    LAST_QUICK,
    LEAST_HIGH,
    MENTIONS,
    MESSAGE_ID_ATTRIBUTE,
    MOST_HIGH,
    MOST_LOW,
    MULTIPLE,
    NUMBER_HIT,
    PREFIX,
    PREFIX_LENGTHS,
    PRIORITY_ATTRIBUTE,
    RANGE,
    ROW_STAMP,
    SHAPE_LEVELS,
    SHAPE_OPEN,
    SHAPE_STARS,
    SHAPE_USES,
    SLOT,
    STAMP,
    START,
    SUFFIX,
    SUFFIX_LENGTHS,
    TEXT,
    TEXT_HIT,
    TEXT_SIZE,
    TIMESTAMP_ATTRIBUTE,
    TOPIC,
    TOPIC_ATTRIBUTE,
    TOPIC_SHAPES,
    TRUE_CONSTRAINT,
)
from postroad.matching.deciding import holds_quickly, holds_slowly
from postroad.matching.hashing import constraint_key
from postroad.matching.lists import MEMBERS, NOTHING, SIZE, list_block
from postroad.matching.pieces import collect_affixes, collect_grams
from postroad.matching.ranges import chunks_up_to
from postroad.matching.reading import read_row
from postroad.matching.texts import shape_content, split_levels, topic_matches
from postroad.messages.columns import BUFFER

if TYPE_CHECKING:
    from numpy.typing import NDArray

# How a scan ended; anything but DONE asks for more room and is taken up again at the same row.
DONE, RESULTS_FULL, PENDING_FULL, SCRATCH_FULL = 0, 1, 2, 3

# Where a scan notes how far it came.
STATUS, ROW, TOTAL = 0, 1, 2

_TAG = np.uint64(0xFFFFFFFF00000000)
_LOW = np.uint64(0xFFFFFFFF)


@inlined
def collect(constraints: NDArray[np.int32], pending: NDArray[np.int32], count: Int, constraint: Int) -> Int:
    """Note that a constraint is reached, if it is one and conjunctions stand behind it."""
    if constraint >= 0 and constraints[np.uint64(constraint), COUNT] > 0:
        pending[count] = constraint
        count += 1
    return count


@device
def collect_topics(
    constraints: NDArray[np.int32],
    table: NDArray[np.uint64],
    text: NDArray[np.uint8],
    shapes: NDArray[np.int64],
    shape_count: Int,
    hashes: NDArray[np.uint64],
    pending: NDArray[np.int32],
    count: Int,
    source: NDArray[np.uint8],
    start: Int,
    end: Int,
) -> Int:
    """Look the topic up once for each resident shape of wildcard pattern that fits its number of levels.

    A shape is where a pattern has its stars and whether it is open-ended; patterns of one shape differ only in the
    levels they spell out. Answers -1 when `pending` is too small.
    """
    if count + shape_count > pending.size:
        return -1
    levels = split_levels(source, start, end, hashes)
    mask = np.uint64(table.size - 1)
    for shape in range(shape_count):
        wanted = shapes[shape, SHAPE_LEVELS]
        if shapes[shape, SHAPE_USES] == 0 or wanted > levels:
            continue
        if (wanted == levels) == (shapes[shape, SHAPE_OPEN] != 0):
            continue
        content = shape_content(hashes, wanted, shapes[shape, SHAPE_STARS], shape)
        key = constraint_key(TOPIC, TOPIC_ATTRIBUTE, content, shape, 0)
        at = key & mask
        while table[at] != np.uint64(0):
            if (table[at] & _TAG) == (key & _TAG):
                found = np.int64(table[at] & _LOW) - 1
                size = np.int64(constraints[found, TEXT_SIZE])
                if constraints[found, KIND] == TOPIC and topic_matches(
                    text, np.int64(constraints[found, TEXT]), size, source, start, end
                ):
                    count = collect(constraints, pending, count, found)
                    break
            at = (at + np.uint64(1)) & mask
    return count


@inlined
def entry_slot(
    constraints: NDArray[np.int32],
    bounds: NDArray[np.float64],
    bits: NDArray[np.int64],
    words: NDArray[np.int32],
    text: NDArray[np.uint8],
    conjunctions: NDArray[np.int32],
    values: NDArray[np.int64],
    numbers: NDArray[np.float64],
    memory: NDArray[np.int64],
    seen: NDArray[np.int64],
    stack: NDArray[np.int64],
    floats: NDArray[np.float64],
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    marked: Int,
    left: Int,
    guard: Int,
    stamp: Int,
) -> Int:
    """The slot of an entry, if the rest of its conjunction holds and the slot is new in this row; else -1."""
    number = marked >> ENTRY_SHIFT
    if values[np.uint64(guard), STAMP] != stamp:
        return -1
    if left != NOTHING:
        at, last = np.int64(0), np.int64(0)
        if left < NOTHING:
            at = list_block(left) + MEMBERS
            last = at + np.int64(words[np.uint64(at - MEMBERS + SIZE)]) - 1
            left = np.int64(words[np.uint64(at)])
        while True:
            kind = np.int64(constraints[np.uint64(left), KIND])
            if kind <= LAST_QUICK:
                if not holds_quickly(constraints, bounds, bits, words, values, numbers, left, kind, stamp):
                    return -1
            elif not holds_slowly(
                constraints, words, text, values, numbers, memory, stack, floats, buffer, scratch, left, stamp
            ):
                return -1
            if at == last:
                break
            at += 1
            left = np.int64(words[np.uint64(at)])
    if marked & MULTIPLE:
        number = np.int64(conjunctions[np.uint64(number), SLOT])
        if seen[number] == stamp:
            return -1
        seen[number] = stamp
    return number


# `range_fits` cannot say: the entry needs the long way.
UNDECIDED = 2


@inlined
def range_fits(
    constraints: NDArray[np.int32],
    bounds: NDArray[np.float64],
    values: NDArray[np.int64],
    numbers: NDArray[np.float64],
    marked: Int,
    left: Int,
    stamp: Int,
) -> Int:
    """1 or 0 for an entry that leaves one range to test, which is the most common kind; UNDECIDED for others."""
    if left <= NOTHING or marked & MULTIPLE:
        return UNDECIDED
    row = np.uint64(left)
    attribute = np.uint64(constraints[row, ATTRIBUTE])
    form = values[attribute, FORM]
    if constraints[row, KIND] != RANGE or form & IS_INEXACT:
        return UNDECIDED
    number = numbers[attribute]
    there = np.int64(values[attribute, STAMP] == stamp) & np.int64(form & IS_NUMBER != 0)
    return there & np.int64(bounds[row, 0] <= number) & np.int64(number <= bounds[row, 1])


@inlined
def take_items(
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    entries: NDArray[np.int32],
    chunk: Int,
    size: Int,
    whole: Truth,
    number: Float,
    slots: NDArray[np.int32],
    total: Int,
) -> Int:
    """Take the items of a chunk whose entries leave nothing to test; answers the new number of results."""
    if whole:
        for item in range(np.uint64(size)):
            slots[np.uint64(total) + item] = entries[chunk, ENTRY_WORDS * item] >> ENTRY_SHIFT
        return total + size
    for item in range(np.uint64(size)):
        slots[np.uint64(total)] = entries[chunk, ENTRY_WORDS * item] >> ENTRY_SHIFT
        total += np.int64(lows[chunk, item] <= number) & np.int64(number <= highs[chunk, item])
    return total


@inlined
def collect_row(
    constraints: NDArray[np.int32],
    table: NDArray[np.uint64],
    text: NDArray[np.uint8],
    attributes: NDArray[np.int32],
    masks: NDArray[np.uint64],
    sieve: NDArray[np.uint64],
    shapes: NDArray[np.int64],
    counters: NDArray[np.int64],
    values: NDArray[np.int64],
    memory: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    present: NDArray[np.int32],
    present_count: Int,
    pending: NDArray[np.int32],
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    stamp: Int,
) -> Int:
    """Collect the constraints that the row's values reach; -1 when `pending` is too small."""
    count = collect(constraints, pending, np.int64(0), counters[ALWAYS_CONSTRAINT])
    for place in range(present_count):
        # The fixed look-ups of this attribute and its affixes need at most this much room.
        if count + 140 > pending.size:
            return -1
        attribute = np.int64(present[place])
        row = np.uint64(attribute)
        form = values[row, FORM]
        count = collect(constraints, pending, count, values[row, TEXT_HIT])
        count = collect(constraints, pending, count, values[row, NUMBER_HIT])
        count = collect(constraints, pending, count, np.int64(attributes[row, EXISTS_CONSTRAINT]))
        if form & IS_TRUE:
            count = collect(constraints, pending, count, np.int64(attributes[row, TRUE_CONSTRAINT]))
        elif form & IS_FALSE:
            count = collect(constraints, pending, count, np.int64(attributes[row, FALSE_CONSTRAINT]))
        prefixes, suffixes, grams = masks[row, PREFIX_LENGTHS], masks[row, SUFFIX_LENGTHS], masks[row, GRAM_LENGTHS]
        if not form & IS_TEXT or not (prefixes | suffixes | grams):
            continue
        source = scratch if form & IN_SCRATCH else buffer
        start, end = values[row, START], values[row, END]
        if prefixes:
            count = collect_affixes(
                constraints, table, text, sieve, pending, count, prefixes, PREFIX, attribute, source, start, end
            )
        if suffixes:
            count = collect_affixes(
                constraints, table, text, sieve, pending, count, suffixes, SUFFIX, attribute, source, start, end
            )
        if grams:
            count = collect_grams(
                constraints, table, text, sieve, memory, pending, count, grams, attribute, source, start, end, stamp
            )
            if count < 0:
                return -1
    if counters[TOPIC_SHAPES] > 0:
        start, end = values[TOPIC_ATTRIBUTE, START], values[TOPIC_ATTRIBUTE, END]
        count = collect_topics(
            constraints, table, text, shapes, counters[TOPIC_SHAPES], hashes, pending, count, buffer, start, end
        )
    return count


@kernel(
    f"void({BUFFER}, int32[:, ::1], uint64[:, ::1], int64[:, ::1], int32[:, ::1], float64[:, ::1], int64[:, ::1],"
    " uint64[::1], int32[::1], uint8[::1], int32[:, ::1], uint64[:, ::1], uint64[::1], uint64[::1], int64[::1],"
    " int32[:, ::1],"
    " int64[:, ::1], float64[:, ::1], float64[:, ::1], int32[:, ::1], float64[:, ::1], int32[::1], int64[:, ::1],"
    f" float64[::1], int64[::1], int64[::1], int64[:, ::1], float64[::1], uint64[::1], int32[::1], int32[::1],"
    f" uint8[::1], {BUFFER}, int64[::1], float64[::1], int64[:, ::1], int64[::1], int32[::1], int64[::1])",
    allocates=False,
)
def scan(
    buffer: NDArray[np.uint8],
    spans: NDArray[np.int32],
    ids: NDArray[np.uint64],
    envelopes: NDArray[np.int64],
    constraints: NDArray[np.int32],
    bounds: NDArray[np.float64],
    bits: NDArray[np.int64],
    table: NDArray[np.uint64],
    words: NDArray[np.int32],
    text: NDArray[np.uint8],
    attributes: NDArray[np.int32],
    masks: NDArray[np.uint64],
    sieve: NDArray[np.uint64],
    names: NDArray[np.uint64],
    counters: NDArray[np.int64],
    conjunctions: NDArray[np.int32],
    shapes: NDArray[np.int64],
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    entries: NDArray[np.int32],
    summaries: NDArray[np.float64],
    sizes: NDArray[np.int32],
    values: NDArray[np.int64],
    numbers: NDArray[np.float64],
    memory: NDArray[np.int64],
    seen: NDArray[np.int64],
    stack: NDArray[np.int64],
    floats: NDArray[np.float64],
    hashes: NDArray[np.uint64],
    present: NDArray[np.int32],
    pending: NDArray[np.int32],
    scratch: NDArray[np.uint8],
    scratch_text: NDArray[np.uint8],
    known: NDArray[np.int64],
    known_values: NDArray[np.float64],
    hard: NDArray[np.int64],
    progress: NDArray[np.int64],
    slots: NDArray[np.int32],
    offsets: NDArray[np.int64],
) -> None:
    """Match the rows from progress[ROW] on; `slots` and `offsets` receive the answer.

    `scratch` and `scratch_text` are one array, to write and to read.
    """
    total = progress[TOTAL]
    stamp = counters[ROW_STAMP]
    status = DONE
    derived = (
        attributes[PRIORITY_ATTRIBUTE, MENTIONS]
        + attributes[TIMESTAMP_ATTRIBUTE, MENTIONS]
        + attributes[MESSAGE_ID_ATTRIBUTE, MENTIONS]
    ) > 0
    row = progress[ROW]
    while row < spans.shape[0]:
        stamp += 1
        before = total
        present_count = read_row(
            names, attributes, constraints, bits, table, text, values, numbers, known, known_values, hard,
            present, buffer, scratch, spans, ids, envelopes, row, stamp, derived,
        )  # fmt: skip
        if present_count < 0:
            status = SCRATCH_FULL
            break
        reached = collect_row(
            constraints, table, text, attributes, masks, sieve, shapes, counters, values, memory, hashes,
            present, present_count, pending, buffer, scratch_text, stamp,
        )  # fmt: skip
        if reached < 0:
            status = PENDING_FULL
            break
        for place in range(reached):
            constraint = np.uint64(pending[place])
            first = np.int64(constraints[constraint, BUCKET])
            last = first + ENTRY_WORDS * np.int64(constraints[constraint, COUNT])
            if total + np.int64(constraints[constraint, COUNT]) > slots.size:
                status = RESULTS_FULL
                break
            for at in range(first, last, ENTRY_WORDS):
                marked, left = np.int64(words[np.uint64(at)]), np.int64(words[np.uint64(at + 1)])
                fits = range_fits(constraints, bounds, values, numbers, marked, left, stamp)
                if fits != UNDECIDED:
                    # Written in any case, and kept if it fits: a branch would be guessed wrong half of the time.
                    slots[np.uint64(total)] = marked >> ENTRY_SHIFT
                    total += fits
                    continue
                slot = entry_slot(
                    constraints, bounds, bits, words, text, conjunctions, values, numbers, memory, seen,
                    stack, floats, buffer, scratch_text, marked, left, np.int64(words[np.uint64(at + 2)]), stamp,
                )  # fmt: skip
                if slot >= 0:
                    slots[np.uint64(total)] = slot
                    total += 1
        for place in range(present_count):
            attribute = np.uint64(present[place])
            directory_count = np.int64(attributes[attribute, DIRECTORY_COUNT])
            if directory_count == 0 or not values[attribute, FORM] & IS_NUMBER or status != DONE:
                continue
            inexact = values[attribute, FORM] & IS_INEXACT != 0
            low, high = numbers[attribute], numbers[attribute]
            if inexact:
                # The true value lies between the two neighbours of the rounded one.
                low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
            directory = np.int64(attributes[attribute, DIRECTORY])
            for position in range(chunks_up_to(summaries, words, directory, directory_count, high)):
                chunk = np.uint64(words[np.uint64(directory + position)])
                if summaries[chunk, MOST_HIGH] < low:
                    continue
                size = np.int64(sizes[chunk])
                if total + size > slots.size:
                    status = RESULTS_FULL
                    break
                whole = summaries[chunk, MOST_LOW] <= high and summaries[chunk, LEAST_HIGH] >= low and not inexact
                if summaries[chunk, INTRICATE] == 0.0 and not inexact:
                    total = take_items(lows, highs, entries, chunk, size, whole, low, slots, total)
                    continue
                for item in range(np.uint64(size)):
                    if not whole:
                        if lows[chunk, item] > high or highs[chunk, item] < low:
                            continue
                        if inexact:
                            reaching = np.int64(conjunctions[entries[chunk, ENTRY_WORDS * item] >> ENTRY_SHIFT, ACCESS])
                            kind = np.int64(constraints[reaching, KIND])
                            if not holds_quickly(
                                constraints, bounds, bits, words, values, numbers, reaching, kind, stamp
                            ):
                                continue
                    slot = entry_slot(
                        constraints, bounds, bits, words, text, conjunctions, values, numbers, memory, seen,
                        stack, floats, buffer, scratch_text,
                        np.int64(entries[chunk, ENTRY_WORDS * item]),
                        np.int64(entries[chunk, ENTRY_WORDS * item + 1]),
                        np.int64(entries[chunk, ENTRY_WORDS * item + 2]), stamp,
                    )  # fmt: skip
                    if slot >= 0:
                        slots[np.uint64(total)] = slot
                        total += 1
        if status != DONE:
            total = before
            break
        row += 1
        offsets[row] = total
    counters[ROW_STAMP] = stamp
    progress[STATUS], progress[ROW], progress[TOTAL] = status, row, total
