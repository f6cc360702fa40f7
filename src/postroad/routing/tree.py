"""`Tree`: interest by topic goes to every broker, messages only along branches with brokers that want them.

The first subscription to a topic reaches all brokers; the second, at the same broker, none. A message that nobody wants
leaves its broker not at all. When a broker fails, its children go to the grandparent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.routing.hierarchy import Hierarchical
from postroad.routing.topics import LOCAL

if TYPE_CHECKING:
    from postroad.messages import Batch
    from postroad.routing.destinations import Integers

__all__ = ["Tree"]


class Tree(Hierarchical):
    """One broker of a tree."""

    def _carries(self, link: int, pattern: str) -> bool:
        """Anybody but the link itself wants it."""
        owners = self._table.owners(pattern)
        return len(owners) > 1 or (len(owners) == 1 and link not in owners)

    def _rows_for(self, batch: Batch, arrival: int) -> dict[int, Integers]:
        """Every link that wants some, except where they came from."""
        wanted = self._table.wanted(batch)
        return {link: wanted.rows(link) for link in wanted.by_owner if link not in (LOCAL, arrival)}
