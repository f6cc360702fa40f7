"""The match of a batch: read each row, collect what it reaches, test what is left.

For each row: (1) read the attributes that constraints mention; (2) collect the buckets that its values reach, by
equality, existence, prefix, suffix, gram and topic; (3) test the entries of these buckets; (4) walk the range chunks of
its numbers. A subscription with several conjunctions is reported once.

Indices: the numbers in `pending` are those of live constraints; buckets, lists and chunks hold numbers of live
conjunctions and constraints, none negative, and no index changes while a batch is matched. Before a bucket or a chunk
is walked, `slots` has room for all of it; before an attribute's fixed look-ups, `pending` has. Stamps and totals are
64-bit integers; a batch ends at 2**31 bytes, so it has fewer rows than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Float, Int, Truth, inlined, kernel, rare
from postroad.matching.bundles import Chunks, Reading, Store
from postroad.matching.collection import collect_row
from postroad.matching.columns import (
    ACCESS,
    ATTRIBUTE,
    BUCKET,
    COUNT,
    DIRECTORY,
    DIRECTORY_COUNT,
    ENTRY_SHIFT,
    ENTRY_WORDS,
    FORM,
    INTRICATE,
    IS_INEXACT,
    IS_NUMBER,
    IS_TEXT,
    KIND,
    LAST_QUICK,
    LEAST_HIGH,
    MENTIONS,
    MESSAGE_ID_ATTRIBUTE,
    MOST_HIGH,
    MOST_LOW,
    MULTIPLE,
    NAMES_LIVE,
    PRIORITY_ATTRIBUTE,
    RANGE,
    ROW_STAMP,
    SECRET,
    SLOT,
    STAMP,
    TIMESTAMP_ATTRIBUTE,
    TOPIC_ATTRIBUTE,
)
from postroad.matching.constraint_tests import holds_quickly, holds_slowly
from postroad.matching.costs import (
    CANDIDATE_COST,
    MEMBER_COST,
    READ_BYTE_COST,
    RESULT_COST,
    ROW_COST,
)
from postroad.matching.lists import MEMBERS, NOTHING, SIZE, list_block
from postroad.matching.ranges import chunks_up_to
from postroad.matching.row_reader import put_text, read_row, row_bytes
from postroad.messages.columns import BUFFER
from postroad.messages.columns import TOPIC as TOPIC_SPAN

if TYPE_CHECKING:
    from numpy.typing import NDArray

# How a scan ended; anything but DONE asks for more room and continues at the same row. STOPPED is as good as DONE for
# the rows so far: the budget is used up. Steps that find `slots` full return -1, which is minus RESULTS_FULL.
DONE, RESULTS_FULL, PENDING_FULL, SCRATCH_FULL, STOPPED = 0, 1, 2, 3, 4

# Where a scan notes how far it came; BUDGET is the work (`costs.py`) that it may do; it stops at a row's end.
STATUS, ROW, TOTAL, BUDGET = 0, 1, 2, 3


@inlined
def entry_slot(
    store: Store,
    reading: Reading,
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    marked: Int,
    left: Int,
    guard: Int,
    stamp: Int,
) -> Int:
    """The slot of an entry, if the rest of its conjunction holds and the slot is new in this row, else -1.

    An entry is three words. `marked` is the number of its conjunction and a flag, `guard` an attribute that must be in
    the row, and `left` what is left to test: NOTHING, one constraint, or, below NOTHING, the block of a list of
    constraints in `words`. A conjunction with the flag MULTIPLE shares its slot with others: `seen` holds the stamp of
    the last row that reported the slot.
    """
    number = marked >> ENTRY_SHIFT
    if reading.values[np.uint64(guard), STAMP] != stamp:
        return -1
    if left != NOTHING:
        at, last = np.int64(0), np.int64(0)
        if left < NOTHING:
            at = list_block(left) + MEMBERS
            last = at + np.int64(store.words[np.uint64(at - MEMBERS + SIZE)]) - 1
            left = np.int64(store.words[np.uint64(at)])
        cost, holds = np.int64(0), True
        while True:
            cost += MEMBER_COST
            kind = np.int64(store.constraints[np.uint64(left), KIND])
            if rare(kind > LAST_QUICK):
                holds = holds_slowly(store, reading, buffer, scratch, left, stamp)
            else:
                holds = holds_quickly(store, reading, left, kind, stamp)
            if not holds or at == last:
                break
            at += 1
            left = np.int64(store.words[np.uint64(at)])
        reading.hard[0, 1] += cost
        if not holds:
            return -1
    if marked & MULTIPLE:
        number = np.int64(store.conjunctions[np.uint64(number), SLOT])
        if reading.seen[number] == stamp:
            return -1
        reading.seen[number] = stamp
    return number


# `range_fits` cannot say: the entry needs the long way.
UNDECIDED = 2


@inlined
def range_fits(store: Store, reading: Reading, marked: Int, left: Int, stamp: Int) -> Int:
    """1 or 0 for an entry that leaves one range to test, which is the most common kind; UNDECIDED for others."""
    if left <= NOTHING or marked & MULTIPLE:
        return UNDECIDED
    row = np.uint64(left)
    attribute = np.uint64(store.constraints[row, ATTRIBUTE])
    form = reading.values[attribute, FORM]
    if store.constraints[row, KIND] != RANGE or form & IS_INEXACT:
        return UNDECIDED
    number = reading.numbers[attribute]
    there = np.int64(reading.values[attribute, STAMP] == stamp) & np.int64(form & IS_NUMBER != 0)
    return there & np.int64(store.bounds[row, 0] <= number) & np.int64(number <= store.bounds[row, 1])


@inlined
def take_entries(
    store: Store,
    reading: Reading,
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    reached: Int,
    slots: NDArray[np.int32],
    total: Int,
    stamp: Int,
) -> tuple[Int, Int]:
    """Test the entries of the buckets that the row reaches; the new number of results, or -1 when `slots` is full, and
    what it cost.
    """
    candidates = np.int64(0)
    for place in range(reached):
        constraint = np.uint64(reading.pending[place])
        first = np.int64(store.constraints[constraint, BUCKET])
        count = np.int64(store.constraints[constraint, COUNT])
        # An entry adds one result at most: with room for `count`, no write of this bucket leaves `slots`.
        if total + count > slots.size:
            return np.int64(-1), np.int64(0)
        candidates += count
        for at in range(first, first + ENTRY_WORDS * count, ENTRY_WORDS):
            marked, left = np.int64(store.words[np.uint64(at)]), np.int64(store.words[np.uint64(at + 1)])
            fits = range_fits(store, reading, marked, left, stamp)
            if fits != UNDECIDED:
                # Written in any case, and kept if it fits: a branch would be guessed wrong half of the time.
                slots[np.uint64(total)] = marked >> ENTRY_SHIFT
                total += fits
                continue
            guard = np.int64(store.words[np.uint64(at + 2)])
            slot = entry_slot(store, reading, buffer, scratch, marked, left, guard, stamp)
            if slot >= 0:
                slots[np.uint64(total)] = slot
                total += 1
    return total, CANDIDATE_COST * candidates


@inlined
def take_ranges(
    store: Store,
    chunks: Chunks,
    reading: Reading,
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    present_count: Int,
    slots: NDArray[np.int32],
    total: Int,
    stamp: Int,
) -> Int:
    """Walk the range chunks of the row's numbers; returns the new number of results, or -1 when `slots` is full.

    The directory of an attribute lists its chunks in ascending order of their least low bound, so the walk ends at the
    first chunk beyond the value. `slots` has room for a whole chunk before any item of it is written.
    """
    for place in range(present_count):
        attribute = np.uint64(reading.present[place])
        count = np.int64(store.attributes[attribute, DIRECTORY_COUNT])
        form = reading.values[attribute, FORM]
        if count == 0 or not form & IS_NUMBER:
            continue
        inexact = form & IS_INEXACT != 0
        low, high = reading.numbers[attribute], reading.numbers[attribute]
        if rare(inexact):
            # The true value lies between the two neighbours of the rounded one.
            low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
        directory = np.int64(store.attributes[attribute, DIRECTORY])
        for position in range(chunks_up_to(chunks, store, directory, count, high)):
            chunk = np.uint64(store.words[np.uint64(directory + position)])
            if chunks.summaries[chunk, MOST_HIGH] < low:
                continue
            size = np.int64(chunks.sizes[chunk])
            if total + size > slots.size:
                return -1
            reading.hard[0, 1] += CANDIDATE_COST * size
            if chunks.summaries[chunk, INTRICATE] == 0.0 and not inexact:
                total = take_items(chunks, chunk, size, low, slots, total)
            else:
                total = take_tested_items(
                    store, chunks, reading, buffer, scratch, chunk, size, low, high, inexact, slots, total, stamp
                )
    return total


@inlined
def take_items(chunks: Chunks, chunk: Int, size: Int, number: Float, slots: NDArray[np.int32], total: Int) -> Int:
    """Take the items of a chunk around a number, where their entries leave nothing to test."""
    if chunks.summaries[chunk, MOST_LOW] <= number and number <= chunks.summaries[chunk, LEAST_HIGH]:
        for item in range(np.uint64(size)):
            slots[np.uint64(total) + item] = chunks.entries[chunk, ENTRY_WORDS * item] >> ENTRY_SHIFT
        return total + size
    for item in range(np.uint64(size)):
        slots[np.uint64(total)] = chunks.entries[chunk, ENTRY_WORDS * item] >> ENTRY_SHIFT
        total += np.int64(chunks.lows[chunk, item] <= number) & np.int64(number <= chunks.highs[chunk, item])
    return total


@inlined
def take_tested_items(
    store: Store,
    chunks: Chunks,
    reading: Reading,
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    chunk: Int,
    size: Int,
    low: Float,
    high: Float,
    inexact: Truth,
    slots: NDArray[np.int32],
    total: Int,
    stamp: Int,
) -> Int:
    """Take the items of a chunk that hold, where some need a test; returns the new number of results.

    Item i of a chunk has its bounds in column i of `lows` and `highs`, and its entry in the ENTRY_WORDS columns of
    `entries` from ENTRY_WORDS * i on. For an inexact number the bounds only exclude; its constraint decides by bits.
    """
    for item in range(np.uint64(size)):
        if chunks.lows[chunk, item] > high or chunks.highs[chunk, item] < low:
            continue
        first = ENTRY_WORDS * item
        marked = np.int64(chunks.entries[chunk, first])
        if inexact:
            reaching = np.int64(store.conjunctions[marked >> ENTRY_SHIFT, ACCESS])
            if not holds_quickly(store, reading, reaching, np.int64(store.constraints[reaching, KIND]), stamp):
                continue
        left, guard = np.int64(chunks.entries[chunk, first + 1]), np.int64(chunks.entries[chunk, first + 2])
        slot = entry_slot(store, reading, buffer, scratch, marked, left, guard, stamp)
        if slot >= 0:
            slots[np.uint64(total)] = slot
            total += 1
    return total


@inlined
def repeat_slots(slots: NDArray[np.int32], first: Int, total: Int) -> Int:
    """Take the results from `first` on once more; the new number of results, or -1 when `slots` is full."""
    count = total - first
    if total + count > slots.size:
        return -1
    for place in range(np.uint64(first), np.uint64(total)):
        slots[place + np.uint64(count)] = slots[place]
    return total + count


@inlined
def match_row(
    secret: np.uint64,
    store: Store,
    chunks: Chunks,
    reading: Reading,
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    scratch_text: NDArray[np.uint8],
    spans: NDArray[np.int32],
    ids: NDArray[np.uint64],
    envelopes: NDArray[np.int64],
    row: Int,
    by_topic: Int,
    derived: Truth,
    slots: NDArray[np.int32],
    total: Int,
    stamp: Int,
) -> tuple[Int, Int, Int]:
    """Match one row whose topic is read: steps (1) to (4) of the module.

    Returns the new number of results, or minus the status that says what needs room; then how many constraints the
    topic reaches; then the cost.
    """
    found = read_row(secret, store, reading, buffer, scratch, spans, ids, envelopes, row, stamp, derived)
    if found < 0:
        return np.int64(-SCRATCH_FULL), by_topic, np.int64(0)
    reached, by_topic = collect_row(secret, store, reading, by_topic, found, buffer, scratch_text, stamp)
    if reached < 0:
        return np.int64(-PENDING_FULL), by_topic, np.int64(0)
    after, cost = take_entries(store, reading, buffer, scratch_text, reached, slots, total, stamp)
    if after >= 0:
        after = take_ranges(store, chunks, reading, buffer, scratch_text, found, slots, after, stamp)
    return np.int64(after), by_topic, cost


@inlined
def asks_for_derived(store: Store) -> Truth:
    """Whether any resident constraint mentions a JMS name that comes from the envelope."""
    mentions = store.attributes[PRIORITY_ATTRIBUTE, MENTIONS] + store.attributes[TIMESTAMP_ATTRIBUTE, MENTIONS]
    return mentions + store.attributes[MESSAGE_ID_ATTRIBUTE, MENTIONS] > 0


@kernel(
    f"int64({BUFFER}, int32[:, ::1], uint64[:, ::1], int64[:, ::1],"
    " int32[:, ::1], float64[:, ::1], int64[:, ::1], uint64[::1], uint64[::1], uint64[::1], int32[::1], uint8[::1],"
    " int32[:, ::1], int64[::1], int32[:, ::1], uint64[:, ::1], uint64[::1], uint64[::1], int64[:, ::1],"
    " float64[:, ::1], float64[:, ::1], int32[:, ::1], float64[:, ::1], int32[::1],"
    " int64[:, ::1], float64[::1], int64[::1], int64[::1], int64[:, ::1], float64[::1], uint64[::1], int32[::1],"
    " int32[::1], int64[::1], float64[::1], int64[:, ::1],"
    f" uint8[::1], {BUFFER}, int64[::1], int32[::1], int64[::1])",
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
    keys: NDArray[np.uint64],
    table: NDArray[np.uint64],
    lists: NDArray[np.uint64],
    words: NDArray[np.int32],
    text: NDArray[np.uint8],
    attributes: NDArray[np.int32],
    counters: NDArray[np.int64],
    conjunctions: NDArray[np.int32],
    masks: NDArray[np.uint64],
    sieve: NDArray[np.uint64],
    names: NDArray[np.uint64],
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
    known: NDArray[np.int64],
    known_values: NDArray[np.float64],
    hard: NDArray[np.int64],
    scratch: NDArray[np.uint8],
    scratch_text: NDArray[np.uint8],
    progress: NDArray[np.int64],
    slots: NDArray[np.int32],
    offsets: NDArray[np.int64],
) -> int:
    """Match the rows of a batch, or continue where the last call needed room; `slots` and `offsets` get the result.

    Takes a batch, then the arrays of the three bundles in order: a kernel takes arrays only, and building the tuples in
    Python would cost more than a small match. `scratch` and `scratch_text` are one array, to write and to read.
    hard[0, 1] counts the work. Returns how it ended, which is also progress[STATUS]. The initial state is set here,
    because setting it from Python, element by element, would cost as much as the match of a small message.
    """
    if progress[STATUS] == DONE or progress[STATUS] == STOPPED:
        progress[ROW] = progress[TOTAL] = hard[0, 0] = hard[0, 1] = offsets[0] = 0
    store = Store(
        constraints, bounds, bits, keys, table, lists, words, text, attributes, counters, conjunctions, masks, sieve,
        names, shapes,
    )  # fmt: skip
    chunks = Chunks(lows, highs, entries, summaries, sizes)
    reading = Reading(values, numbers, memory, seen, stack, floats, hashes, present, pending, known, known_values, hard)
    total = progress[TOTAL]
    secret, budget = np.uint64(counters[SECRET]), progress[BUDGET]
    stamp = counters[ROW_STAMP]
    status = DONE
    derived = asks_for_derived(store)
    # If constraints are only about the topic, rows with the same topic have the same result.
    named = counters[NAMES_LIVE] > 0
    topical = not named and not derived
    row = progress[ROW]
    # The topic of the row before, how many constraints it reaches (they stay in front in `pending`), and where the
    # results of that row begin. No offset is negative, so the first row of a call is like none before it.
    last_start, last_end, by_topic, first = np.int64(-1), np.int64(-1), np.int64(-1), total
    # What this call costs is kept in a register; hard[0, 1] has what earlier calls cost, and rare costly steps.
    work = np.int64(0)
    while row < spans.shape[0]:
        stamp += 1
        start, end = np.int64(spans[row, TOPIC_SPAN]), np.int64(spans[row, TOPIC_SPAN + 1])
        repeated = start == last_start and end == last_end
        if repeated and topical:
            after = repeat_slots(slots, first, total)
        else:
            if not repeated:
                put_text(secret, reading, store, buffer, TOPIC_ATTRIBUTE, IS_TEXT, start, end)
                by_topic = np.int64(-1)
                work += READ_BYTE_COST * (end - start)
                last_start, last_end = start, end
            if named:
                work += READ_BYTE_COST * row_bytes(spans, row)
            after, by_topic, cost = match_row(
                secret, store, chunks, reading, buffer, scratch, scratch_text, spans, ids, envelopes, row, by_topic,
                derived, slots, total, stamp,
            )  # fmt: skip
            work += cost
        if after < 0:
            status = -after
            break
        work += ROW_COST + RESULT_COST * (after - total)
        first, total = total, after
        row += 1
        offsets[row] = total
        if hard[0, 1] + work > budget:
            status = STOPPED
            break
    hard[0, 1] += work
    counters[ROW_STAMP] = stamp
    progress[STATUS], progress[ROW], progress[TOTAL] = status, row, total
    return status
