"""The recorder that the settings of a broker name: one row each. `config.RecorderName` lists the names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.tracking import BloomRecorder, ExactRecorder, LogRecorder, SealedRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.config import BrokerConfig, RecorderName
    from postroad.tracking import TrackingRecorder

__all__ = ["RECORDERS", "make_recorder"]


def _exact(config: BrokerConfig, now: int) -> TrackingRecorder:
    settings = config.tracking
    return ExactRecorder(config.number, now, int(settings.persist_seconds * 1_000), settings.memory_bytes)


# From a broker's settings and the time to its recorder; None if nothing is recorded.
RECORDERS: dict[RecorderName, Callable[[BrokerConfig, int], TrackingRecorder] | None] = {
    "none": None,
    "log": lambda config, now: LogRecorder(config.number, config.tracking.histories(), now),
    "exact": _exact,
    "bloom": lambda config, now: BloomRecorder(config.number, config.tracking.histories(), now),
    "sealed": lambda config, now: SealedRecorder(config.number, config.tracking.histories(), now),
}


def make_recorder(config: BrokerConfig, now: int) -> TrackingRecorder | None:
    """A fresh recorder; None if nothing is recorded.

    Raises:
        TrackingError: the settings contradict each other.
    """
    make = RECORDERS[config.tracking.recorder]
    return None if make is None else make(config, now)
