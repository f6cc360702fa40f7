"""Small pieces of every table, and an id to ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.tracking import (
    HERE,
    Aliases,
    FilterSegment,
    HistoryKind,
    Latencies,
    LinkChanges,
    Lists,
    Names,
    Passages,
    Shed,
    SubscriptionChanges,
    Timings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOON = 1_700_000_000_000 // 86_400_000 * 86_400_000 + 43_200_000
HOUR = 3_600_000


def wide(values: Iterable[int]) -> Any:
    return np.array(list(values), np.int64)


def short(values: Iterable[int]) -> Any:
    return np.array(list(values), np.int32)


def lists(rows: Sequence[Iterable[int]]) -> Lists:
    ordered = [sorted(row) for row in rows]
    offsets = np.zeros(len(ordered) + 1, np.int64)
    np.cumsum([len(row) for row in ordered], out=offsets[1:])
    return Lists(offsets, wide(number for row in ordered for number in row))


def passages(rows: Sequence[tuple[int, int, int, int]], **more: Any) -> Passages:
    """Rows of (origin, time, publisher, counter); lists and sources by name."""
    count = len(rows)
    empty = [()] * count
    columns: list[Sequence[int]] = list(zip(*rows, strict=True)) if rows else [()] * 4
    return Passages(
        wide(columns[0]),
        wide(columns[1]),
        wide(columns[2]),
        short(columns[3]),
        wide(more.get("arrived_from", [HERE] * count)),
        lists(more.get("relayed_to", empty)),
        lists(more.get("delivered", empty)),
        lists(more.get("acknowledged", empty)),
        lists(more.get("refused", empty)),
        lists(more.get("queued", empty)),
    )


def a_filter(origin: int = 1, time_from: int = NOON, time_to: int = NOON + 10, singles: Iterable[int] = ()) -> Any:
    return FilterSegment(
        HistoryKind.ACCEPTED,
        origin,
        0,
        time_from,
        time_to,
        wide(singles),
        NOON,
        NOON + 20,
        3,
        100,
        "bloom",
        64,
        4,
        0,
        9,
        b"12345678",
    )


def everything() -> list[Any]:
    """One segment of every kind."""
    return [
        passages([(1, NOON, 7, 0), (2, NOON - 5, 9, 1)], relayed_to=[[2, 3], []], delivered=[[], [70_000]]),
        a_filter(singles=[NOON - HOUR]),
        Shed(wide([1]), wide([NOON]), wide([7]), short([0]), wide([5]), wide([0]), ["queue full"], wide([NOON + 3])),
        SubscriptionChanges(wide([5]), wide([NOON - 2]), short([1]), ["ann"], ["news.*"], ["price > 3"]),
        LinkChanges(wide([2]), wide([NOON - 3]), short([1]), short([10])),
        Names(["publisher"], wide([7]), wide([NOON - 4]), ["bob"]),
        Aliases(["ID:abc"], wide([1]), wide([NOON]), wide([7]), short([0])),
        Timings(wide([NOON]), short([10]), short([3]), short([20]), short([4]), wide([1_000]), wide([12_345])),
        Latencies(wide([NOON]), wide([NOON + HOUR]), short([4]), wide([99])),
    ]
