"""Messages that neighbours sent: which of them are believed, and what the core makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.errors import PostroadError
from postroad.protocols import link
from postroad.routing import Destinations
from postroad.routing.origins import Origins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from postroad.broker import Outbox, Relay
    from postroad.broker.consignments import Consignment
    from postroad.config import NetworkConfig
    from postroad.messages import Batch
    from postroad.server.admission import LinkAdmission

__all__ = ["LinkArrivals"]


class LinkArrivals:
    """Passes messages of neighbours to the core.

    Args:
        relay: the core joined with a strategy.
        config: lists the brokers whose messages are believed, if it lists any.
        admission: counts what is not believed.
        clock: the time in milliseconds since 1970, UTC.
    """

    def __init__(self, relay: Relay, config: NetworkConfig, admission: LinkAdmission, clock: Callable[[], int]) -> None:
        self._relay = relay
        self._origins = Origins(one.number for one in config.members) if config.members else None
        self._admission = admission
        self._clock = clock

    def receive(
        self, number: int, receiver: link.LinkReceiver, frames: list[link.Data]
    ) -> Iterator[tuple[Batch, Outbox]]:
        """Pass on the messages of some frames; yields each batch with what is to be done for it, before the next one.

        All frames are one batch, unless one of them has a message that is not believed: what is wrong with one frame
        must not cost the others.

        Args:
            number: the neighbour.
            receiver: of its link.
            frames: in the order in which they came.

        Raises:
            PostroadError: a frame holds what no honest neighbour would send.
        """
        whole = link.join_frames(frames)
        batch, destinations = whole.batch, Destinations(whole.sets, whole.lines)
        if self._origins is not None:
            try:
                batch, destinations, left_out = self._origins.believed(batch, destinations, number)
            except PostroadError:
                left_out = -1
                if len(frames) == 1:
                    raise
            if left_out and len(frames) > 1:
                for frame in frames:
                    yield from self.receive(number, receiver, [frame])
                return
            if left_out:
                self._admission.refused(number, f"{left_out} messages of brokers that this network does not list")
        consignment = self._consignment(number, receiver, frames)
        yield batch, self._relay.receive(batch, destinations, number, self._clock(), consignment)

    def _consignment(self, number: int, receiver: link.LinkReceiver, frames: list[link.Data]) -> Consignment | None:
        """What the neighbour entrusts to this broker with the frames; None without custody."""
        if not receiver.custody:
            return None
        consignments = self._relay.consignments
        taken = [consignments.take(number, receiver.epoch, frame.number) for frame in frames]
        return taken[0] if len(taken) == 1 else consignments.joined(taken)
