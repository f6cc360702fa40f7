"""Networks of brokers that match one message in a turn, or that lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker.channel_items import Put
from postroad.matching import NO_BUDGET
from postroad.messages import Batch, Draft
from postroad.store import rows_payload
from tests.broker.durable_network import TOPIC, DurableMob, DurableNetwork

if TYPE_CHECKING:
    from postroad.broker import Outbox
    from postroad.broker.channel_items import Item


class SlowNetwork(DurableNetwork):
    """Brokers that match one message in a turn, and have as many turns as they are given."""

    turns = 0

    def start(self, number: int) -> None:
        super().start(number)
        self.brokers[number].core.turn_budget = 1

    def send(self, number: int, count: int = 1, size: int = 0) -> Outbox:
        core = self.brokers[number].core
        core.turn_budget = NO_BUDGET
        outbox = super().send(number, count, size)
        core.turn_budget = 1
        return outbox

    def finish(self, number: int) -> None:
        broker = self.brokers[number]
        for _ in range(self.turns):
            if broker.core.unfinished:
                self.carry_out(number, broker.core.proceed(self.now))


class SlowMob(SlowNetwork, DurableMob):
    """Uses such brokers at random."""

    turns = 2

    def end(self) -> None:
        self.turns = 100
        super().end()


class LyingNetwork(SlowNetwork):
    """Broker 1 can say anything to broker 2."""

    def faults_of(self, *said: Item) -> list[str]:
        liar, other = self.brokers[1], self.brokers[2]
        for item in said:
            liar.peers.send(2, item)
        found = []
        for _, data in liar.peers.take_packets(self.now):
            outbox, fault = other.peers.receive(data, self.now)
            self.carry_out(2, outbox)
            found.append(fault)
        return [each for each in found if each]


def put_of(network: DurableNetwork, number: int, count: int = 3) -> Put:
    """Messages of broker 1, under some number."""
    core = network.brokers[1].core
    batch = Batch.build([Draft(TOPIC, {"kind": 1}, (), b"1") for _ in range(count)])
    core.receive(batch, network.brokers[1].writer, network.now)
    return Put(number, 0, "", "", False, rows_payload(batch))
