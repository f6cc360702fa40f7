"""Refused and doubtful actions, logged as far as the log stays readable. Never logs a passcode or a token."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Literal

__all__ = ["Action", "Audit"]

log = logging.getLogger("postroad.server")

# Lines until the next look of the watch; further ones are counted in one more line. So a flood of refusals fills
# neither a disk nor anybody's day.
MOST_LINES = 20

Action = Literal[
    "login refused",
    "login delayed",
    "subscription refused",
    "publication refused",
    "origin refused",
    "admin request refused",
]

# Carried out as requested, with a line in the log.
Doubt = Literal["subscription doubtful"]


class Audit:
    """Refused and doubtful actions of one broker; the refused ones are counted."""

    def __init__(self) -> None:
        self.counts: Counter[Action] = Counter()
        self._lines = 0
        self._left_out: Counter[Action | Doubt] = Counter()

    def refused(self, action: Action, **fields: object) -> None:
        """Count and log something that was refused."""
        self.counts[action] += 1
        self._tell(action, fields)

    def doubted(self, action: Doubt, **fields: object) -> None:
        """Log something that was done and that its author may not have meant."""
        self._tell(action, fields)

    def _tell(self, action: Action | Doubt, fields: dict[str, object]) -> None:
        if self._lines < MOST_LINES:
            self._lines += 1
            log.warning(action, extra=fields)
        else:
            self._left_out[action] += 1

    def look(self) -> None:
        """Report what was not logged since the last call, and allow lines again."""
        self._lines = 0
        if self._left_out:
            counts = {action.replace(" ", "_"): count for action, count in self._left_out.items()}
            self._left_out.clear()
            log.warning("more refused", extra=counts)
