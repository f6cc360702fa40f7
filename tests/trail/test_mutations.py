"""Whatever happens to the files of a good trail: each answer is the right one, or says that something is missing."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from postroad.messages import MessageId
from postroad.trail import Trail
from tests.trail.mutations import Known, good_trail, harmed

if TYPE_CHECKING:
    from pathlib import Path

# More with POSTROAD_THOROUGH=1, and others each time.
IS_THOROUGH = os.environ.get("POSTROAD_THOROUGH") == "1"
MUTATIONS = 1_000 if IS_THOROUGH else 60
QUESTIONS = 4
# Each trace takes some milliseconds.
ASKED = 24


def asked_of(ids: list[MessageId]) -> list[MessageId]:
    """Some of the messages, and as many that never were."""
    some = random.Random(1).sample(ids, ASKED)
    return [*some, *(MessageId(one.publisher, one.broker, one.time, 50_000 + place) for place, one in enumerate(some))]


@pytest.mark.parametrize("recorder", ["exact", "sealed"])
def test_a_trace_of_a_harmed_trail_is_right_or_says_what_is_missing(tmp_path: Path, recorder: str) -> None:
    root = tmp_path / "trail"
    ids = good_trail(root, recorder)
    asked = asked_of(ids)
    truth = {one: Known.of(Trail(root).trace(one).journey) for one in asked}
    assert len({known.verdict for known in truth.values()}) >= 4
    chance = random.Random() if IS_THOROUGH else random.Random(recorder)
    noticed = 0
    for _ in range(MUTATIONS):
        harm = harmed(root, chance)
        try:
            for one in chance.sample(asked, QUESTIONS):
                trail = Trail(root)
                journey = trail.trace(one).journey
                told = Known.of(journey)
                if told == truth[one]:
                    continue
                noticed += 1
                assert told.is_honest(truth[one]), (harm.what, str(harm.path), one, truth[one], told)
                assert journey.gaps or journey.silent, (harm.what, str(harm.path), one)
                assert trail.warnings or journey.silent, (harm.what, str(harm.path), one)
            places = chance.sample(range(len(ids)), 2)
            for place in places:
                trail = Trail(root)
                found = trail.aliased(f"alias-{place}")
                assert found == [ids[place]] or (not found and trail.may_hide()), (harm.what, harm.path)
        finally:
            harm.undo()
    assert noticed
    assert Trail(root).may_hide() == []
