"""What was refused to whom, or is doubtful: logged as far as it stays readable. Never a passcode or a token."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Literal

__all__ = ["Action", "Audit"]

log = logging.getLogger("postroad.server")

# Lines until the next look of the watch; what is beyond them is counted in one more line. A flood of refusals fills
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

# What is done as it was asked for, with a line of the log.
Doubt = Literal["subscription doubtful"]


class Audit:
    """Refused and doubtful actions of one broker; the refused ones are counted."""

    def __init__(self) -> None:
        self.counts: Counter[Action] = Counter()
        self._lines = 0
        self._left_out: Counter[Action | Doubt] = Counter()

    def refused(self, action: Action, **fields: object) -> None:
        """Something was refused."""
        self.counts[action] += 1
        self._tell(action, fields)

    def doubted(self, action: Doubt, **fields: object) -> None:
        """Something was done that its author may not have meant."""
        self._tell(action, fields)

    def _tell(self, action: Action | Doubt, fields: dict[str, object]) -> None:
        if self._lines < MOST_LINES:
            self._lines += 1
            log.warning(action, extra=fields)
        else:
            self._left_out[action] += 1

    def look(self) -> None:
        """Some time has passed: tell what had no line, and let lines through again."""
        self._lines = 0
        if self._left_out:
            counts = {action.replace(" ", "_"): count for action, count in self._left_out.items()}
            self._left_out.clear()
            log.warning("more refused", extra=counts)
