"""Which kernels a broker needs, by its settings.

A broker loads its kernels before it listens, and compiles those that are missing. Settings rule some out: compiling
them would take a quarter of a first start. Should one be called nevertheless, as when a trail of an older recorder is
read, it is loaded or compiled then, and the log says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroad.config import BrokerConfig

__all__ = ["FILTERS", "NETWORKS", "RARE", "spared_kernels"]

# Modules and folders of modules: those of recorders that keep filters, and those of brokers that have links.
FILTERS = ("postroad.filters", "postroad.tracking.history_kernels", "postroad.tracking.id_runs")
NETWORKS = (
    "postroad.broker.interests",
    "postroad.broker.publisher_order",
    "postroad.matching.encoding",
    "postroad.protocols.link",
    "postroad.routing",
    "postroad.topology",
)
# Message groups of queues: few clients use them, and the first of them waits a third of a second, once on a machine.
RARE = ("postroad.broker.message_groups",)
# Recorders that keep messages one by one, or none.
_WITHOUT_FILTERS = ("exact", "none")


def spared_kernels(config: BrokerConfig) -> tuple[str, ...]:
    """Modules and folders of modules whose kernels a broker with these settings does not call."""
    if config.network is not None:
        # What brokers tell each other of their interest is hashed as filters are.
        return RARE
    filters = FILTERS if config.tracking.recorder in _WITHOUT_FILTERS else ()
    return (*RARE, *NETWORKS, *filters)
