"""The links of a broker as others recorded them, for one that kept no record of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

__all__ = ["WitnessedLinks"]


class WitnessedLinks(Mapping[int, frozenset[int]]):
    """Broker -> those who say that they had a link to it.

    All others are asked for their links when a broker is first looked up: most questions about messages need none.

    Args:
        brokers: whom to ask.
        links: the neighbours of one of them, by its own record.
    """

    def __init__(self, brokers: Iterable[int], links: Callable[[int], Collection[int]]) -> None:
        self._brokers = tuple(brokers)
        self._links = links
        self._known: dict[int, frozenset[int]] | None = None

    def _all(self) -> dict[int, frozenset[int]]:
        if self._known is None:
            found: dict[int, set[int]] = {}
            for broker in self._brokers:
                for neighbour in self._links(broker):
                    found.setdefault(neighbour, set()).add(broker)
            self._known = {broker: frozenset(others) for broker, others in found.items()}
        return self._known

    def __getitem__(self, broker: int) -> frozenset[int]:
        return self._all()[broker]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
