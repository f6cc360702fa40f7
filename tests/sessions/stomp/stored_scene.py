"""Clients that talk STOMP to a broker with a small store, in virtual time: its disk is driven by hand."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from postroad.messages import Batch
from postroad.sessions import Dispatcher
from tests.broker.queue_scene import QueueScene
from tests.server.scene import Scene
from tests.store.oracle import commit_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.store import StoreSettings

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

    def fill(self, room: int) -> None:
        """Store a message that nobody takes, so that so much room is left, give or take a few bytes."""
        filler = self.log.open_cursor(FILLER)
        batch = Batch.build([("filler", {}, (), bytes(self.log.room.left - room - 100))])
        self.log.append(batch, [(filler, np.arange(1))], self.clock.now)

    def make_room(self, more: int) -> None:
        """Raise the limit of the store."""
        settings = replace(self.log.settings, max_bytes=self.log.settings.max_bytes + more)
        self.log.settings = self.log.room.settings = settings
