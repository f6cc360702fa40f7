"""Records of the brokers of a simulated network, and traces over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.tracking import ExactRecorder, Journey, Reconstruction

if TYPE_CHECKING:
    from postroad.messages import MessageId


class Recorders(dict[int, ExactRecorder]):
    """A recorder for each broker; one that begins again goes on with its own."""

    def __call__(self, number: int) -> ExactRecorder:
        if number not in self:
            self[number] = ExactRecorder(number, 0)
        return self[number]


def traced(recorders: dict[int, ExactRecorder], message: MessageId, now: int) -> Journey:
    """What all records say together."""
    question = Reconstruction(message)
    while brokers := question.to_ask():
        for broker in brokers:
            question.tell(broker, recorders[broker].findings(message, now) if broker in recorders else None)
    return question.journey()
