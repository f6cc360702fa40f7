"""Clients that talk STOMP to a broker with a small store, in virtual time: its disk is driven by hand."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from postroad.messages import Batch
from postroad.sessions import Dispatcher
from postroad.store import RetainedTopic, StoreSettings
from tests.broker.queue_scene import QueueScene
from tests.server.scene import Scene
from tests.store.oracle import commit_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.server.scene import Talker

# A store of 100,000 bytes that keeps 1,000 free for acknowledgements.
SETTINGS = StoreSettings(segment_bytes=50_000, max_bytes=100_000, retain=[RetainedTopic(topic="kept.>")])
BODY = bytes(100)

# The cursor of what fills the store.
FILLER = 1_000_000


class StoredScene(Scene):
    """A dispatcher whose receipts wait for a store; `finish` lets turns and disk do all that there is to do."""

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__()
        self.stored = QueueScene(store=settings)
        self.core, self.log, self.disk = self.stored.core, self.stored.log, self.stored.disk
        self.turns: deque[Callable[[], None]] = deque()
        self._waiting: list[tuple[int, Callable[[str], None]]] = []
        self.dispatcher = Dispatcher(self.core, self.clock, self.clock)
        self.dispatcher.store = self
        self.dispatcher.soon = self.turns.append

    @property
    def mark(self) -> int:
        return self.log.touches

    def when_safe(self, action: Callable[[str], None]) -> None:
        self._waiting.append((self.log.position, action))

    def finish(self) -> None:
        """Until nothing is left to do."""
        while self.turns or self.log.has_work or self._waiting:
            while self.turns:
                self.turns.popleft()()
            commit_all(self.log, self.disk, self.clock.now)
            self.dispatcher.carry_out(self.core.stored(self.clock.now))
            safe = [each for each in self._waiting if each[0] <= self.log.safe]
            self._waiting = [each for each in self._waiting if each not in safe]
            for _, action in safe:
                action("")

    def fail(self, reason: str) -> None:
        """Give up what waits for the store."""
        waiting, self._waiting = self._waiting, []
        for _, action in waiting:
            action(reason)

    def fill(self, room: int) -> None:
        """Store a message that nobody takes, so that so much room is left, give or take a few bytes."""
        filler = self.log.open_cursor(FILLER)
        batch = Batch.build([("filler", {}, (), bytes(self.log.room.left - room - 100))])
        self.log.append(batch, [(filler, np.arange(1))], self.clock.now)

    def make_room(self, more: int) -> None:
        """Raise the limit of the store."""
        settings = replace(self.log.settings, max_bytes=self.log.settings.max_bytes + more)
        self.log.settings = self.log.room.settings = settings


def consumer(scene: StoredScene) -> tuple[Talker, dict[str, str]]:
    """A client that has a message of a queue, and the headers of an ACK of it in the transaction `t`."""
    talker = scene.client()
    talker.say("SUBSCRIBE", {"id": "s", "destination": "/queue/in", "ack": "client-individual"})
    talker.say("SEND", {"destination": "/queue/in"}, b"job")
    scene.finish()
    (message,) = talker.heard()
    talker.say("BEGIN", {"transaction": "t"})
    return talker, {"id": message.headers["ack"], "transaction": "t"}


def durable(scene: StoredScene, topic: str) -> None:
    """A durable subscription that nobody has at the moment."""
    talker = scene.client(**{"client-id": "c"})
    talker.say("SUBSCRIBE", {"id": "d", "destination": f"/topic/{topic}", "durable-subscription-name": "d"})
    scene.finish()
    talker.conversation.lost("gone")


def commit_in_turns() -> tuple[StoredScene, Talker]:
    """A client that has committed messages for a durable subscription, one a turn, and an ACK with them."""
    scene = StoredScene(SETTINGS)
    durable(scene, "orders")
    talker, ack = consumer(scene)
    scene.core.turn_budget = 1
    for _ in range(20):
        talker.say("SEND", {"destination": "/topic/orders", "transaction": "t"}, BODY)
    talker.say("ACK", ack)
    talker.say("COMMIT", {"transaction": "t", "receipt": "done"})
    return scene, talker
