"""Rounds of harming a trail and asking it: the cheap part, some thousands of them in an hour and core."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from truth.classifier import Class
from truth.findings import Finding, plain_fact
from truth.mutations import Mutation, draw
from truth.reduction import reduced
from truth.specimens import SHIPPED, SPECIMENS, made_specimen, questions
from truth.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from postroad.messages import MessageId
    from truth.specimens import Specimen

__all__ = ["Round", "harmed_rounds", "specimen_rounds", "wrong_answer"]

QUESTIONS = 10
# Mostly one harm at a time, sometimes several: what one hides, another may show.
HARMS = (1, 1, 1, 1, 2, 3)
_BAD = (Class.WRONG, Class.CAUSELESS)


class Round(NamedTuple):
    """What some rounds came to: the counts, and one finding of each sort."""

    tally: Tally
    findings: list[Finding]


def specimen_rounds(name: str, folder: Path, seed: str, count: int) -> Round:
    """Rounds on a generated trail below a folder."""
    return harmed_rounds(made_specimen(name, folder), random.Random(seed), count)


def harmed_rounds(specimen: Specimen, chance: random.Random, count: int) -> Round:
    """Harm a trail so many times, and ask it each time."""
    tally = Tally()
    findings: dict[tuple[str, ...], Finding] = {}
    for _ in range(count):
        mutations = [draw(chance, specimen.patient) for _ in range(chance.choice(HARMS))]
        specimen.harm(mutations)
        tally.mutations += len(mutations)
        asked = questions(chance, specimen, QUESTIONS)
        for why, identity, crashed in _asked(specimen, asked, tally):
            sort = (
                why[:24] if crashed else why.split(", and ")[-1],
                mutations[0].kind,
                mutations[0].path.split("/")[0],
            )
            if sort not in findings:
                findings[sort] = _finding(specimen, mutations, identity, why)
    specimen.patient.heal()
    return Round(tally, list(findings.values()))


def _asked(specimen: Specimen, asked: Sequence[MessageId], tally: Tally) -> list[tuple[str, MessageId, bool]]:
    """Answers that are lies, or no answers at all."""
    bad = []
    answered = 0
    source = "store" if specimen.name in SHIPPED else "files"
    try:
        for identity, judgement in specimen.ask(asked):
            answered += 1
            tally.count(source, judgement.kind, filters=specimen.filters)
            if judgement.kind in _BAD:
                bad.append((judgement.why, identity, False))
    except Exception as error:
        # Whatever a trail holds, a reader answers or refuses; anything else is a defect.
        tally.crashed += 1
        bad.append((f"{type(error).__name__}: {error}", _breaking(specimen, asked), True))
    if not answered and not bad:
        tally.refused += 1
    return bad


def _breaking(specimen: Specimen, asked: Sequence[MessageId]) -> MessageId:
    """The first id for which the reader breaks down."""
    for identity in asked:
        try:
            list(specimen.ask([identity]))
        except Exception:
            return identity
    return asked[0]


def wrong_answer(specimen: Specimen, mutations: Sequence[Mutation], identity: MessageId) -> str:
    """What is wrong with the answer about one id after some mutations; empty if nothing is."""
    specimen.harm(mutations)
    try:
        for _, judgement in specimen.ask([identity]):
            if judgement.kind in _BAD:
                return judgement.why
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _finding(specimen: Specimen, mutations: list[Mutation], identity: MessageId, why: str) -> Finding:
    fewest = reduced(mutations, lambda some: bool(wrong_answer(specimen, some, identity)))
    fact = None if specimen.name in SPECIMENS else specimen.facts.get(identity)
    return Finding(
        why=wrong_answer(specimen, fewest, identity) or why,
        source="files",
        id=str(identity),
        specimen=specimen.name,
        mutations=tuple(fewest),
        fact=None if fact is None else plain_fact(fact),
        roster=tuple((*claim, login) for claim, login in (specimen.roster or {}).items()),
    )
