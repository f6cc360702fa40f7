from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.messages import Batch
from postroad.tracking import ExactRecorder, Recorder, journaled_recorder
from postroad.tracking.journaled_recorder import Journaled, JournalEntryError, retell, told_at

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBER = st.integers(1, 2**32 - 1)
NOW = st.integers(0, 2**47)
IDS = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), min_size=1, max_size=5)


EVENTS = [name for name in vars(Recorder) if not name.startswith("_")]


class Listener:
    """Writes down each call as text: batches by their ids, rows by the ids they choose."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            self.calls.append((name, *_plain(list(arguments))))

        return call


def listener() -> Any:
    """A listener that passes for a recorder."""
    return Listener()


def appending(entries: list[bytes]) -> Callable[[bytes], int]:
    """What a journal does with an entry: append it, and return how many there are."""

    def append(entry: bytes) -> int:
        entries.append(entry)
        return len(entries)

    return append


def _plain(arguments: list[Any]) -> list[Any]:
    if arguments and isinstance(arguments[0], Batch):
        ids = arguments[0].ids
        if len(arguments) > 1 and isinstance(arguments[1], np.ndarray):
            ids = ids[arguments.pop(1)]
        arguments[0] = ids.tolist()
    elif arguments and isinstance(arguments[0], np.ndarray):
        arguments[0] = arguments[0].tolist()
    return arguments


def batch_of(ids: list[tuple[int, int]]) -> Batch:
    batch = Batch.build([("t", {"a": 1})] * len(ids))
    batch.ids[:] = np.array(ids, np.uint64)
    return batch


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, tuple[Any, ...]]:
    name = draw(st.sampled_from(EVENTS))
    text, number, now = draw(st.text(max_size=10)), draw(NUMBER), draw(NOW)
    ids = draw(IDS)
    batch, (head, tail) = batch_of(ids), ids[0]
    rows = np.array(draw(st.lists(st.integers(0, len(ids) - 1), min_size=1, unique=True)), np.int32)
    arguments: dict[str, tuple[Any, ...]] = {
        "accepted": (batch, now),
        "arrived": (batch, number, now),
        "acknowledged": (batch.ids, number, draw(st.booleans()), now),
        "shed": (batch, rows, number, text, now),
        "dropped": (batch, rows, number, text, now),
        "publishes": (number, text, now),
        "subscribed": (number, text, text + "t", text + "s", now),
        "unsubscribed": (number, now),
        "linked": (number, 7, now),
        "unlinked": (number, now),
        "aliased": (text, head, tail, now),
    }
    return name, arguments.get(name, (batch, rows, number, now))


def test_every_event_has_numbers_of_its_own_in_journals() -> None:
    numbers = [one for name in EVENTS for one in getattr(Recorder, name).event if one]
    assert len(EVENTS) >= 14
    assert sorted(numbers) == sorted(set(numbers))
    assert not set(numbers) & set(journaled_recorder.JournalMark)


@given(st.lists(calls(), max_size=10))
def test_what_a_journal_tells_again_is_what_was_told(told: list[tuple[str, tuple[Any, ...]]]) -> None:
    entries: list[bytes] = []
    first, second = listener(), listener()
    journaled = Journaled(first, appending(entries))
    for name, arguments in told:
        getattr(journaled, name)(*arguments)
        assert journaled.position == len(entries)
    times = [arguments[-1] for _, arguments in told]
    assert [told_at(entry) for entry in entries] == times
    assert [retell(entry, second) for entry in entries] == times
    assert first.calls == second.calls
    assert len(first.calls) == len(told)


@given(st.binary(max_size=60))
def test_an_entry_that_says_nothing_is_refused_or_told(data: bytes) -> None:
    try:
        retell(data, listener())
    except JournalEntryError as error:
        assert "journal entry" in str(error)  # noqa: PT017


def test_a_cut_entry_is_refused() -> None:
    entries: list[bytes] = []
    journaled = Journaled(listener(), appending(entries))
    journaled.accepted(batch_of([(1, 2), (3, 4)]), 5)
    with pytest.raises(JournalEntryError, match="2 ids"):
        retell(entries[0][:-1], listener())


@pytest.mark.parametrize("event", range(1, 16))
@pytest.mark.parametrize(("number", "now"), [(-1, 5), (2**32, 5), (5, -1), (5, 2**62 + 1)])
def test_an_entry_with_a_number_that_nothing_has_is_refused(event: int, number: int, now: int) -> None:
    """A recorder that took it would fail when it writes all that it holds."""
    entry = np.array([(event, 1, number, now)], journaled_recorder.ENTRY_HEAD).tobytes() + bytes(16)
    with pytest.raises(JournalEntryError):
        retell(entry, ExactRecorder(1, 0))


@pytest.mark.parametrize("cost", [-1, 2**32, 10**30])
def test_an_entry_of_a_link_with_an_impossible_cost_is_refused(cost: int) -> None:
    written: list[bytes] = []
    journaled = Journaled(listener(), appending(written))
    journaled.linked(7, cost, 5)
    with pytest.raises(JournalEntryError, match="a link of cost"):
        retell(b"".join(written), ExactRecorder(1, 0))
