"""How long simulated brokers work: costs that were measured once, or those of a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from postroad.capacity import BatchCosts
from postroad.lab.errors import LabError
from postroad.simulation import ServiceTimes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MEASURED_TIMES", "read_service_times"]

# From one run of `postroad capacity calibrate` on two virtual processors; a control frame and a SUBSCRIBE as timed
# there in the core. Another machine has others: give its own file to compare with live runs on it.
MEASURED_TIMES = ServiceTimes(
    BatchCosts(
        batch=60e-6,
        write=9e-6,
        receive=0.5e-6,
        lookup=0.03e-6,
        send=0.25e-6,
        byte=0.5e-9,
        sent_byte=0.4e-9,
    ),
    control_us=60,
    subscribe_us=120,
)


def read_service_times(path: Path) -> ServiceTimes:
    """The costs that `postroad capacity calibrate --out` or `fit --out` wrote.

    Raises:
        LabError: the file cannot be read, or holds no costs.
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
