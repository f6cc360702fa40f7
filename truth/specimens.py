"""Small trails with known truth, to be harmed: one for each recorder, each with another beside it to mix it up with."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from postroad.errors import PostroadError
from postroad.lab.trails import TRUTH, Faults, Scale, alias_of, write_trail
from postroad.tracking import journey_document
from postroad.trail import Trail
from truth.classifier import Class, Judgement, classify
from truth.facts import Fact, facts_of_generated, unsent
from truth.mutations import Patient
from truth.replies import reply_of_document

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from postroad.messages import MessageId
    from truth.mutations import Mutation
    from truth.replies import Claim

__all__ = [
    "SHIPPED",
    "SPECIMENS",
    "Specimen",
    "made_specimen",
    "make_specimen",
    "questions",
    "specimen_of_files",
    "specimen_of_trail",
]


# Small: a mutation should hit what the few questions after it are about. Several commits, so that there are changes
# before and after each; more than eight, so that there is a checkpoint and changes after it.
def _scale(seed: int, recorder: str = "exact", seconds: int = 60, seal_seconds: int = 20) -> Scale:
    return Scale(
        brokers=3,
        messages=60,
        seed=seed,
        recorder=recorder,
        publishers=2,
        subscriptions=3,
        interests=12,
        seconds=seconds,
        seal_seconds=seal_seconds,
        faults=Faults(lost=0.08, shed=0.08, acknowledging=0.4),
        aliases=True,
    )


SPECIMENS = {
    "exact": _scale(1),
    "exact-long": _scale(2, seconds=300, seal_seconds=30),
    "exact-days": _scale(3, seconds=180_000, seal_seconds=60_000),
    "sealed": _scale(4, "sealed"),
    "bloom": _scale(5, "bloom"),
    # In a store, asked there, and where brokers wrote it and dropped their copies.
    "shipped": _scale(6),
    "dropped": _scale(7),
}
SHIPPED = ("shipped", "dropped")
# Of so many messages one is asked for by its foreign id too.
_ALIASED = 3


class Specimen(NamedTuple):
    """A trail that can be harmed, and the truth about it.

    Attributes:
        name: of its kind.
        patient: the trail.
        facts: the truth about every message in it.
        filters: its record is of filters, which err as often as they say.
        roster: the login behind each subscription's number, where facts name readers by login.
        aliased: each message has a foreign id.
        asked: where it is asked, if not where it is harmed.
    """

    name: str
    patient: Patient
    facts: Mapping[MessageId, Fact]
    filters: bool
    roster: Mapping[Claim, str] | None = None
    aliased: bool = False
    asked: Path | None = None

    def ask(self, ids: Iterable[MessageId]) -> Iterator[tuple[MessageId, Judgement]]:
        """Trace ids in the trail as it is now, and judge the answers.

        A trail that cannot be opened at all answers nothing.
        """
        try:
            trail = Trail(self.asked or self.patient.root)
        except PostroadError:
            return
        for identity in ids:
            story = trail.trace(identity)
            reply = reply_of_document("files", journey_document(story), trail.warnings)
            yield identity, classify(reply, self.facts.get(identity, Fact(entered=False)), self.roster)
            if self.aliased and identity in self.facts and identity.time % _ALIASED == 0:
                yield identity, _alias_judgement(trail, identity)

    def harm(self, mutations: Iterable[Mutation]) -> None:
        """The trail with these done to it, and nothing else."""
        self.patient.heal()
        for mutation in mutations:
            self.patient.harm(mutation)


def _alias_judgement(trail: Trail, identity: MessageId) -> Judgement:
    """Whether a message is found by its foreign id."""
    found = trail.aliased(alias_of(identity))
    if found:
        same = found == [identity]
        return Judgement(Class.RIGHT) if same else Judgement(Class.WRONG, f"its foreign id is said to be of {found}")
    if trail.may_hide():
        return Judgement(Class.VAGUE)
    return Judgement(Class.WRONG, "it has a foreign id, and that is said to be unknown")


_made: dict[tuple[str, Path], Specimen] = {}


def made_specimen(name: str, folder: Path, finish: Callable[[Path], None] | None = None) -> Specimen:
    """The trail of a kind; a process makes each once, in a place of its own below a folder that the caller deletes."""
    if (name, folder) not in _made:
        _made[name, folder] = make_specimen(name, folder / str(os.getpid()), finish)
    return _made[name, folder]


def make_specimen(name: str, folder: Path, finish: Callable[[Path], None] | None = None) -> Specimen:
    """Write the trail of a kind.

    Args:
        name: of the kind; one that is not in `SPECIMENS` is a trail of the first kind that `finish` changes.
        folder: where to.
        finish: done to the trail before it is harmed.
    """
    scale = SPECIMENS.get(name, next(iter(SPECIMENS.values())))
    if name in SHIPPED:
        from truth.shipped import shipped_specimen

        return shipped_specimen(name, folder, scale, dropped=name == "dropped")
    root, other = folder / f"{name}.made", folder / f"{name}.other"
    for place, seed in ((root, scale.seed), (other, scale.seed + 100)):
        shutil.rmtree(place, ignore_errors=True)
        write_trail(place, Scale(**{**vars(scale), "seed": seed}))
        if finish is not None:
            finish(place)
    facts = facts_of_generated(root)
    patient = Patient(folder / name, _files(root), _files(other))
    for place in (root, other):
        shutil.rmtree(place)
    return Specimen(name, patient, facts, scale.recorder != "exact", aliased=scale.aliases)


def specimen_of_trail(
    trail: Path, root: Path, facts: Mapping[MessageId, Fact], roster: Mapping[Claim, str], *, filters: bool
) -> Specimen:
    """A copy of the trail that a network left."""
    return specimen_of_files(_files(trail), root, facts, roster, filters=filters)


def specimen_of_files(
    files: Mapping[str, bytes],
    root: Path,
    facts: Mapping[MessageId, Fact],
    roster: Mapping[Claim, str],
    *,
    filters: bool,
) -> Specimen:
    """A trail of these files. With no other of the same brokers at hand, its own later files are the strange ones."""
    return Specimen(root.name, Patient(root, files, dict(reversed(list(files.items())))), facts, filters, roster)


def _files(root: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    return {path: data for path, data in found.items() if not path.startswith(f"{TRUTH}/")}


def questions(chance: random.Random, specimen: Specimen, count: int) -> list[MessageId]:
    """Some ids of the trail, and one that never was."""
    known = chance.sample(list(specimen.facts), min(count - 1, len(specimen.facts)))
    return [*known, unsent(chance.choice(known))]
