"""Foreign ids: the `message-id` headers of senders that let the broker give ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.messages.headers import unescape
from postroad.messages.limits import MAX_FOREIGN_ID_BYTES
from postroad.protocols.stomp.versions import Version

if TYPE_CHECKING:
    from postroad.messages import Batch
    from postroad.protocols.stomp.columns import Columns

__all__ = ["foreign_ids"]


def foreign_ids(batch: Batch, message_ids: Columns, version: Version | None) -> list[tuple[int, str]]:
    """Return the rows that have a foreign id of at most `MAX_FOREIGN_ID_BYTES`, each with its id.

    Args:
        batch: the batch of a `Received`, or some rows of it over the same buffer.
        message_ids: the `message_ids` of the same rows.
        version: of the connection: how headers are escaped.
    """
    starts = message_ids[:, 0]
    # Nearly always there is none.
    if not len(starts) or int(starts.max()) < 0:
        return []
    found = []
    for row in np.flatnonzero(starts >= 0).tolist():
        start, end = message_ids[row].tolist()
        # An escape has two bytes for one.
        if start < end <= start + 2 * MAX_FOREIGN_ID_BYTES:
            name = _plain(batch.buffer[start:end].tobytes(), version)
            if len(name) <= MAX_FOREIGN_ID_BYTES:
                found.append((row, name.decode("utf-8", "replace")))
    return found


def _plain(written: bytes, version: Version | None) -> bytes:
    if version is None or version is Version.V1_0:
        return written
    try:
        return unescape(written)
    except ValueError:
        # The escapes are not valid in this version; the raw text is still the sender's name for the message.
        return written
