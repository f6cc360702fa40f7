"""The counts of one link, from its two ends and from what was refused of its neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.server.counts import LinkStatistics

if TYPE_CHECKING:
    from postroad.protocols import link
    from postroad.server.admission import LinkAdmission
    from postroad.server.link_connection import LinkConnection

__all__ = ["ClosedTraffic", "link_statistics"]


class ClosedTraffic:
    """Bytes sent and received over connections that are closed, by neighbour."""

    def __init__(self) -> None:
        self._closed: dict[int, tuple[int, int]] = {}

    def add(self, number: int, connection: LinkConnection) -> None:
        """A connection to a neighbour is closed."""
        self._closed[number] = self.total(number, connection)

    def total(self, number: int, current: LinkConnection | None) -> tuple[int, int]:
        """Bytes sent and received, with those of an open connection."""
        sent, received = self._closed.get(number, (0, 0))
        if current is None:
            return sent, received
        return sent + current.sent_bytes, received + current.received_bytes


def link_statistics(
    number: int,
    neighbour: link.Neighbour,
    up: bool,
    crowded: bool,
    admission: LinkAdmission,
    traffic: tuple[int, int],
) -> LinkStatistics:
    """Counts for people and for metrics.

    Args:
        number: of the neighbour.
        neighbour: sender and receiver of its link.
        up: whether the link works.
        crowded: whether local publishers wait for it.
        admission: counts refusals.
        traffic: bytes sent and received over its connections.
    """
    sent, received = neighbour.sender.statistics(), neighbour.receiver.statistics()
    refusals, quarantines = admission.counts(number)
    return LinkStatistics(
        neighbour=number,
        up_now=up,
        crowded_now=crowded,
        sent_messages=sent.sent_rows,
        sent_frames=sent.sent_frames,
        resent_frames=sent.resent_frames,
        returned_frames=sent.returned_frames,
        shed_messages=sent.refused_rows,
        held_messages_now=sent.held_rows,
        held_frames_now=sent.held_frames,
        held_bytes_now=sent.held_bytes,
        sent_bytes=traffic[0],
        received_bytes=traffic[1],
        received_frames=received.received_frames,
        repeated_frames=received.repeated_frames,
        unsettled_frames_now=received.unsettled_frames,
        restarts=received.restarts,
        refusals=refusals,
        quarantines=quarantines,
        quarantined_now=bool(admission.barred(number)),
    )
