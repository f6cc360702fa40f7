"""Programs: the conditions that no other constraint covers, run on a small stack inside the kernel.

Arithmetic, comparisons of two attributes and disjunctions too wide to expand are compiled (by `compiler.py`) to a few
words each. A program begins with the number of attributes it reads and their numbers; the code follows. Truth is
three-valued, as in the selector language.

The code is in postfix order, for a stack of cells. Cell i is row i of `stack` and `floats[i]`:

    WHAT                        columns that count
    UNKNOWN                     none
    PLAIN_NUMBER                SORT; then WORD for an integer, `floats` for a float
    PLAIN_TEXT                  FROM, TO, and WHERE: which of three buffers they are offsets into
    UNTYPED_TEXT                as text; where it is a number as well, SORT, WORD and `floats` as for a number
    BOOLEAN                     WORD: 1 or 0

SORT is NO_NUMBER for everything that is not a number, and is always set, because arithmetic and order look at it alone:
that is how untyped text takes part in both. Columns that do not count keep what an earlier program left there.

An operation on two cells finds them at `top` and `top + 1` after `top` was lowered, and leaves its result at `top`.
AND and OR take both operands, also where the first decides: programs have no jumps, so they cost the same for every
message, and the compiler can say how much before the subscription is accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import Float, Int, Truth, device, inlined
from postroad.matching.columns import (
    BITS,
    END,
    FORM,
    IN_SCRATCH,
    IS_FALSE,
    IS_FLOAT,
    IS_NUMBER,
    IS_TEXT,
    IS_TRUE,
    IS_UNTYPED,
    STAMP,
    START,
)
from postroad.matching.costs import WORD_COST, like_work
from postroad.matching.numerics import add, compare_numbers, divide, multiply, subtract
from postroad.matching.search import is_like
from postroad.matching.table_hash import same_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Operations, with the words that follow each. Those that push a value come first, then arithmetic on two cells.
(
    ATTRIBUTE_VALUE,  # attribute
    INTEGER_VALUE,  # low, high half
    FLOAT_VALUE,  # low, high half
    TEXT_VALUE,  # offset, size in the constraint's text
    TRUTH_VALUE,  # 0 or 1
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    NEGATE,
    NUMBER,  # unary plus: a number stays, anything else is unknown
    COMPARE,  # one of the comparisons below
    CONDITION,  # a boolean stays, anything else is unknown
    NOT,
    AND,
    OR,
    IN,  # negated, offset and size pairs: their number first
    LIKE,  # negated, offset, size
    IS_NULL,  # negated, attribute
) = range(19)

EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = range(6)

# Columns of the stack: what a value is, its integer or truth, its text, and which buffer the text is in.
WHAT, WORD, FROM, TO, WHERE, SORT = range(6)
STACK_COLUMNS = 6
UNKNOWN, PLAIN_NUMBER, PLAIN_TEXT, UNTYPED_TEXT, BOOLEAN = range(5)  # WHAT
NO_NUMBER, AN_INTEGER, A_FLOAT = range(3)  # SORT: what a value is as a number
IN_BATCH, IN_ROW_SCRATCH, IN_CONSTRAINT = range(3)  # WHERE


@device
def push_attribute(
    stack: NDArray[np.int64],
    floats: NDArray[np.float64],
    top: Int,
    values: NDArray[np.int64],
    numbers: NDArray[np.float64],
    attribute: Int,
    stamp: Int,
) -> None:
    """Push the row's value of an attribute."""
    cell = stack[top]
    cell[WHAT], cell[SORT] = UNKNOWN, NO_NUMBER
    if values[attribute, STAMP] != stamp:
        return
    form = values[attribute, FORM]
    if form & IS_NUMBER:
        cell[WHAT] = PLAIN_NUMBER
        cell[SORT] = A_FLOAT if form & IS_FLOAT else AN_INTEGER
        cell[WORD] = values[attribute, BITS]
        floats[top] = numbers[attribute]
    if form & IS_TEXT:
        cell[WHAT] = UNTYPED_TEXT if form & IS_UNTYPED else PLAIN_TEXT
        cell[FROM], cell[TO] = values[attribute, START], values[attribute, END]
        cell[WHERE] = IN_ROW_SCRATCH if form & IN_SCRATCH else IN_BATCH
    if form & (IS_TRUE | IS_FALSE):
        cell[WHAT] = BOOLEAN
        cell[WORD] = 1 if form & IS_TRUE else 0


@device
def set_truth(stack: NDArray[np.int64], at: Int, known: bool, truth: bool) -> None:
    """Make a cell true, false or unknown."""
    stack[at, WHAT] = BOOLEAN if known else UNKNOWN
    stack[at, SORT] = NO_NUMBER
    stack[at, WORD] = 1 if truth else 0


@device
def same_text(
    stack: NDArray[np.int64],
    one: Int,
    other: Int,
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    text: NDArray[np.uint8],
) -> Truth:
    """Whether the texts of two cells are equal."""
    size = stack[one, TO] - stack[one, FROM]
    if size != stack[other, TO] - stack[other, FROM]:
        return False
    start, other_start = stack[one, FROM], stack[other, FROM]
    left = buffer
    if stack[one, WHERE] == IN_ROW_SCRATCH:
        left = scratch
    elif stack[one, WHERE] == IN_CONSTRAINT:
        left = text
    right = buffer
    if stack[other, WHERE] == IN_ROW_SCRATCH:
        right = scratch
    elif stack[other, WHERE] == IN_CONSTRAINT:
        right = text
    return same_bytes(left, start, right, other_start, size)


@device
def holds_order(comparison: Int, order: Int) -> Truth:
    """Whether an order (-1, 0, 1) is what a comparison asks for."""
    if comparison == EQUAL:
        return order == 0
    if comparison == NOT_EQUAL:
        return order != 0
    if comparison == LESS:
        return order < 0
    if comparison == LESS_EQUAL:
        return order <= 0
    if comparison == GREATER:
        return order > 0
    return order >= 0


@device
def compare_cells(
    stack: NDArray[np.int64],
    floats: NDArray[np.float64],
    one: Int,
    comparison: Int,
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    text: NDArray[np.uint8],
) -> None:
    """Compare a cell with the one above it; the truth takes its place. A clash of types is unknown."""
    other = one + 1
    what, that = stack[one, WHAT], stack[other, WHAT]
    equality = comparison <= NOT_EQUAL
    # Two untyped texts that are both numbers: = and <> compare them as texts, < and > as numbers.
    textual = what in (PLAIN_TEXT, UNTYPED_TEXT) and that in (PLAIN_TEXT, UNTYPED_TEXT)
    if textual and equality:
        same = same_text(stack, one, other, buffer, scratch, text)
        set_truth(stack, one, True, same == (comparison == EQUAL))
    elif what == BOOLEAN and that == BOOLEAN and equality:
        same = stack[one, WORD] == stack[other, WORD]
        set_truth(stack, one, True, same == (comparison == EQUAL))
    elif stack[one, SORT] and stack[other, SORT]:
        order = compare_numbers(
            stack[one, SORT] == AN_INTEGER,
            stack[one, WORD],
            floats[one],
            stack[other, SORT] == AN_INTEGER,
            stack[other, WORD],
            floats[other],
        )
        set_truth(stack, one, True, holds_order(comparison, order))
    else:
        set_truth(stack, one, False, False)


@device
def set_number(
    stack: NDArray[np.int64],
    floats: NDArray[np.float64],
    at: Int,
    sort: Int,
    integer: Int,
    number: Float,
) -> None:
    """Make a cell a number, or unknown when `sort` is NO_NUMBER."""
    stack[at, WHAT] = PLAIN_NUMBER if sort else UNKNOWN
    stack[at, SORT] = sort
    stack[at, WORD] = integer
    floats[at] = number


@device
def as_float(stack: NDArray[np.int64], floats: NDArray[np.float64], at: Int) -> Float:
    """The number in a cell as a float."""
    return np.float64(stack[at, WORD]) if stack[at, SORT] == AN_INTEGER else floats[at]


@device
def calculate(stack: NDArray[np.int64], floats: NDArray[np.float64], one: Int, operation: Int) -> None:
    """Arithmetic of a cell and the one above it; what leaves the range of its type is unknown."""
    other = one + 1
    if not (stack[one, SORT] and stack[other, SORT]):
        set_number(stack, floats, one, NO_NUMBER, 0, 0.0)
        return
    if stack[one, SORT] == AN_INTEGER and stack[other, SORT] == AN_INTEGER:
        left, right = stack[one, WORD], stack[other, WORD]
        if operation == ADD:
            fits, integer = add(left, right)
        elif operation == SUBTRACT:
            fits, integer = subtract(left, right)
        elif operation == MULTIPLY:
            fits, integer = multiply(left, right)
        else:
            fits, integer = divide(left, right)
        set_number(stack, floats, one, AN_INTEGER if fits else NO_NUMBER, integer, np.float64(integer))
        return
    first, second = as_float(stack, floats, one), as_float(stack, floats, other)
    number = 0.0
    if operation == ADD:
        number = first + second
    elif operation == SUBTRACT:
        number = first - second
    elif operation == MULTIPLY:
        number = first * second
    elif second != 0.0:
        number = first / second
    else:
        number = np.nan
    set_number(stack, floats, one, A_FLOAT if np.isfinite(number) else NO_NUMBER, 0, number)


@device
def negate(stack: NDArray[np.int64], floats: NDArray[np.float64], at: Int) -> None:
    """Unary minus of a cell."""
    if stack[at, SORT] == AN_INTEGER:
        fits, integer = subtract(0, stack[at, WORD])
        set_number(stack, floats, at, AN_INTEGER if fits else NO_NUMBER, integer, np.float64(integer))
    else:
        number = -floats[at]
        set_number(stack, floats, at, A_FLOAT if stack[at, SORT] and np.isfinite(number) else NO_NUMBER, 0, number)


@device
def combine(stack: NDArray[np.int64], one: Int, operation: Int) -> None:
    """AND or OR of a cell and the one above it, three-valued."""
    decisive = 1 if operation == OR else 0
    for at in (one, one + 1):
        if stack[at, WHAT] == BOOLEAN and stack[at, WORD] == decisive:
            set_truth(stack, one, True, decisive == 1)
            return
    known = stack[one, WHAT] == BOOLEAN and stack[one + 1, WHAT] == BOOLEAN
    set_truth(stack, one, known, decisive == 0)


@device
def is_listed(
    words: NDArray[np.int32],
    at: Int,
    count: Int,
    text: NDArray[np.uint8],
    base: Int,
    source: NDArray[np.uint8],
    start: Int,
    end: Int,
) -> Truth:
    """Whether source[start:end] is one of the texts listed at words[at:]."""
    for place in range(count):
        offset, size = words[at + 2 * place], words[at + 2 * place + 1]
        if size == end - start and same_bytes(text, base + offset, source, start, size):
            return True
    return False


@device
def read_wide(words: NDArray[np.int32], at: Int) -> Int:
    """Two words as one 64-bit integer."""
    return (np.int64(words[at + 1]) << 32) | (np.int64(words[at]) & 0xFFFFFFFF)


@device
def test_text(
    stack: NDArray[np.int64],
    top: Int,
    words: NDArray[np.int32],
    at: Int,
    operation: Int,
    text: NDArray[np.uint8],
    base: Int,
    source: NDArray[np.uint8],
    room: NDArray[np.uint64],
    done: NDArray[np.int64],
) -> None:
    """IN or LIKE of the text in a cell; anything but a text is unknown."""
    if stack[top, WHAT] not in (PLAIN_TEXT, UNTYPED_TEXT):
        set_truth(stack, top, False, False)
        return
    start, end = stack[top, FROM], stack[top, TO]
    if operation == IN:
        found = is_listed(words, at + 2, words[at + 1], text, base, source, start, end)
    else:
        found = is_like(text, base + words[at + 1], np.int64(words[at + 2]), source, start, end, room)
        done[0, 1] += like_work(words[at + 2], end - start)
    set_truth(stack, top, True, found != (words[at] != 0))


@inlined
def push_value(
    words: NDArray[np.int32],
    at: Int,
    operation: Int,
    base: Int,
    stack: NDArray[np.int64],
    floats: NDArray[np.float64],
    top: Int,
    values: NDArray[np.int64],
    numbers: NDArray[np.float64],
    stamp: Int,
) -> Int:
    """Write an attribute or a constant to the cell at the top; return where the next operation is."""
    if operation == ATTRIBUTE_VALUE:
        push_attribute(stack, floats, top, values, numbers, words[at], stamp)
        return at + 1
    if operation == INTEGER_VALUE:
        integer = read_wide(words, at)
        set_number(stack, floats, top, AN_INTEGER, integer, np.float64(integer))
        return at + 2
    if operation == FLOAT_VALUE:
        set_number(stack, floats, top, A_FLOAT, 0, np.int64(read_wide(words, at)).view(np.float64))
        return at + 2
    if operation == TEXT_VALUE:
        stack[top, WHAT], stack[top, SORT], stack[top, WHERE] = PLAIN_TEXT, NO_NUMBER, IN_CONSTRAINT
        stack[top, FROM], stack[top, TO] = base + words[at], base + words[at] + words[at + 1]
        return at + 2
    set_truth(stack, top, True, words[at] != 0)
    return at + 1


@device
def run_program(
    words: NDArray[np.int32],
    at: Int,
    end: Int,
    text: NDArray[np.uint8],
    base: Int,
    stack: NDArray[np.int64],
    floats: NDArray[np.float64],
    values: NDArray[np.int64],
    numbers: NDArray[np.float64],
    buffer: NDArray[np.uint8],
    scratch: NDArray[np.uint8],
    room: NDArray[np.uint64],
    done: NDArray[np.int64],
    stamp: Int,
) -> Truth:
    """Run words[at:end] on the current row; return whether the result is true.

    `room` is for searches in texts, and done[0, 1] counts the work (`Reading.hard`). The compiler wrote the words: they
    end after a whole operation, never take a cell that was not pushed, so that 0 <= top < the depth that it reported,
    and name only attributes and texts that exist. Nothing in a message can change that.
    """
    done[0, 1] += WORD_COST * (end - at)
    at += 1 + words[at]
    top = np.int64(-1)
    while at < end:
        operation = words[at]
        at += 1
        if operation <= TRUTH_VALUE:
            top += 1
            at = push_value(words, at, operation, base, stack, floats, top, values, numbers, stamp)
        elif operation <= DIVIDE:
            top -= 1
            calculate(stack, floats, top, operation)
        elif operation == NEGATE:
            negate(stack, floats, top)
        elif operation == NUMBER:
            sort = stack[top, SORT]
            if sort == A_FLOAT and not np.isfinite(floats[top]):
                sort = np.int64(NO_NUMBER)
            set_number(stack, floats, top, sort, stack[top, WORD], floats[top])
        elif operation == COMPARE:
            top -= 1
            compare_cells(stack, floats, top, words[at], buffer, scratch, text)
            at += 1
        elif operation == CONDITION:
            set_truth(stack, top, stack[top, WHAT] == BOOLEAN, stack[top, WORD] != 0)
        elif operation == NOT:
            set_truth(stack, top, stack[top, WHAT] == BOOLEAN, stack[top, WORD] == 0)
        elif operation in (AND, OR):
            top -= 1
            combine(stack, top, operation)
        elif operation == IS_NULL:
            top += 1
            missing = values[words[at + 1], STAMP] != stamp
            set_truth(stack, top, True, missing != (words[at] != 0))
            at += 2
        else:
            source = scratch if stack[top, WHERE] == IN_ROW_SCRATCH else buffer
            test_text(stack, top, words, at, operation, text, base, source, room, done)
            at += 2 + 2 * words[at + 1] if operation == IN else 3
    return stack[0, WHAT] == BOOLEAN and stack[0, WORD] == 1
