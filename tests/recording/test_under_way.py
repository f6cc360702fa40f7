"""A message that went to another broker long after the time in its id is not called lost while it may be under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from postroad.messages import Batch, MessageId
from postroad.recording import LiveRecord
from postroad.recording import record as record_module
from postroad.recording import writer as writer_module
from postroad.tracking import ExactRecorder, Reconstruction, Verdict
from postroad.tracking.reasons import Detour
from postroad.trail.coverage import GapReason
from tests.server.scene import run

if TYPE_CHECKING:
    from pathlib import Path

    from postroad.tracking import Journey

NOON = 1_800_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND


@pytest.fixture(autouse=True)
def nothing_happens_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "LOOK_SECONDS", 3_600)
    monkeypatch.setattr(record_module, "UPKEEP_SECONDS", 3_600)


class Linked:
    """Brokers that are linked, by their records: 4 sends a message, and 5 never gets it."""

    def __init__(self, root: Path, numbers: tuple[int, ...] = (4, 5)) -> None:
        self.now = NOON
        self.recorders = {number: ExactRecorder(number, NOON, MINUTE) for number in numbers}
        self.records = {
            number: LiveRecord(recorder, root / str(number), number, lambda: self.now, 1 << 20)
            for number, recorder in self.recorders.items()
        }
        self.batch = Batch.build([("quotes", {}, {}, b"1")])
        self.message = MessageId(7, numbers[0], NOON, 1)
        self.batch.ids[0] = self.message.head, self.message.tail

    async def start(self) -> None:
        for number, record in self.records.items():
            await record.start()
            for other in self.records.keys() - {number}:
                self.recorders[number].linked(other, 1, self.now)

    async def stop(self) -> None:
        for record in self.records.values():
            await record.stop()

    async def trace(self) -> Journey:
        question = Reconstruction(self.message)
        while asked := question.to_ask():
            for broker in asked:
                question.tell(broker, (await self.records[broker].answer(self.message)).findings)
        return question.journey()


@pytest.mark.parametrize("is_queue", [False, True], ids=["kept for want of a route", "in a queue of the sender"])
def test_message_that_was_sent_on_after_an_hour_is_not_lost_while_it_may_be_under_way(
    tmp_path: Path, is_queue: bool
) -> None:
    async def talk() -> None:
        brokers, rows = Linked(tmp_path), np.arange(1)
        await brokers.start()
        sender, batch = brokers.recorders[4], brokers.batch
        sender.accepted(batch, brokers.now)
        if is_queue:
            sender.queued(batch, rows, 3, brokers.now)
        else:
            sender.dropped(batch, rows, -1, Detour.HELD, brokers.now)
        brokers.now += 60 * MINUTE
        if is_queue:
            sender.delivered(batch, rows, 3, brokers.now)
            sender.dropped(batch, rows, 0, Detour.DELIVERED_LATE, brokers.now)
        else:
            sender.dropped(batch, rows, -1, Detour.SENT_ON, brokers.now)
        sender.relayed(batch, rows, 5, brokers.now)
        brokers.now += 10 * SECOND
        journey = await brokers.trace()
        assert (journey.verdict, journey.certainty, journey.lost) == (Verdict.RECORDED_IN_PART, 0.0, ())
        assert [gap.reason for _, gap in journey.gaps] == [GapReason.SENT_LATELY]
        # The sender has noticed by now that the other one does not answer, and would have taken it back.
        brokers.now += 10 * SECOND
        assert (await brokers.trace()).verdict is Verdict.LOST_AFTER_HOP
        await brokers.stop()

    run(talk)


def test_message_that_waited_elsewhere_is_not_lost_after_a_queue_gave_it_to_a_consumer_of_another_broker(
    tmp_path: Path,
) -> None:
    """When the queue had waited for less than a minute, nothing says when it gave the message: only that it had it."""

    async def talk() -> None:
        brokers, rows = Linked(tmp_path, (3, 4, 5)), np.arange(1)
        await brokers.start()
        entry, home, batch = brokers.recorders[3], brokers.recorders[4], brokers.batch
        entry.accepted(batch, brokers.now)
        entry.dropped(batch, rows, 4, Detour.HELD, brokers.now)
        brokers.now += 60 * MINUTE
        entry.relayed(batch, rows, 4, brokers.now)
        home.arrived(batch, 3, brokers.now)
        home.queued(batch, rows, 8, brokers.now)
        entry.dropped(batch, rows, 4, Detour.SENT_ON, brokers.now)
        home.delivered(batch, rows, 8, brokers.now)
        home.relayed(batch, rows, 5, brokers.now)
        brokers.now += 10 * SECOND
        journey = await brokers.trace()
        assert (journey.verdict, journey.certainty, journey.lost) == (Verdict.RECORDED_IN_PART, 0.0, ())
        assert [gap.reason for _, gap in journey.gaps] == [GapReason.SENT_LATELY]
        consumer = brokers.recorders[5]
        consumer.arrived(batch, 4, brokers.now)
        consumer.delivered(batch, rows, 1, brokers.now)
        journey = await brokers.trace()
        assert (journey.verdict, journey.certainty) == (Verdict.DELIVERED, 1.0)
        await brokers.stop()

    run(talk)
