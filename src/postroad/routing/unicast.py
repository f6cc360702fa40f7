"""`UnicastRoutes`: ways to single brokers, beside a strategy that knows none (`flood`, `tree`, `cluster`).

Such a strategy sends a message wherever it is wanted, or everywhere, and never asks where a certain broker is. What
brokers say about queues is for one broker. So they also tell each other their links, by the records that `drp` spreads,
without interest, and take the shortest way over whatever links are up: also over one that the strategy leaves idle, or
has opened since a broker failed. Decision 0021 says why nothing is learned from the traffic instead.

Messages of topics are not affected: reactions never say `retry`, and name no interest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.routing.contract import Reaction
from postroad.routing.link_state import DEFAULT_LIFETIME_MS, DEFAULT_REFRESH_MS, LinkState

if TYPE_CHECKING:
    from postroad.routing.control_frames import Digest, LinkRecord
    from postroad.routing.link_state_records import Seals

__all__ = ["UnicastRoutes"]


class UnicastRoutes:
    """One broker's ways to single brokers.

    Args:
        number: this broker.
        now: when it starts, in ms.
        refresh_ms: how often it says again what it said about its links.
        lifetime_ms: how long it is believed without that.
        seals: signs and checks records; None if they are not signed.
    """

    def __init__(
        self,
        number: int,
        now: int,
        *,
        refresh_ms: int = DEFAULT_REFRESH_MS,
        lifetime_ms: int = DEFAULT_LIFETIME_MS,
        seals: Seals | None = None,
    ) -> None:
        self._state = LinkState(
            number, now, refresh_ms=refresh_ms, lifetime_ms=lifetime_ms, seals=seals, links_only=True
        )

    def next_hop(self, broker: int) -> int:
        """Return the neighbour on the way to a broker; 0 if no way is known."""
        return self._state.next_hop(broker)

    @property
    def reached(self) -> int:
        """Return how many brokers have a way to them."""
        return self._state.routes.reached

    def control(self, frame: LinkRecord | Digest, link: int, now: int) -> Reaction:
        """Take a record of links, or a digest, from a neighbour.

        Raises:
            RoutingError: the neighbour lies, or passes on a lie.
        """
        return _frames_alone(self._state.receive(frame, link, now))

    def link_up(self, link: int, cost: int, now: int) -> Reaction:
        """Tell the others."""
        return _frames_alone(self._state.neighbour_up(link, cost, now))

    def link_down(self, link: int, now: int) -> Reaction:
        """Tell the others."""
        return _frames_alone(self._state.neighbour_down(link, now))

    def tick(self, now: int) -> Reaction:
        """Refresh and forget."""
        return _frames_alone(self._state.tick(now))

    def leave(self, now: int) -> Reaction:
        """Tell the others that no way leads through this broker any more."""
        return _frames_alone(self._state.leave(now, returns=True))


def _frames_alone(reaction: Reaction) -> Reaction:
    return Reaction(reaction.frames, refused=reaction.refused)
