"""The limits of a message, each with its reason.

The broker that a message enters refuses it if it is over a limit. The limits are part of the format, so every decoder
checks them too.
"""

from __future__ import annotations

__all__ = [
    "DEFAULT_HOP_LIMIT",
    "DEFAULT_PRIORITY",
    "MAX_ATTRIBUTES",
    "MAX_ATTRIBUTE_BYTES",
    "MAX_BATCH_BYTES",
    "MAX_BODY_BYTES",
    "MAX_FOREIGN_ID_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_METADATA_BYTES",
    "MAX_NAME_BYTES",
    "MAX_TOPIC_BYTES",
    "MAX_TOPIC_LEVELS",
    "MAX_VALUE_BYTES",
]

# Topics are hashed and compared for every message; real ones are far shorter.
MAX_TOPIC_BYTES = 1024
# One step of the topic index per level, so this bounds the cost of matching a topic.
MAX_TOPIC_LEVELS = 64

# The name length is one byte.
MAX_NAME_BYTES = 255
# The value length is two bytes; longer values belong in the body, which is never scanned.
MAX_VALUE_BYTES = 65_535
# Matching looks at each attribute of each message once; entries and header lines are counted together.
MAX_ATTRIBUTES = 1024
# Four values of full size. What matching scans has to stay small compared with the body, which it does not.
MAX_ATTRIBUTE_BYTES = 256 * 1024
# One large socket read: a codec joins at most two reads to see a whole header block.
MAX_HEADER_BYTES = 64 * 1024

# A slow link (10 Mbit/s) takes 13 seconds for a body of this size, and all later messages wait.
MAX_BODY_BYTES = 16 * 1024 * 1024

# Rewritten at each hop, so it is kept small: room for a trace context and twice the 8 KiB of W3C baggage.
MAX_METADATA_BYTES = 16 * 1024

# The name of a message in another system. UUIDs have 36 bytes, the ids of other brokers less than 200; nobody would
# search for a longer one.
MAX_FOREIGN_ID_BYTES = 1_024

# Spans are signed 32-bit offsets.
MAX_BATCH_BYTES = 2**31 - 1

# The largest value of the byte: it only has to end loops, and a strategy that knows its network sets a smaller one.
DEFAULT_HOP_LIMIT = 255
# The default of JMS and of AMQP.
DEFAULT_PRIORITY = 4
