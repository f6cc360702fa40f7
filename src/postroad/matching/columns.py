"""The columns of the index's flat arrays, and the kinds of constraint they hold.

Everything the index knows is in a few integer and float arrays, so that kernels can read it without touching a
Python object. This module names the columns; `tables.py` owns the arrays.
"""

from __future__ import annotations

# --- kinds of constraint ---------------------------------------------------------------------------------------------
# Kinds up to LAST_QUICK are decided by a few integer comparisons; the others walk bytes or run a program, and their
# answer is remembered for the row.
EQUAL_TEXT, EQUAL_NUMBER, RANGE, EQUAL_BOOLEAN, EXISTS, MISSING = 1, 2, 3, 4, 5, 6
NOT_EQUAL_TEXT, IN_TEXT, NOT_IN_TEXT, NOT_EQUAL_NUMBER, EXACT_RANGE, ALWAYS = 7, 8, 9, 10, 11, 12
LAST_QUICK = ALWAYS
PREFIX, SUFFIX, SUBSTRING, LIKE, NOT_LIKE, TOPIC, TEST, GRAM = 13, 14, 15, 16, 17, 18, 19, 20

# Numbers of rows and offsets into `words` and `text` are kept in 32 bits here: `ceilings.py` says how large the
# arrays may become, and why nothing wraps below that. In kernels a sum of two int32 is an int64; only storing it cuts
# it off.

# --- constraints: int32[n, 16], one cache line a row -----------------------------------------------------------------
# REFERENCES counts the conjunctions and lists that use the row. COUNT <= CAPACITY; both count entries of three words,
# and without conjunctions both are 0 and BUCKET means nothing. NEXT_FREE links the rows that are free.
KIND, ATTRIBUTE, FLAGS, REFERENCES = 0, 1, 2, 3
TEXT, TEXT_SIZE = 4, 5  # payload bytes in `text`
WORDS, WORD_COUNT = 6, 7  # payload in `words`: member constraints, or a program
BUCKET, COUNT, CAPACITY = 8, 9, 10  # the conjunctions reached through this constraint, entries in `words`
NEXT_FREE = 11
CONSTRAINT_COLUMNS = 16

# Flags of a numeric constraint. A bound that float64 cannot hold exactly is kept as an integer.
LOW_OPEN, HIGH_OPEN, LOW_INTEGER, HIGH_INTEGER = 1, 2, 4, 8

# --- conjunctions: int32[n, 5] ---------------------------------------------------------------------------------------
# SLOT is the number of the subscription's first conjunction, which names the subscription in results. ACCESS is the
# constraint that the conjunction is reached through, -1 for one that can never match; POSITION is the place of its
# entry in that constraint's bucket, and moves with the entry. REST is what is left to test (`lists.py`). NEXT is the
# next conjunction of the same subscription, or -1; of a free row it is the next free one.
SLOT, ACCESS, POSITION, REST, NEXT = 0, 1, 2, 3, 4
CONJUNCTION_COLUMNS = 5

# An entry of a bucket is three words: the conjunction's number with a mark; what is left to test (`lists.py`); and an
# attribute that this needs, 0 for none. Most candidates fail because a message does not have the attribute at all, and
# are dismissed without another look at memory; the others without reading the conjunction's own row.
ENTRY_WORDS = 3
MULTIPLE = 1  # the subscription has several conjunctions: report its slot once
ENTRY_SHIFT = 1

# --- attributes: int32[n, 12] ----------------------------------------------------------------------------------------
# How many resident constraints ask each kind of question of the attribute, and where single ones are.
TEXT_QUESTIONS, NUMBER_QUESTIONS, NUMBER_EQUALITIES = 0, 1, 2
EXISTS_CONSTRAINT, TRUE_CONSTRAINT, FALSE_CONSTRAINT = 3, 4, 5
DIRECTORY, DIRECTORY_COUNT, DIRECTORY_CAPACITY = 6, 7, 8  # the range chunks of the attribute, in `words`
NAME, NAME_SIZE, MENTIONS = 9, 10, 11  # the name's bytes in `text`, and how many constraints mention it
ATTRIBUTE_COLUMNS = 12

# --- masks: uint64[n, 3], which lengths of prefix, suffix and gram are resident for the attribute --------------------
PREFIX_LENGTHS, SUFFIX_LENGTHS, GRAM_LENGTHS = 0, 1, 2
MASK_COLUMNS = 3

# A prefix or suffix is looked up by at most this many bytes (one bit of a mask each); a longer one is verified after.
MAX_AFFIX = 63

# --- the value an attribute has in the current row: int64[n, 8] ------------------------------------------------------
STAMP, FORM, START, END, TEXT_HIT, NUMBER_HIT, BITS = 0, 1, 2, 3, 4, 5, 6
VALUE_COLUMNS = 8

# Bits of FORM. Untyped text that is a number is text and number at once.
IS_TEXT, IS_NUMBER, IS_TRUE, IS_FALSE = 1, 2, 4, 8
IS_INTEGRAL = 16  # BITS holds the number as an integer; otherwise the bits of the float
IS_FLOAT = 32  # the value's own type is float, which arithmetic must know
IS_INEXACT = 64  # an integer that float64 cannot hold: comparisons go by BITS
IN_SCRATCH = 128  # the text is in the scratch buffer, not in the batch
IS_UNTYPED = 256

# --- reserved attributes ---------------------------------------------------------------------------------------------
TOPIC_ATTRIBUTE, PRIORITY_ATTRIBUTE, TIMESTAMP_ATTRIBUTE, MESSAGE_ID_ATTRIBUTE = 0, 1, 2, 3
RESERVED_ATTRIBUTES = 4

# --- counters: int64[.] ----------------------------------------------------------------------------------------------
WORDS_USED, TEXT_USED, CONSTRAINTS_USED, CONSTRAINT_FREE, CONSTRAINTS_LIVE = 0, 1, 2, 3, 4
CONJUNCTIONS_USED, CONJUNCTION_FREE, CONJUNCTIONS_LIVE, CHUNKS_USED, CHUNK_FREE, ROW_STAMP = 5, 6, 7, 8, 9, 10
ALWAYS_CONSTRAINT, TOPIC_SHAPES, LISTS_LIVE, NAMES_LIVE = 11, 12, 13, 14
SECRET = 15  # of the hash (`table_hash.py`); an unsigned word, kept as a signed one
WORD_HEADS = 16  # 32 free-list heads of `words`, by size class
TEXT_HEADS = 48  # 32 free-list heads of `text`
RESIDENT_WORK = 80  # what a message can cost at most that meets all that is resident (`costs.py`)
COUNTERS = 81

# --- range chunks ----------------------------------------------------------------------------------------------------
# 128 ranges a chunk: an insertion moves at most 3.5 KiB, and a million ranges have about ten thousand chunks, whose
# summaries fit the second-level cache.
CHUNK = 128
LEAST_LOW, MOST_LOW, LEAST_HIGH, MOST_HIGH = 0, 1, 2, 3
INTRICATE = 4  # how many of the chunk's entries leave something to test, or to report once only
SUMMARY_COLUMNS = 5

# --- topic shapes: int64[n, 4] ---------------------------------------------------------------------------------------
SHAPE_LEVELS, SHAPE_STARS, SHAPE_OPEN, SHAPE_USES = 0, 1, 2, 3
SHAPE_COLUMNS = 4
MAX_LEVELS = 64  # a level is a bit of the shape's star mask; the same limit as the topic grammar's
