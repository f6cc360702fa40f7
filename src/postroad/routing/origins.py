"""Whose messages a link may carry, where the brokers of the network are listed.

A message names the broker where it entered twice: in its id, which never changes, and in its envelope. No broker lets a
message in where the two differ, so a neighbour that sends one has made it up. A broker that this list does not name may
be in the newer list of an honest neighbour: its messages are left out, and the neighbour is not blamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.kernels import kernel
from postroad.messages.columns import SOURCE
from postroad.messages.id_columns import ORIGIN
from postroad.messages.identity import ORIGIN_MASK
from postroad.routing.destinations import Destinations
from postroad.routing.errors import RoutingError
from postroad.topology import LARGEST_BROKER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from postroad.messages import Batch
    from postroad.messages.columns import Bytes, Envelopes, Ids
    from postroad.routing.destinations import Flags

__all__ = ["Believed", "Origins"]


class Believed(NamedTuple):
    """The rows of a batch that are believed, and how many are not."""

    batch: Batch
    destinations: Destinations
    left_out: int


class Origins:
    """The brokers of a network.

    Args:
        members: their numbers.
    """

    def __init__(self, members: Iterable[int]) -> None:
        self._listed = np.zeros(LARGEST_BROKER + 1, np.uint8)
        self._listed[list(members)] = 1

    def believed(self, batch: Batch, destinations: Destinations, link: int) -> Believed:
        """What is believed of messages that came over a link.

        Raises:
            RoutingError: a row names two brokers where it entered.
        """
        fits = np.empty(len(batch), np.bool_)
        forged, left_out = _judge(batch.ids, batch.envelopes, self._listed, fits)
        if forged >= 0:
            raise RoutingError(
                f"broker {link} sent a message that entered at broker {int(batch.envelopes[forged, SOURCE])} with an "
                f"id of broker {int(batch.ids[forged, 0]) & ORIGIN_MASK}"
            )
        if not left_out:
            return Believed(batch, destinations, 0)
        rows = np.flatnonzero(fits)
        return Believed(batch.take(rows), Destinations(destinations.sets, destinations.lines[rows]), left_out)


@kernel(
    "UniTuple(int64, 2)(Array(uint64, 2, 'C', readonly=True), Array(int64, 2, 'C', readonly=True), uint8[::1],"
    " boolean[::1])",
    allocates=False,
)
def _judge(ids: Ids, envelopes: Envelopes, listed: Bytes, fits: Flags) -> tuple[int, int]:
    """Which rows name a listed origin; returns the first row that names two origins (or -1), and how many do not fit.

    `ids`, `envelopes` and `fits` have one entry for each row. An origin is compared with the length of `listed` before
    it is an index: it comes from a neighbour.
    """
    left_out = 0
    for row in range(len(fits)):
        source = envelopes[row, SOURCE]
        if np.int64(ids[row, 0] & ORIGIN) != source:
            return row, left_out
        fits[row] = 0 <= source < len(listed) and listed[source] != 0
        left_out += not fits[row]
    return -1, left_out
