"""How much more a log accepts: by its limit, by what may wait for the disk, and by what the disk has left.

A log that is *tight* writes short segments. Disk space comes back by whole segments, and not from the one that is being
written: with short ones, rows that come and go in the last mebibytes make room for the next ones. Otherwise brokers
whose stores are full of messages for each other would exchange as much as fits once, and then wait for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.store.settings import StoreSettings

__all__ = ["TIGHT_BYTES", "UNLIMITED", "StoreRoom", "StoreUse"]

# Bytes that may wait in memory for a disk that is slow or fails; beyond it the store refuses rows.
MAX_WAITING_BYTES = 128 * 1024 * 1024
# With less room than this, a log is tight: segments of 64 MiB would never be closed in it.
TIGHT_BYTES = 32 * 1024 * 1024
# The size of a segment then: some of them fit into what is left.
TIGHT_SEGMENT_BYTES = 1024 * 1024
# A segment is at least this many times as large as its checkpoint, or large checkpoints would dominate what is written.
_CHECKPOINT_SHARE = 8
# The same in a tight log, where room matters more than the work of writing.
_TIGHT_CHECKPOINT_SHARE = 2
# A disk that was full has room again with this many times what makes a log tight. With less it would soon be full
# again, and be reported repeatedly while publishers and consumers keep it there.
_AMPLE_SHARE = 2
# More than any disk has.
UNLIMITED = 2**62


class StoreUse(NamedTuple):
    """What a log has.

    Attributes:
        bytes: of the segments, with what waits to be written.
        waiting: of these, what waits to be written or is being written.
        trouble: why nothing is written at the moment; empty while all is well.
    """

    bytes: int
    waiting: int
    trouble: str


class StoreRoom:
    """The limits of one log.

    Args:
        settings: how large it may get, and its segments.
        use: what it has at the moment.

    Attributes:
        settings: see there.
        disk: bytes that the disk had left when the driver looked last.
    """

    def __init__(self, settings: StoreSettings, use: Callable[[], StoreUse]) -> None:
        self.settings = settings
        self._use = use
        self.disk = UNLIMITED

    @property
    def left(self) -> int:
        """Return how many more bytes the log accepts."""
        use = self._use()
        most = min(self.settings.max_bytes - use.bytes, MAX_WAITING_BYTES - use.waiting, self.disk - use.waiting)
        return max(0, most)

    @property
    def is_tight(self) -> bool:
        """Return whether little more fits into the log or onto its disk."""
        use = self._use()
        return min(self.settings.max_bytes - use.bytes, self.disk - use.waiting) < TIGHT_BYTES

    @property
    def is_disk_ample(self) -> bool:
        """Return whether the disk has clearly more left than what makes the log tight."""
        return not self.lack_on_disk(_AMPLE_SHARE * TIGHT_BYTES)

    def segment_bytes(self, checkpoint: int) -> int:
        """Return the size at which a segment is closed that begins with a checkpoint of some bytes."""
        most = self.settings.segment_bytes
        if self.is_tight:
            return max(min(most, TIGHT_SEGMENT_BYTES), _TIGHT_CHECKPOINT_SHARE * checkpoint)
        return max(most, _CHECKPOINT_SHARE * checkpoint)

    def lack(self, more: int) -> str:
        """Return why some more bytes do not fit; empty if they do."""
        return self.lack_in_log(more) or self.lack_on_disk(more)

    def lack_in_log(self, more: int) -> str:
        """Return why the log takes no more bytes, whatever the disk has left; empty if it takes them."""
        use, limit = self._use(), self.settings.max_bytes
        if use.bytes + more > limit:
            return (
                f"the store is full (it has {use.bytes:,} bytes; store.max_bytes is {limit:,}): let subscribers catch "
                "up, delete subscriptions that nobody needs, or raise the limit"
            )
        if use.waiting + more > MAX_WAITING_BYTES:
            return f"{use.waiting:,} bytes wait to be stored: {use.trouble or 'the disk is slower than them'}"
        return ""

    def lack_on_disk(self, more: int) -> str:
        """Return why the disk has no room for some more bytes; empty if it has."""
        if self._use().waiting + more <= self.disk:
            return ""
        return (
            f"the disk is full ({self.disk:,} bytes are left, which acknowledgements need): make room on it, or let "
            "consumers take what is stored"
        )
