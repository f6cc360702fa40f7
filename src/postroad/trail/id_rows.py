"""The rows of one message in a row group that may have some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from postroad.messages import MessageId
    from postroad.trail.file_reader import TrailFile
    from postroad.trail.files import Group

__all__ = ["group_times", "id_rows"]


def id_rows(file: TrailFile, group: Group, names: list[str], identity: MessageId) -> Iterator[dict[str, Any]]:
    """Rows of the id in one row group: first the ids are read, then the rest if it is there.

    Raises:
        TrailDamageError: the row group is not the one that was written.
    """
    key = {
        "time": identity.time,
        "origin": identity.broker,
        "publisher": identity.publisher,
        "counter": identity.counter,
    }
    columns = file.read(list(key), [group.index])
    here = np.ones(columns.num_rows, np.bool_)
    for name, value in key.items():
        here &= columns.column(name).to_numpy() == value
    places = np.flatnonzero(here)
    if len(places):
        rest = file.read([name for name in names if name not in key], [group.index])
        # As a list: for an array pyarrow would load `numpy.ma`, which takes some 30 ms.
        yield from rest.take(places.tolist()).to_pylist()


def group_times(groups: Iterable[Group]) -> tuple[int, int]:
    """The first and the last id time of some groups."""
    listed = list(groups)
    return min(group.time_from for group in listed), max(group.time_to for group in listed)
