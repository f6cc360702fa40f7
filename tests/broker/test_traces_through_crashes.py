"""What traces say with certainty about messages of queues holds, whatever crashes undo in the stores.

Records are complete but for the moment of a crash: so they know of things that the store of a crashed broker has lost.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest

from postroad.messages import MessageId
from postroad.tracking import Gap, Reconstruction, Verdict
from tests.broker.queue_network import QUEUE, SETTINGS, QueueMob
from tests.broker.queue_records import Recorders

if TYPE_CHECKING:
    from postroad.broker import Subscription
    from postroad.messages import Message
    from postroad.tracking import Journey

SEEDS = range(300) if os.environ.get("POSTROAD_THOROUGH") else range(12)
GIVEN_UP = (Verdict.SHED, Verdict.DROPPED)
UNKNOWN_OF = (Verdict.NEVER_ACCEPTED, Verdict.MATCHED_NOBODY, Verdict.LOST_AFTER_HOP)


class Claim(NamedTuple):
    """What a trace said with certainty, and when."""

    body: int
    verdict: Verdict
    at: int


class TracedMob(QueueMob):
    """Some messages become dead letters, operators purge the queue, and brokers stop on purpose or crash."""

    def __init__(self, seed: int) -> None:
        self.recorders = Recorders()
        self.crashed: dict[int, list[int]] = {}
        self.gaps: dict[int, list[Gap]] = {}
        self.last_handed: dict[int, int] = {}
        self.claims: list[Claim] = []
        self.purged = 0
        settings = msgspec.structs.replace(SETTINGS, max_deliveries=3)
        super().__init__(seed, settings=settings, recorder=self.recorders)

    def act(self) -> None:
        chance = self.random.random()
        if chance < 0.01:
            self._purge()
        elif chance < 0.015 and (number := self._any()):
            self.stop(number)
        else:
            super().act()

    def _purge(self) -> None:
        home = self.brokers.get(self.home)
        if home is not None and home.core.queues is not None and (queue := home.core.queues.find(QUEUE)) is not None:
            self.purged += home.core.queues.purge(queue, "purged by carla")
            # It is given up, and nothing of that is written.
            self.carry_out(self.home, home.core.stored(self.now))

    def crash(self, number: int, power: bool = True) -> None:
        super().crash(number, power)
        self.crashed.setdefault(number, []).append(self.now)

    def start(self, number: int) -> None:
        super().start(number)
        for at in self.crashed.pop(number, []):
            self.gaps.setdefault(number, []).append(Gap(at, self.now, "crashed"))

    def _note(self, subscription: Subscription, message: Message) -> None:
        self.last_handed[int(message.body)] = self.now
        super()._note(subscription, message)

    def trace(self, body: int) -> Journey:
        message = MessageId.of(*self.ids[body])
        question = Reconstruction(message)
        while brokers := question.to_ask():
            for broker in brokers:
                found = self.recorders[broker].findings(message, self.now)
                ends = tuple(gap for gap in self.gaps.get(broker, ()) if gap.until > message.time)
                question.tell(broker, found._replace(ends=ends))
        return question.journey()

    def claim(self) -> None:
        """Ask about all that was confirmed."""
        for body in self.confirmed:
            journey = self.trace(body)
            if journey.certainty:
                self.claims.append(Claim(body, journey.verdict, self.now))

    def lies(self) -> list[Claim]:
        """Claims that something was given up which was handed out later, or which was there and is said not to be."""
        return [
            claim
            for claim in self.claims
            if claim.verdict in UNKNOWN_OF
            or (claim.verdict in GIVEN_UP and self.last_handed.get(claim.body, 0) > claim.at)
        ]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_is_said_to_be_given_up_or_lost_is_handed_out_later(seed: int) -> None:
    mob = TracedMob(seed)
    mob.loss = [0.0, 0.1, 0.3][seed % 3]
    for _ in range(8):
        for _ in range(50):
            mob.act()
        mob.claim()
    # What is under way may look lost as long as nobody says how late it is (`recording.record`).
    mob.claims = [claim for claim in mob.claims if claim.verdict is not Verdict.LOST_AFTER_HOP]
    mob.end()
    mob.claim()
    assert mob.lies() == []
    assert mob.confirmed
    last = [claim for claim in mob.claims if claim.at == mob.now]
    assert {claim.body for claim in last if claim.verdict is Verdict.WAITING} == set()


def test_mob_purges_and_gives_up_messages() -> None:
    """The test above would pass in a world where nothing is given up."""
    mobs = [TracedMob(seed) for seed in range(6)]
    for mob in mobs:
        for _ in range(300):
            mob.act()
        mob.mend()
        mob.claim()
    assert sum(mob.purged for mob in mobs) > 10
    assert sum(claim.verdict is Verdict.SHED for mob in mobs for claim in mob.claims) > 10
