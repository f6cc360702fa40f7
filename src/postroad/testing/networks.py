"""`broker_network`: the one way into this room."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from postroad.errors import PostroadError
from postroad.testing.real_network import RealNetwork
from postroad.testing.virtual_network import VirtualNetwork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from postroad.simulation import LinkQuality
    from postroad.testing.network_contract import BrokerNetwork
    from postroad.topology import Plan

__all__ = ["Clock", "broker_network"]

Clock = Literal["virtual", "real"]


@contextlib.asynccontextmanager
async def broker_network(
    plan: Plan, clock: Clock = "virtual", *, seed: int = 0, quality: LinkQuality | None = None
) -> AsyncIterator[BrokerNetwork]:
    """A network of brokers for as long as the block lasts; settled when it begins.

    Args:
        plan: the network.
        clock: "virtual" simulates it: the same run every time, hours in seconds. "real" runs services of this process
            on free ports of the loopback address, with real sockets between them and their clients.
        seed: virtual: of the delays of links.
        quality: virtual: delay, bandwidth, loss and buffers of the links.

    Raises:
        PostroadError: there is no such clock.
    """
    if clock == "virtual":
        virtual = VirtualNetwork(plan, seed, quality)
        await virtual.settled()
        yield virtual
    elif clock == "real":
        with tempfile.TemporaryDirectory(prefix="postroad-testing-") as data:
            real = RealNetwork(plan, Path(data))
            try:
                await real.open()
                await real.settled()
                yield real
            finally:
                await real.close()
    else:
        raise PostroadError(f'clock {clock!r}: a network runs by a "virtual" clock or by the "real" one')
