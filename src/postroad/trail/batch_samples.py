"""Sampled batches of all brokers of a trail, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.trail.errors import TrailDamageError
from postroad.trail.file_reader import TrailFile
from postroad.trail.schemas import table_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from postroad.trail.reader import Trail

__all__ = ["batch_samples"]

_TABLE = "timings"


def batch_samples(
    trail: Trail, since: int | None = None, until: int | None = None
) -> tuple[dict[str, NDArray[np.int64]], list[str]]:
    """The columns of `timings` and `broker`, all rows or those between two times in ms; and what could not be read."""
    damaged: list[str] = []
    names = [name for name in table_named(_TABLE).schema.names if name != "broker"]
    found: dict[str, list[NDArray[np.int64]]] = {name: [] for name in [*names, "broker"]}
    for broker in trail.brokers():
        entries, _ = trail.files(_TABLE, broker, since, until)
        for entry in entries:
            try:
                rows = TrailFile(trail.root, entry, broker, trail.reads).read(names)
            except TrailDamageError as error:
                damaged.append(str(error))
                continue
            for name in names:
                found[name].append(rows[name].to_numpy().astype(np.int64))
            found["broker"].append(np.full(rows.num_rows, broker, np.int64))
    joined = {name: np.concatenate(parts) if parts else np.empty(0, np.int64) for name, parts in found.items()}
    chosen = np.ones(len(joined["at"]), bool)
    if since is not None:
        chosen &= joined["at"] >= since
    if until is not None:
        chosen &= joined["at"] < until
    return {name: column[chosen] for name, column in joined.items()}, [*trail.warnings, *damaged]
