"""The prefix of an encoded message, and the limits of its parts: one layout for all that write or read them.

An encoded message begins with a prefix of 16 bytes, little-endian: version u8, 0, then the lengths of topic (u16),
attribute block, header lines and body (u32 each). The four parts follow in this order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from postroad.kernels import device
from postroad.messages.fields import put_u32
from postroad.messages.limits import (
    MAX_ATTRIBUTE_BYTES,
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    MAX_METADATA_BYTES,
    MAX_TOPIC_BYTES,
)

if TYPE_CHECKING:
    from postroad.messages.columns import Bytes

VERSION = 1
PREFIX_BYTES = 16

# The most bytes of each span of a row, in the order of `Batch.spans`; metadata travels apart from the message.
SPAN_LIMITS = np.array(
    [MAX_TOPIC_BYTES, MAX_ATTRIBUTE_BYTES, MAX_HEADER_BYTES, MAX_BODY_BYTES, MAX_METADATA_BYTES], dtype=np.int64
)


@device
def put_length(out: Bytes, at: int, part: int, length: int) -> None:
    """Write the length of a part into the prefix that begins at `at`; part 0, the topic, brings the version along."""
    # The first word is version, reserved byte and the 16 bits of the topic's length.
    put_u32(out, at + 4 * part, VERSION | length << 16 if part == 0 else length)


@device
def copy_part(buffer: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Copy bytes to `at`; return the offset after them.

    With unsigned indices the compiler knows that none counts from the end, which makes the loop 12 times as fast.
    """
    origin, target = np.uint64(start), np.uint64(at)
    for index in range(np.uint64(end - start)):
        out[target + index] = buffer[origin + index]
    return at + end - start
