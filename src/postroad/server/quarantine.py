"""Neighbours that misbehave: refusals are counted, and a neighbour that sends what no honest broker sends is kept
out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["FIRST_MS", "FORGIVEN_MS", "LONGEST_MS", "Barred", "Quarantine"]

# A fault of a moment (a process that is being updated, a clock that is being set) costs a second.
FIRST_MS = 1_000
# Each further one twice as long, up to this: an operator who has repaired a broker does not wait longer for its links.
LONGEST_MS = 300_000
# After this long without another the count begins again.
FORGIVEN_MS = 600_000


@dataclass(slots=True)
class _Conduct:
    refusals: int = 0
    quarantines: int = 0
    in_a_row: int = 0
    until: int = 0
    reason: str = ""


class Barred(NamedTuple):
    """A neighbour that is kept out: for how long yet (ms), and why."""

    neighbour: int
    left_ms: int
    reason: str


class Quarantine:
    """The conduct of each neighbour. Times are in ms that only go forward."""

    def __init__(self) -> None:
        self._conduct: dict[int, _Conduct] = {}

    def count(self, neighbour: int) -> None:
        """Something was refused that an honest neighbour may send."""
        self._of(neighbour).refusals += 1

    def offend(self, neighbour: int, reason: str, now: int) -> int:
        """Something was refused that no honest neighbour sends; returns how long it is kept out, in ms."""
        conduct = self._of(neighbour)
        conduct.refusals += 1
        conduct.quarantines += 1
        conduct.in_a_row = 1 if now - conduct.until > FORGIVEN_MS else conduct.in_a_row + 1
        # Beyond this many the shift itself would be large; the result is capped anyway.
        time = min(LONGEST_MS, FIRST_MS << min(conduct.in_a_row - 1, 16))
        conduct.until = now + time
        conduct.reason = reason
        return time

    def barred(self, neighbour: int, now: int) -> Barred | None:
        """Whether a neighbour is kept out now."""
        conduct = self._conduct.get(neighbour)
        if conduct is None or now >= conduct.until:
            return None
        return Barred(neighbour, conduct.until - now, conduct.reason)

    def all_barred(self, now: int) -> list[Barred]:
        """Who is kept out now."""
        found = (self.barred(neighbour, now) for neighbour in sorted(self._conduct))
        return [one for one in found if one is not None]

    def counts(self, neighbour: int) -> tuple[int, int]:
        """How much was refused from a neighbour, and how often it was kept out."""
        conduct = self._conduct.get(neighbour)
        return (0, 0) if conduct is None else (conduct.refusals, conduct.quarantines)

    def _of(self, neighbour: int) -> _Conduct:
        return self._conduct.setdefault(neighbour, _Conduct())
