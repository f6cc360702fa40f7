"""A book sealed as runs says what the same book says when it is sealed row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from postroad.messages import MessageId
from postroad.tracking import ADDENDUM, HERE
from postroad.tracking.exact_book import KINDS, Book
from postroad.tracking.exact_lists import FIELDS
from postroad.tracking.exact_runs import MEAN_RUN, runs_of
from postroad.tracking.exact_seal import seal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.tracking import Lists, PassageRuns, Passages

NOW = 1_700_000_000_000

Row = tuple[Any, ...]


def run(publisher: int, time: int, counter: int, size: int, broker: int = 4) -> NDArray[np.uint64]:
    first = MessageId(publisher, broker, time, counter)
    ids = np.empty((size, 2), np.uint64)
    ids[:, 0] = first.head
    ids[:, 1] = np.uint64(first.tail) + np.arange(size, dtype=np.uint64)
    return ids


def one_list(lists: Lists, place: int) -> list[int]:
    return [int(number) for number in lists.numbers[lists.offsets[place] : lists.offsets[place + 1]]]


def laid_out(found: PassageRuns) -> list[Row]:
    rows: list[Row] = []
    for index, count in enumerate(found.counts.tolist()):
        origin, time, publisher, counter, came = (int(column[index]) for column in found[1:6])
        lists = [
            one_list(found.lists[name].lists, int(found.lists[name].which[index])) if name in found.lists else []
            for name in FIELDS
        ]
        rows += [(origin, time, publisher, counter + step, came, lists) for step in range(count)]
    return rows


def rows_of(found: Passages) -> list[Row]:
    columns = (found.origin, found.time, found.publisher, found.counter, found.arrived_from)
    return [
        (*key, [one_list(getattr(found, name), row) for name in FIELDS])
        for row, key in enumerate(zip(*(column.tolist() for column in columns), strict=True))
    ]


# What happens to a block: to all of it, to a stretch, or to stretches in turns, as a queue gives them out.
happenings = st.lists(
    st.tuples(
        st.integers(0, KINDS - 1),
        st.sampled_from([1, 5, 2**32 - 1]),
        st.sampled_from([(0, 100), (0, 30), (30, 100), (40, 60)]),
    ),
    max_size=4,
)
blocks = st.lists(
    st.tuples(
        st.integers(0, 2),  # ms since the block before
        st.sampled_from([1, 9, 2**32 - 1]),
        st.sampled_from([4, 70_000]),
        st.sampled_from([HERE, 7]),
        happenings,
    ),
    min_size=1,
    max_size=8,
)


@given(blocks, st.booleans())
def test_runs_say_what_rows_say(
    told: list[tuple[int, int, int, int, list[tuple[int, int, tuple[int, int]]]]], known: bool
) -> None:
    book = Book(NOW)
    time = NOW
    counters: dict[tuple[int, int, int], int] = {}
    for later, publisher, broker, arrived_from, entries in told:
        time += later
        counter = counters.get((broker, time, publisher), 0)
        counters[broker, time, publisher] = counter + 100
        ids = run(publisher, time, counter, 100, broker)
        first = (ids.item(0, 0), ids.item(0, 1)) if known else None
        book.take(ids, arrived_from, first)
        for kind, number, (begin, end) in entries:
            book.enter(ids, np.arange(begin, end, dtype=np.int32), kind, number, first)
    book.close()
    found, whole = runs_of(book, least_rows=1), seal(book)
    assert found is not None
    assert whole is not None
    assert laid_out(found) == rows_of(whole)
    assert all(found.lists[name].lists.numbers.size for name in found.lists)


def book_of(*batches: NDArray[np.uint64], arrived_from: int = HERE) -> Book:
    book = Book(NOW)
    for ids in batches:
        book.take(ids, arrived_from)
    return book


def test_blocks_that_came_out_of_order_are_put_in_order_as_runs() -> None:
    found = runs_of(book_of(run(9, NOW + 1, 0, 50), run(9, NOW, 0, 50), run(3, NOW, 0, 50)), 1)
    assert found is not None
    assert found.publisher.tolist() == [3, 9, 9]
    assert found.time.tolist() == [NOW, NOW, NOW + 1]


def test_what_runs_cannot_say_is_left_to_rows() -> None:
    first, second = run(9, NOW, 0, 50), run(9, NOW + 1, 0, 50)
    shuffled = first[::-1].copy()
    assert runs_of(book_of(first, second), 1) is not None
    assert runs_of(book_of(first, second), 101) is None, "too few rows to be worth it"
    assert runs_of(book_of(first, first), 1) is None, "a message came twice"
    assert runs_of(book_of(first, run(9, NOW, 49, 10)), 1) is None, "and so did one at the edge"
    assert runs_of(book_of(shuffled, second), 1) is None, "not a run"
    assert runs_of(book_of(first, arrived_from=ADDENDUM), 1) is None, "adds to what was told before"
    assert runs_of(book_of(run(9, NOW, 65_530, 50)), 1) is None, "goes on in the next millisecond"
    assert runs_of(book_of(*(run(9, NOW, 2 * at, 2) for at in range(50))), 1) is None, "many short ones"
    noted = book_of(first)
    noted.note(first[:1], 2, 1)
    assert runs_of(noted, 1) is None, "told of one message alone"
    scattered = book_of(first)
    scattered.enter(first, np.arange(0, 50, 2, dtype=np.int32), 1, 3)
    assert len(first) // MEAN_RUN < 25
    assert runs_of(scattered, 1) is None, "told of every other row"


def test_a_batch_without_rows_does_not_shift_what_is_told_of_others() -> None:
    ids = run(9, NOW, 0, 50)
    book = book_of(np.empty((0, 2), np.uint64), ids)
    book.enter(ids, np.arange(50, dtype=np.int32), 1, 3)
    assert runs_of(book, 1) is None
    whole = seal(book)
    assert whole is not None
    assert [row[-1] for row in rows_of(whole)] == [[[], [3], [], [], []]] * 50


def test_a_run_that_came_again_in_part_is_not_taken_for_the_whole() -> None:
    whole, part = run(9, NOW, 0, 50), run(9, NOW, 0, 20)
    first = whole.item(0, 0), whole.item(0, 1)
    book = Book(NOW)
    book.take(whole, HERE, first)
    book.take(part, 7, first)
    book.enter(whole, np.arange(50, dtype=np.int32), 1, 3, first)
    book.enter(part, np.arange(20, dtype=np.int32), 1, 4, first)
    sealed = seal(book)
    assert sealed is not None
    by_subscriber: dict[int, set[int]] = {3: set(), 4: set()}
    for row, counter in enumerate(sealed.counter.tolist()):
        begin, end = sealed.delivered.offsets[row : row + 2]
        for number in sealed.delivered.numbers[begin:end].tolist():
            by_subscriber[number].add(counter)
    assert by_subscriber == {3: set(range(50)), 4: set(range(20))}


def test_batches_that_left_the_book_s_memory_are_recorded_all_the_same() -> None:
    batches = [run(9, NOW + at, 0, 10) for at in range(300)]
    book = Book(NOW)
    for at, ids in enumerate(batches):
        book.take(ids, HERE, (ids.item(0, 0), ids.item(0, 1)) if at % 2 else None)
    for at, ids in enumerate(batches):
        known = (ids.item(0, 0), ids.item(0, 1)) if at % 2 else None
        book.enter(ids, np.arange(10, dtype=np.int32), 1, 3, known)
    sealed = seal(book)
    assert sealed is not None
    assert len(sealed.counter) == 3_000
    assert sealed.delivered.numbers.tolist() == [3] * 3_000
