"""Counts of what answers were worth, and the one line of JSON at the end."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from truth.classifier import Class

__all__ = ["Tally"]

# What filters may err by: the rate for all that cover one id, times the neighbours and subscribers that an answer about
# a small network names. Counts beyond what chance gives once in some ten thousand runs are lies.
ERRORS_PER_QUESTION = 2e-4
STANDARD_ERRORS = 4.0


@dataclass
class Tally:
    """Sums; those of a worker are added to those of the program."""

    answers: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    mutations: int = 0
    scenarios: int = 0
    filter_questions: int = 0
    crashed: int = 0
    refused: int = 0
    doubled: int = 0
    lost: int = 0
    after_kill: list[int] = field(default_factory=lambda: [0, 0])
    after_kill_journal: list[int] = field(default_factory=lambda: [0, 0])
    live_seconds: float = 0.0
    breaches: int = 0
    troubles: int = 0

    def count(self, source: str, kind: Class, *, filters: bool = False) -> None:
        """One answer."""
        self.answers[kind] += 1
        self.sources[source] += 1
        self.filter_questions += filters

    def add(self, other: Tally) -> None:
        """The sums of somebody else."""
        self.answers.update(other.answers)
        self.sources.update(other.sources)
        for name in (
            "mutations",
            "scenarios",
            "filter_questions",
            "crashed",
            "refused",
            "doubled",
            "lost",
            "breaches",
            "troubles",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, others in ((self.after_kill, other.after_kill), (self.after_kill_journal, other.after_kill_journal)):
            mine[0] += others[0]
            mine[1] += others[1]
        self.live_seconds = max(self.live_seconds, other.live_seconds)

    @property
    def wrong(self) -> int:
        """Lies: those told with certainty, and false answers of filters beyond what they said."""
        promised = ERRORS_PER_QUESTION * self.filter_questions
        allowed = promised + STANDARD_ERRORS * math.sqrt(promised) + STANDARD_ERRORS
        return self.answers[Class.WRONG] + max(0, math.ceil(self.answers[Class.CHANCE] - allowed))

    def figures(self) -> dict[str, Any]:
        """What the last line says; None where nothing was measured."""
        total = self.answers.total()
        return {
            "answers": total,
            "mutations": self.mutations,
            "scenarios": self.scenarios,
            "wrong_with_certainty": self.wrong,
            "vague_without_cause": _share(self.answers[Class.CAUSELESS], total),
            "vague_after_kill": _share(*self.after_kill),
            "vague_after_kill_journal": _share(*self.after_kill_journal),
            "live_trace_seconds_two_dead": round(self.live_seconds, 2) if self.live_seconds else None,
            "doubled": self.doubled,
            "lost_under_custody": self.lost,
            "breaches": self.breaches,
            "crashed": self.crashed,
            "not_played": self.troubles,
            "vague": _share(self.answers[Class.VAGUE], total),
            "refused": self.refused,
            "sources": dict(sorted(self.sources.items())),
        }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
