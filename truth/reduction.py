"""Leaves out of a list whatever a finding does not need."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["reduced", "reduced_slowly"]

Item = TypeVar("Item")


def reduced(items: Sequence[Item], shows: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A shorter list that still shows the finding, of which no single item can be left out.

    Large parts are tried first, then smaller ones, as in delta debugging.
    """
    kept = list(items)
    size = max(1, len(kept) // 2)
    while kept:
        place = 0
        while place < len(kept):
            fewer = kept[:place] + kept[place + size :]
            if shows(fewer):
                kept = fewer
            else:
                place += size
        if size == 1:
            break
        size = max(1, size // 2)
    return kept


async def reduced_slowly(
    items: Sequence[Item], shows: Callable[[list[Item]], Awaitable[bool]], tries: int
) -> list[Item]:
    """The same where a try takes long and may fail by chance: one item after the other, and at most so many tries."""
    kept = list(items)
    for item in list(kept):
        if tries <= 0:
            break
        tries -= 1
        fewer = [one for one in kept if one is not item]
        if await shows(fewer):
            kept = fewer
    return kept
