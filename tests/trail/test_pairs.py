"""Two manifests of a broker harmed at once: each answer is the right one, or says that something is missing.

What one manifest would show of another's damage may be damaged itself: a checkpoint and a change that it sums up, a
change and the one that names its checksum. So all pairs are tried, with every recorder.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest
from truth.classifier import Class
from truth.mutations import Mutation
from truth.specimens import Specimen, make_specimen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANIFESTS = "manifests/broker=1/"
# With POSTROAD_THOROUGH=1 every pair of every recorder. Otherwise of `sealed`, whose filters need to know who was
# subscribed, and of the others some.
IS_THOROUGH = os.environ.get("POSTROAD_THOROUGH") == "1"
STRIDE = {"exact": 5, "sealed": 1, "bloom": 5}


def harms(specimen: Specimen, path: str) -> list[Mutation]:
    """What may happen to a manifest: a wrong bit, loss, another trail's in its place, another of this one's."""
    files = specimen.patient.files
    alike = sorted(one for one in files if one.startswith(MANIFESTS) and _kind(one) == _kind(path))
    before = alike[alike.index(path) - 1]
    found = [Mutation("flip", path, "", (len(files[path]) // 2, 0)), Mutation("remove", path)]
    found += [Mutation("foreign", path, path)] if path in specimen.patient.donor else []
    return found + ([Mutation("repeat", before, path)] if before != path else [])


def _kind(path: str) -> str:
    return path.partition(".")[2] + str(path.count("/"))


def target(harm: Mutation) -> str:
    return harm.other if harm.kind == "repeat" else harm.path


def pairs(specimen: Specimen) -> Iterator[tuple[Mutation, ...]]:
    """Every harm of a manifest by itself, and with every harm of every other."""
    every = [harm for path in specimen.patient.files if path.startswith(MANIFESTS) for harm in harms(specimen, path)]
    yield from ((harm,) for harm in every)
    yield from (pair for pair in itertools.combinations(every, 2) if target(pair[0]) != target(pair[1]))


@pytest.mark.parametrize("recorder", STRIDE)
def test_two_harmed_manifests_never_make_an_answer_wrong(tmp_path: Path, recorder: str) -> None:
    specimen = make_specimen(recorder, tmp_path)
    passed = [one for one, fact in specimen.facts.items() if fact.passed is not None and 1 in fact.passed]
    asked = itertools.cycle(passed)
    vague = 0
    for harmed in itertools.islice(pairs(specimen), 0, None, 1 if IS_THOROUGH else STRIDE[recorder]):
        specimen.harm(harmed)
        for message, judgement in specimen.ask([next(asked)]):
            assert judgement.kind not in (Class.WRONG, Class.CAUSELESS), (*map(str, harmed), message, judgement.why)
            vague += judgement.kind is Class.VAGUE
    assert vague
