"""Networks of real processes under faults: what the record says afterwards is what clients saw."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from truth.classifier import Class
from truth.fleet import Forked, Nursery
from truth.scenarios import KINDS, Operation, Scenario, draw_scenario
from truth.specimens import specimen_of_trail
from truth.stage import play

if TYPE_CHECKING:
    from pathlib import Path

    from truth.stage import Played

# One network, two seconds of traffic, and a broker that is killed, cut off and upgraded in them.
SHORT = Scenario(
    kind="storm",
    seed=7,
    shape="line",
    brokers=2,
    seconds=3.0,
    persist=0.3,
    operations=(
        Operation(0.6, "kill", 2),
        Operation(0.8, "start", 2),
        Operation(1.4, "cut", 1, 2),
        Operation(1.7, "join", 1, 2),
        Operation(2.2, "upgrade", 1),
    ),
)


def played(scenario: Scenario, folder: Path) -> Played:
    async def run() -> Played:
        nursery = Nursery()
        await nursery.start()
        try:
            return await play(scenario, nursery, folder, lambda text: None)
        finally:
            await nursery.stop()

    return asyncio.run(run())


def test_harmed_network_tells_no_lie_and_a_planted_one_is_seen(tmp_path: Path) -> None:
    result = played(SHORT, tmp_path / "network")
    assert result.trouble == ""
    lies = [(one.place, one.reply.verdict, one.judgement.why) for one in result.outcomes if is_bad(one.judgement.kind)]
    assert lies == []
    assert result.doubled == []
    assert {one.reply.source for one in result.outcomes} == {"files", "live"}
    assert sum(one.judgement.kind is Class.RIGHT for one in result.outcomes) > 10
    # A reader that got something which the record does not know of: the same answers are lies then.
    got = {one: fact._replace(received=fact.received | {(1, "somebody else")}) for one, fact in result.facts.items()}
    specimen = specimen_of_trail(result.trails[0], tmp_path / "copy", got, result.roster, filters=False)
    planted = [judgement.kind for one, judgement in specimen.ask(got) if got[one].entered]
    assert Class.WRONG in planted


def test_network_that_does_not_start_leaves_no_broker_behind(tmp_path: Path) -> None:
    """The next scenario has the same folder."""
    spoilt = msgspec.structs.replace(SHORT, recorders={"1": "no recorder"})

    async def run() -> tuple[str, list[int]]:
        nursery = Nursery()
        await nursery.start()
        try:
            result = await play(spoilt, nursery, tmp_path / "network", lambda text: None)
            return result.trouble, nursery.running
        finally:
            await nursery.stop()

    trouble, left = asyncio.run(run())
    assert trouble.startswith("RuntimeError: broker 1 did not start: ")
    assert left == []


def test_broker_whose_process_has_the_number_of_one_that_ended_runs() -> None:
    nursery = Nursery()

    def forked() -> Forked:
        nursery.heard({"started": 7})
        return nursery.started.get_nowait()

    first = forked()
    nursery.heard({"ended": 7, "code": -9})
    second = forked()
    assert (first.code, first.runs) == (-9, False)
    assert second.runs
    assert nursery.running == [7]


def is_bad(kind: Class) -> bool:
    return kind in (Class.WRONG, Class.CAUSELESS)


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_scenario_is_the_same_for_the_same_seed_and_survives_json(kind: str) -> None:
    drawn = [draw_scenario(kind, seed) for seed in range(30)]
    assert drawn == [draw_scenario(kind, seed) for seed in range(30)]
    for one in drawn:
        assert msgspec.json.decode(msgspec.json.encode(one), type=Scenario) == one
        assert [operation.at for operation in one.operations] == sorted(operation.at for operation in one.operations)
        assert all(operation.broker <= one.brokers for operation in one.operations)
