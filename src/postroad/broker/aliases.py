"""Names of messages in other systems, for the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages import attribute_texts
from postroad.messages.limits import MAX_FOREIGN_ID_BYTES

if TYPE_CHECKING:
    from postroad.broker.no_recorder import Recorder
    from postroad.messages import Batch

__all__ = ["record_aliases"]


def record_aliases(recorder: Recorder, batch: Batch, attribute: str, now: int) -> None:
    """Record the names that the messages of a batch have in an attribute, but no empty or very long ones."""
    texts = attribute_texts(batch, attribute)
    data, offsets = texts.data.tobytes(), texts.offsets
    lengths = np.diff(texts.offsets)
    for row in np.flatnonzero(texts.present & (lengths > 0) & (lengths <= MAX_FOREIGN_ID_BYTES)).tolist():
        alias = data[offsets[row] : offsets[row + 1]].decode("utf-8", "replace")
        recorder.aliased(alias, int(batch.ids[row, 0]), int(batch.ids[row, 1]), now)
