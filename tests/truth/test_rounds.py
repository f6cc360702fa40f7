"""Trails that are harmed: what is done is undone, lies are found and reduced, and the record tells none."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from truth.classifier import Class
from truth.facts import unsent
from truth.findings import Finding, fact_of, plain_fact, read_finding, write_finding
from truth.mutations import KINDS, Mutation, draw
from truth.reduction import reduced
from truth.replay import replay
from truth.rounds import harmed_rounds, wrong_answer
from truth.shipped import close_store
from truth.specimens import SHIPPED, SPECIMENS, Specimen, make_specimen
from truth.tally import Tally

from postroad.tracking import Reconstruction, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 12
# Some seconds' worth; `scripts/truth` does thousands.
ROUNDS = 12
# Of a trail in a store, where each question takes some requests.
STORED_ROUNDS = 2


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    return make_specimen("exact", tmp_path_factory.mktemp("specimens"))


def files_of(specimen: Specimen) -> dict[str, bytes]:
    root = specimen.patient.root
    assert isinstance(root, Path)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_every_kind_of_mutation_is_drawn_does_something_and_is_undone(exact: Specimen) -> None:
    chance = random.Random(SEED)
    effective = set()
    for _ in range(300):
        mutation = draw(chance, exact.patient)
        exact.harm([mutation])
        if files_of(exact) != exact.patient.files:
            effective.add(mutation.kind)
        exact.patient.heal()
        assert files_of(exact) == exact.patient.files
    assert effective == set(KINDS)


def test_untouched_trail_answers_all_that_happened(exact: Specimen) -> None:
    exact.patient.heal()
    kinds = {judgement.kind for _, judgement in exact.ask(exact.facts)}
    assert kinds == {Class.RIGHT}


@pytest.mark.parametrize("name", [name for name in SPECIMENS if name not in SHIPPED])
def test_harmed_trail_tells_no_lie(name: str, tmp_path: Path) -> None:
    result = harmed_rounds(make_specimen(name, tmp_path), random.Random(f"{name} {SEED}"), ROUNDS)
    assert [finding.why for finding in result.findings] == []
    assert result.tally.wrong == result.tally.crashed == 0
    assert result.tally.mutations >= ROUNDS
    assert result.tally.answers[Class.RIGHT] > ROUNDS


@pytest.fixture
def no_store_left() -> Iterator[None]:
    yield
    close_store()


@pytest.mark.usefixtures("no_store_left")
@pytest.mark.parametrize("name", SHIPPED)
def test_trail_that_is_harmed_in_its_store_tells_no_lie(name: str, tmp_path: Path) -> None:
    specimen = make_specimen(name, tmp_path)
    chance = random.Random(f"{name} {SEED}")
    whole = {judgement.kind for _, judgement in specimen.ask(chance.sample(list(specimen.facts), 3))}
    assert whole == {Class.RIGHT}
    result = harmed_rounds(specimen, chance, STORED_ROUNDS)
    assert [finding.why for finding in result.findings] == []
    assert result.tally.wrong == result.tally.crashed == 0
    # What was done was undone.
    assert {path: specimen.patient.read(path) for path in specimen.patient.files} == specimen.patient.files
    # A file of messages that is gone there is not made up for anywhere else.
    specimen.harm([Mutation("remove-folder", "passages")])
    kinds = {judgement.kind for _, judgement in specimen.ask(chance.sample(list(specimen.facts), 2))}
    assert Class.VAGUE in kinds
    assert Class.WRONG not in kinds


@pytest.mark.parametrize("folder", ["manifests", "manifests/broker=1", "manifests/broker=2", "manifests/broker=3"])
def test_manifest_of_another_trail_denies_nothing_with_certainty(exact: Specimen, folder: str) -> None:
    exact.harm([Mutation("foreign-folder", folder)])
    kinds = Counter(judgement.kind for _, judgement in exact.ask(exact.facts))
    exact.patient.heal()
    assert kinds.keys() <= {Class.RIGHT, Class.VAGUE}
    assert kinds[Class.VAGUE]


def test_lie_of_a_reader_is_found_reduced_and_replayed(
    exact: Specimen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A reader that takes a record with a gap for a complete one.
    def careless(self: Reconstruction) -> tuple[Verdict, float]:
        return Verdict.NEVER_ACCEPTED, 1.0

    monkeypatch.setattr(Reconstruction, "_verdict_of_the_origin", careless)
    result = harmed_rounds(exact, random.Random(SEED), 40)
    lies = [finding for finding in result.findings if "never to have been accepted" in finding.why]
    assert lies
    assert result.tally.wrong > 0
    assert len(lies[0].mutations) == 1
    place = write_finding(tmp_path / "findings", lies[0])
    assert replay(place, tmp_path / "again") == 1
    assert "still there" in capsys.readouterr().out
    monkeypatch.undo()
    assert replay(place, tmp_path / "mended") == 0


def test_reader_that_breaks_down_is_found(exact: Specimen, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Reconstruction) -> tuple[Verdict, float]:
        raise OverflowError("no file named")

    monkeypatch.setattr(Reconstruction, "_verdict_of_the_origin", broken)
    result = harmed_rounds(exact, random.Random(SEED), 2)
    assert result.tally.crashed > 0
    assert "OverflowError" in result.findings[0].why
    assert "OverflowError" in wrong_answer(exact, (), unsent(next(iter(exact.facts))))


def test_reduction_keeps_what_is_needed_and_nothing_else() -> None:
    assert reduced(range(20), lambda some: {3, 17} <= set(some)) == [3, 17]
    assert reduced([1, 2, 3], lambda some: True) == []


def test_finding_survives_its_file(tmp_path: Path, exact: Specimen) -> None:
    fact = next(iter(exact.facts.values()))
    finding = Finding(
        why="a reason, and a lie",
        source="files",
        id="00000001-00000001-01a1def28305-0000",
        specimen="trail",
        mutations=(Mutation("flip", "passages/x", "", (3, 1)),),
        fact=plain_fact(fact),
        roster=((2, 5, "ann"),),
    )
    place = write_finding(tmp_path, finding, {"manifests/broker=1/a": b"bytes"})
    read, files = read_finding(place)
    assert read == finding
    assert files == {"manifests/broker=1/a": b"bytes"}
    assert read.fact is not None
    assert fact_of(read.fact).received == fact.received
    assert write_finding(tmp_path, finding) != place


def test_filters_may_err_as_often_as_they_say_and_no_more() -> None:
    tally = Tally()
    for _ in range(1_000):
        tally.count("files", Class.RIGHT, filters=True)
    tally.count("files", Class.CHANCE, filters=True)
    assert tally.wrong == 0
    for _ in range(20):
        tally.count("files", Class.CHANCE, filters=True)
    assert tally.wrong > 0
    assert tally.figures()["vague_after_kill"] is None
