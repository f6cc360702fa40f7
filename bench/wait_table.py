"""The table of open-loop loads, and the errors of what was predicted for them."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.capacity_waits import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.capacity_waits import Load

__all__ = ["wait_errors"]

_FIGURES = ("measured", "ours", "replayed", "linear")
_HEADS = (*_FIGURES, "off %", "replay %", "noise %")


def wait_errors(loads: Sequence[Load]) -> dict[str, Any]:
    """Print the loads; relative errors: medians over all loads, and by kind."""
    print("waits in microseconds: the mean, then the 99 % quantile")
    tail = ("processors", "arrivals c", "late us", "quiet %")
    print(f"{'load':15} {'used':>4} {'rate/s':>8}" + "".join(f"{head:>11}" for head in (*_HEADS, *tail)))
    for one in loads:
        for part in (0, 1):
            label = f"{one.kind:15} {one.utilisation:4.2f} {one.rate:8,.0f}" if part == 0 else f"{'  99 %':29}"
            told = "".join(f"{1e6 * getattr(one, name)[part]:11,.0f}" for name in _FIGURES)
            shares = (one.errors(one.ours), one.errors(one.replayed), one.noise)
            off = "".join(f"{100 * error[part]:11.0f}" for error in shares)
            rest = f"{one.processors:11.2f}{one.variation:11.2f}{1e6 * one.late:11.0f}{100 * one.quiet:11.0f}"
            print(label + told + off + (rest if part == 0 else ""))

    def error(part: int, chosen: Sequence[Load], by: str = "ours") -> float | None:
        found = median(one.errors(getattr(one, by))[part] for one in chosen)
        return found if math.isfinite(found) else None

    by_kind = {
        f"{name}_wait_error_{kind.name.replace(' ', '_')}": error(part, [one for one in loads if one.kind == kind.name])
        for kind in KINDS
        for part, name in enumerate(("mean", "p99"))
        if any(one.kind == kind.name for one in loads)
    }
    return {
        "mean_wait_error": error(0, loads),
        "p99_wait_error": error(1, loads),
        "replayed_mean_wait_error": error(0, loads, "replayed"),
        "replayed_p99_wait_error": error(1, loads, "replayed"),
        "linear_mean_wait_error": error(0, loads, "linear"),
        "linear_p99_wait_error": error(1, loads, "linear"),
        "linear_endless": sum(math.isinf(one.linear.mean) for one in loads),
        "loads": len(loads),
        "p99_noise": median(one.noise.p99 for one in loads),
        "quiet_share": min(one.quiet for one in loads),
        **by_kind,
    }
