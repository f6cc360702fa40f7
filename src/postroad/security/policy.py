"""The contract that every publish batch and every subscribe passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from postroad.messages import Batch
    from postroad.selectors import Selector

__all__ = ["AllowAll", "Policy", "Refusal"]


class Refusal(NamedTuple):
    """Why something is not allowed, in words for the client."""

    reason: str


class Policy(Protocol):
    """Decides by principal: the name that a session proved, or an empty text."""

    def may_publish(self, principal: str, batch: Batch) -> NDArray[np.intp] | None:
        """The rows that may be published; None for all of them, which then costs nothing.

        Rows for queues have the flag `QUEUED`, and the name of the queue, without `/queue/`, as their topic.
        """

    def may_subscribe(
        self, principal: str, topic: str, selector: Selector | None, queued: bool = False
    ) -> Selector | Refusal | None:
        """The selector to use (a policy may narrow it; None selects everything), or a refusal.

        With `queued` the topic is the name of a queue, without `/queue/`, as in `may_publish`.
        """


class AllowAll:
    """Everybody may do everything."""

    def may_publish(self, principal: str, batch: Batch) -> NDArray[np.intp] | None:
        return None

    def may_subscribe(
        self, principal: str, topic: str, selector: Selector | None, queued: bool = False
    ) -> Selector | Refusal | None:
        return selector
