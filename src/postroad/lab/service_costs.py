"""How long simulated brokers work: default costs, measured once, or those of a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from postroad.capacity import BatchCosts
from postroad.lab.errors import LabError
from postroad.simulation import ServiceTimes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MEASURED_TIMES", "read_service_times"]

# One run of `postroad capacity calibrate --seconds 0.1` on two shared virtual processors; it did not separate the cost
# of receiving a message from that of the batch. The costs of a control frame and a SUBSCRIBE are assumed to be those of
# a small batch. Another machine has other costs: use its own file to compare with live runs on it.
MEASURED_TIMES = ServiceTimes(
    BatchCosts(batch=96e-6, write=20e-6, lookup=12e-9, send=36e-9, byte=0.18e-9, sent_byte=0.39e-9),
    control_us=100,
    subscribe_us=100,
)


def read_service_times(path: Path) -> ServiceTimes:
    """Return the costs that `postroad capacity calibrate --out` or `fit --out` wrote.

    Raises:
        LabError: the file cannot be read, or has no costs.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
        costs = {name: float(value) for name, value in document["costs"].items() if name in BatchCosts._fields}
    except OSError as error:
        raise LabError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"{path}: holds no costs of `postroad capacity calibrate` ({error})") from None
    if not costs or any(value < 0 for value in costs.values()):
        raise LabError(f"{path}: costs are 0 or more, and there is at least one")
    return MEASURED_TIMES._replace(costs=BatchCosts(**costs))
