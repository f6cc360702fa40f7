"""What the values of a row reach: the constraints whose buckets are tested then.

Numbers that are collected are those of live constraints, found in tables or noted when the row was read; before an
attribute's fixed look-ups, and before shapes and grams, `pending` has room, or the answer is -1.

A constraint comes into `pending` once: each of the look-ups below answers another question, a text has at most one
prefix and one suffix of a length, and grams are stamped with the row when they are taken. So no bucket is tested twice
for one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Int, count_bits, device, inlined, rare
from postroad.matching.columns import (
    ALWAYS_CONSTRAINT,
    COUNT,
    END,
    EXISTS_CONSTRAINT,
    FALSE_CONSTRAINT,
    FORM,
    GRAM_LENGTHS,
    IN_SCRATCH,
    IS_FALSE,
    IS_TEXT,
    IS_TRUE,
    KIND,
    MAX_AFFIX,
    NUMBER_HIT,
    PREFIX,
    PREFIX_LENGTHS,
    SHAPE_LEVELS,
    SHAPE_OPEN,
    SHAPE_STARS,
    SHAPE_USES,
    START,
    SUFFIX,
    SUFFIX_LENGTHS,
    TEXT,
    TEXT_HIT,
    TEXT_SIZE,
    TOPIC,
    TOPIC_ATTRIBUTE,
    TOPIC_SHAPES,
    TRUE_CONSTRAINT,
)
from postroad.matching.costs import GRAM_COST, SHAPE_COST
from postroad.matching.pieces import collect_affixes, collect_grams
from postroad.matching.table_hash import constraint_key
from postroad.matching.texts import shape_content, split_levels, topic_matches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.matching.bundles import Reading, Store

# What one attribute can add to `pending` without its grams: a text, a number, an existence, a boolean, and an affix of
# each length at either end.
_MOST_OF_ATTRIBUTE = 4 + 2 * MAX_AFFIX

_TAG = np.uint64(0xFFFFFFFF00000000)
_LOW = np.uint64(0xFFFFFFFF)


@inlined
def collect(store: Store, reading: Reading, count: Int, constraint: Int) -> Int:
    """Note that a constraint is reached, if it is one and has conjunctions."""
    if constraint >= 0 and store.constraints[np.uint64(constraint), COUNT] > 0:
        reading.pending[count] = constraint
        count += 1
    return count


@device
def collect_topics(
    secret: np.uint64,
    store: Store,
    shape_count: Int,
    reading: Reading,
    count: Int,
    source: NDArray[np.uint8],
    start: Int,
    end: Int,
) -> Int:
    """Look the topic up once for each resident shape of wildcard pattern that fits its number of levels.

    A shape is where a pattern has its stars and whether it is open-ended; patterns of one shape differ only in the
    levels they spell out. Returns -1 when `pending` is too small.
    """
    if count + shape_count > reading.pending.size:
        return -1
    levels = split_levels(secret, source, start, end, reading.hashes)
    mask = np.uint64(store.table.size - 1)
    for shape in range(shape_count):
        wanted = store.shapes[shape, SHAPE_LEVELS]
        if store.shapes[shape, SHAPE_USES] == 0 or wanted > levels:
            continue
        # An open-ended pattern needs a level more than it spells out, any other exactly as many.
        if (wanted == levels) == (store.shapes[shape, SHAPE_OPEN] != 0):
            continue
        content = shape_content(secret, reading.hashes, wanted, store.shapes[shape, SHAPE_STARS], shape)
        key = constraint_key(secret, TOPIC, TOPIC_ATTRIBUTE, content, shape, 0)
        at = key & mask
        while store.table[at] != np.uint64(0):
            if (store.table[at] & _TAG) == (key & _TAG):
                found = np.int64(store.table[at] & _LOW) - 1
                size = np.int64(store.constraints[found, TEXT_SIZE])
                if store.constraints[found, KIND] == TOPIC and topic_matches(
                    store.text, np.int64(store.constraints[found, TEXT]), size, source, start, end
                ):
                    count = collect(store, reading, count, found)
                    break
            at = (at + np.uint64(1)) & mask
    return count


@inlined
def collect_attribute(
    secret: np.uint64,
    store: Store,
    reading: Reading,
    count: Int,
    attribute: Int,
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    stamp: Int,
) -> Int:
    """Collect the constraints that one value reaches; returns the new count, or -1 when `pending` is too small.

    A value reaches constraints by equality (its hits were looked up when it was read), by existence, as a boolean, and,
    if it is text, by its prefixes, suffixes and grams of the lengths in the attribute's masks. -1 changes nothing that
    counts: the caller grows `pending` and collects the row again.
    """
    # A text has as many grams as bytes, so `collect_grams` checks for room itself.
    if count + _MOST_OF_ATTRIBUTE > reading.pending.size:
        return np.int64(-1)
    row = np.uint64(attribute)
    form = reading.values[row, FORM]
    count = collect(store, reading, count, reading.values[row, TEXT_HIT])
    count = collect(store, reading, count, reading.values[row, NUMBER_HIT])
    count = collect(store, reading, count, np.int64(store.attributes[row, EXISTS_CONSTRAINT]))
    if form & IS_TRUE:
        count = collect(store, reading, count, np.int64(store.attributes[row, TRUE_CONSTRAINT]))
    elif form & IS_FALSE:
        count = collect(store, reading, count, np.int64(store.attributes[row, FALSE_CONSTRAINT]))
    prefixes, suffixes, grams = (
        store.masks[row, PREFIX_LENGTHS],
        store.masks[row, SUFFIX_LENGTHS],
        store.masks[row, GRAM_LENGTHS],
    )
    if rare(form & IS_TEXT != 0 and prefixes | suffixes | grams != 0):
        source = scratch if form & IN_SCRATCH else buffer
        start, end = reading.values[row, START], reading.values[row, END]
        if prefixes:
            count = collect_affixes(secret, store, reading, count, prefixes, PREFIX, attribute, source, start, end)
        if suffixes:
            count = collect_affixes(secret, store, reading, count, suffixes, SUFFIX, attribute, source, start, end)
        if grams:
            reading.hard[0, 1] += GRAM_COST * np.int64(count_bits(grams)) * (end - start)
            count = collect_grams(secret, store, reading, count, grams, attribute, source, start, end, stamp)
    return count


@inlined
def collect_row(
    secret: np.uint64,
    store: Store,
    reading: Reading,
    by_topic: Int,
    present_count: Int,
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    stamp: Int,
) -> tuple[Int, Int]:
    """Collect the constraints that the row's values reach; how many, and how many of them its topic reaches.

    Those of the topic come first, with those that every row reaches. A row with the topic of the row before gives their
    number as `by_topic`, and they stay; others give -1. Both are -1 when `pending` is too small.
    """
    # One loop over the topic and the attributes: what it does is inlined, and would be twice as large otherwise; called
    # as a function, with all arrays as arguments, it would cost more than it does.
    count, place = by_topic, np.int64(0)
    if by_topic < 0:
        count, place = collect(store, reading, np.int64(0), store.counters[ALWAYS_CONSTRAINT]), np.int64(-1)
    while place < present_count:
        attribute = np.int64(TOPIC_ATTRIBUTE) if place < 0 else np.int64(reading.present[place])
        count = collect_attribute(secret, store, reading, count, attribute, buffer, scratch, stamp)
        if place < 0 and count >= 0:
            shapes = store.counters[TOPIC_SHAPES]
            if rare(shapes > 0):
                start, end = reading.values[TOPIC_ATTRIBUTE, START], reading.values[TOPIC_ATTRIBUTE, END]
                count = collect_topics(secret, store, shapes, reading, count, buffer, start, end)
                reading.hard[0, 1] += SHAPE_COST * shapes
            by_topic = count
        if count < 0:
            return np.int64(-1), np.int64(-1)
        place += 1
    return count, by_topic
