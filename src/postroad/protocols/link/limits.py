"""Limits of frames, and of what a link may hold, each with its reason. Times are in milliseconds."""

from __future__ import annotations

__all__ = [
    "CROWDED",
    "HANDSHAKE_TIMEOUT_MS",
    "HEART_BEAT_MS",
    "LONGEST_REDIAL_MS",
    "MAX_BYE_BYTES",
    "MAX_HANDSHAKE_FRAME_BYTES",
    "MAX_HEART_BEAT_MS",
    "MAX_HELD_BYTES",
    "MAX_HELD_FRAMES",
    "MAX_HELD_ROWS",
    "MAX_LINK_FRAME_BYTES",
    "MAX_MISSED_BEATS",
    "MAX_NETWORK_NAME_BYTES",
    "MAX_PROGRESS_RANGES",
    "MAX_ROWS_PER_FRAME",
    "MAX_WORDS_PER_SET",
    "MIN_SECRET_BYTES",
    "OVERDRAFT",
    "PROGRESS_FRAMES",
    "PROGRESS_MS",
    "RELAXED",
    "SHORTEST_REDIAL_MS",
    "TARGET_FRAME_BYTES",
]

# The largest message (a body of 16 MiB, blocks of 256, 64 and 16 KiB) fits with its envelope and the widest set, and so
# does the largest control frame; the rest of the 32 MiB is room for later blocks.
MAX_LINK_FRAME_BYTES = 32 * 1024 * 1024
# A sender splits larger batches: heart-beats and control frames wait for a frame, at 100 Mbit/s for 80 ms. One message
# may be larger, and is then alone in its frame.
TARGET_FRAME_BYTES = 1024 * 1024
# Rows point at their set with 16 bits, so no frame needs more sets; and there are never more sets than rows.
MAX_ROWS_PER_FRAME = 65_535
# Bits of the largest broker number, 65,535.
MAX_WORDS_PER_SET = 1_024

# The most that is kept for a peer that has not proved anything yet: a HELLO has at most 343 bytes, a BYE 524.
MAX_HANDSHAKE_FRAME_BYTES = 1_024
# The length has two bytes, but a name by which people tell networks apart needs far less.
MAX_NETWORK_NAME_BYTES = 255
# A sentence or two.
MAX_BYE_BYTES = 512
# Somebody who recorded a handshake can try secrets offline; 128 bits are too many to try.
MIN_SECRET_BYTES = 16
# A handshake is two exchanges, which take 3 seconds even over a satellite.
HANDSHAKE_TIMEOUT_MS = 10_000

# The most that is held for one neighbour: one second of a link of 500 Mbit/s, and two of the largest frames.
MAX_HELD_BYTES = 64 * 1024 * 1024
# Small messages take more memory when they are returned, for their columns: some 150 bytes a row.
MAX_HELD_ROWS = 1_000_000
# From the first frame that is not settled to the last: the receiver keeps at most this many numbers of frames that are
# settled out of order.
MAX_HELD_FRAMES = 65_536
# Messages that come back from a dead neighbour had room on its link. To take them, other links may hold this many times
# their limit.
OVERDRAFT = 2
# Publishers are paused when a link is fuller than the first, so that what is under way still fits, and resumed when it
# is emptier than the second.
CROWDED, RELAXED = 0.75, 0.5

# Progress is reported after this many frames (16 MiB at most, a quarter of what may be held), or when the oldest
# unreported frame is this old.
PROGRESS_FRAMES = 16
PROGRESS_MS = 20
# Frames settled out of order are reported as ranges; 16 KiB of them at a time, the rest with the next report.
MAX_PROGRESS_RANGES = 1_024

# A silent neighbour is given up after three intervals, so within seconds; a beat has 8 bytes.
HEART_BEAT_MS = 1_000
MAX_HEART_BEAT_MS = 600_000
MAX_MISSED_BEATS = 3

# A restarted process is back within a second; a host that is gone is dialled twice a minute.
SHORTEST_REDIAL_MS = 100
LONGEST_REDIAL_MS = 30_000
