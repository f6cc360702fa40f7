"""`LinkDrain`: how long a broker that stops drains its links, until its neighbours have what it keeps for them."""

from __future__ import annotations

__all__ = ["LONGEST_MS", "SILENT_MS", "LinkDrain"]

# A neighbour that takes nothing for this time takes nothing more. It is some round trips of any link.
SILENT_MS = 3_000
# In all: with the 5 s that clients get, less than the half minute that supervisors give a process to stop.
LONGEST_MS = 20_000
# A look that comes later was held up here, by a machine that is busy or stood still. That is not the neighbour's time.
LOOK_MS = 100


class LinkDrain:
    """Waits as long as neighbours take something. It has no clock: `now` is in ms and only goes forward."""

    def __init__(self, now: int) -> None:
        self._looked = now
        self._held: int | None = None
        self._silent = 0
        self._waited = 0

    def goes_on(self, held: int, now: int) -> bool:
        """Whether to keep waiting, while this many frames are kept."""
        passed = min(now - self._looked, LOOK_MS)
        taken = self._held is None or held < self._held
        self._looked, self._held = now, held
        self._waited += passed
        self._silent = 0 if taken else self._silent + passed
        return held > 0 and self._silent < SILENT_MS and self._waited < LONGEST_MS
