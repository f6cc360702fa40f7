"""Servers in a grid: publishers split into g groups, subscribers into h.

Each server stands for one group of publishers and one group of subscribers, so every message enters the h servers of
its publisher's row, and every subscription lives on the g servers of its column. The paper's two architectures are the
edges: one server per publisher (PSR: g = publishers, h = 1) and one per subscriber (SSR: g = 1, h = subscribers).
While filters dominate, the capacity is about rho · g · h / (all filters · match): it grows in both directions, which
neither edge does.

A server sends only its own column's share E[R] / h of the copies. The paper charges each SSR server all of E[R]
(Eq. 22); `paper_ssr_capacity` keeps that form for comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from postroad.capacity.errors import CapacityError

if TYPE_CHECKING:
    from postroad.capacity.service_time import ServiceTime

__all__ = ["ServerGrid", "paper_crossover", "paper_ssr_capacity", "publisher_side", "subscriber_side"]


class ServerGrid(NamedTuple):
    """A grid of servers and what it carries.

    Attributes:
        costs: what a message costs a server.
        publishers: how many there are.
        subscribers: how many there are.
        filters: filters of each subscriber.
        copies: E[R], copies of a message over all subscribers.
        rows: g, groups of publishers.
        columns: h, groups of subscribers.
    """

    costs: ServiceTime
    publishers: int
    subscribers: int
    filters: float
    copies: float
    rows: int
    columns: int

    def check(self) -> None:
        """Refuses a grid that cannot be built.

        Raises:
            CapacityError: there are more groups than members, or none.
        """
        if not 1 <= self.rows <= self.publishers:
            raise CapacityError(f"{self.publishers} publishers cannot be split into {self.rows} groups")
        if not 1 <= self.columns <= self.subscribers:
            raise CapacityError(f"{self.subscribers} subscribers cannot be split into {self.columns} groups")

    @property
    def servers(self) -> int:
        """How many there are."""
        return self.rows * self.columns

    def service_time(self) -> float:
        """E[B] of a message at one server."""
        self.check()
        filters = self.subscribers / self.columns * self.filters
        return self.costs.mean(filters, self.copies / self.columns)

    def capacity(self, utilisation: float = 0.9) -> float:
        """Messages per second that all publishers together may send."""
        return utilisation * self.rows / self.service_time()


def publisher_side(costs: ServiceTime, publishers: int, subscribers: int, filters: float, copies: float) -> ServerGrid:
    """PSR: a server at each publisher."""
    return ServerGrid(costs, publishers, subscribers, filters, copies, publishers, 1)


def subscriber_side(costs: ServiceTime, publishers: int, subscribers: int, filters: float, copies: float) -> ServerGrid:
    """SSR: a server at each subscriber."""
    return ServerGrid(costs, publishers, subscribers, filters, copies, 1, subscribers)


def paper_ssr_capacity(costs: ServiceTime, filters: float, copies: float, utilisation: float = 0.9) -> float:
    """Eq. 22 as printed: every subscriber's server is charged all copies of a message."""
    return utilisation / costs.mean(filters, copies)


def paper_crossover(costs: ServiceTime, subscribers: int, filters: float, copies: float) -> float:
    """Eq. 23 as printed: with more publishers than this, PSR carries more than SSR."""
    return costs.mean(subscribers * filters, copies) / costs.mean(filters, copies)
