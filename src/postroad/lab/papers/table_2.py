"""Table 2 of the paper: memory limits, accuracies and persistence intervals, and what each recorder makes of a row.

A limit applies to one buffer in the paper. A broker here has one limit for its recorder, and two histories in this
scenario, published and delivered, so it gets twice as much. At the limit, `log` passes its buffer on, `bloom` and
`sealed` seal the largest histories first, and `exact` closes its book.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from postroad.filters import TABLE_2

__all__ = ["BASE", "EFFECTIVE", "INTERVALS", "LIMITS", "LOG_INTERVALS", "RecorderSetup", "setups"]

EFFECTIVE = {"99.999%": 1e-5, "99%": 1e-2, "95%": 5e-2}
LIMITS = {"10K": 10_000, "135K": 135_000}
HISTORIES = 2
# The paper's persistence intervals, in seconds, by row of Table 2; the log has one per memory limit.
INTERVALS = {
    "10K 99.999%": (1,),
    "10K 99%": (1, 2),
    "10K 95%": (1, 2),
    "135K 99.999%": (1, 2, 8),
    "135K 99%": (1, 2, 8, 18),
    "135K 95%": (1, 2, 8, 18, 27),
}
LOG_INTERVALS = {"10K": (1,), "135K": (1, 2)}


class RecorderSetup(NamedTuple):
    """A broker's recorder in the scenario.

    Attributes:
        recorder: its name.
        row: memory limit, and accuracy if there is one.
        interval_s: the persistence interval.
    """

    recorder: str
    row: str = ""
    interval_s: int = 1

    @property
    def tracking(self) -> dict[str, Any]:
        """The settings of a broker."""
        if self.recorder == "none":
            return {"recorder": "none"}
        limit, _, accuracy = self.row.partition(" ")
        settings: dict[str, Any] = {
            "recorder": self.recorder,
            "persist_seconds": float(self.interval_s),
            "memory_bytes": HISTORIES * LIMITS[limit],
        }
        if self.recorder == "bloom":
            shape = TABLE_2[self.row]
            settings |= {"bits": shape.m, "hashes": shape.k, "keys": shape.n}
        elif accuracy:
            settings["effective_error"] = EFFECTIVE[accuracy]
        return settings


BASE = RecorderSetup("none")


def setups(quick: bool = False) -> list[RecorderSetup]:
    """Return all of Table 2, and the same limits for the recorders that the paper does not have; or one per recorder.

    A filter that is sized at the seal, and an exact record, are as good at any filling, so the first interval is
    enough.
    """
    if quick:
        return [
            RecorderSetup("log", "10K"),
            RecorderSetup("exact", "10K"),
            RecorderSetup("bloom", "10K 99.999%"),
            RecorderSetup("sealed", "10K 99.999%"),
        ]
    found = [
        RecorderSetup(name, limit, seconds)
        for name in ("log", "exact")
        for limit in LIMITS
        for seconds in LOG_INTERVALS[limit]
    ]
    found += [RecorderSetup("bloom", row, seconds) for row in TABLE_2 for seconds in INTERVALS[row]]
    return found + [RecorderSetup("sealed", row) for row in TABLE_2]
