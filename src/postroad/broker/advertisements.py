"""Interests of other brokers on their way into the index: decode, judge, pass on and apply them, step by step.

Theory of operation:

1. An advertisement is stored and passed on only after all of it was decoded, so a bad one stays with the neighbour that
   sent it. It is applied to the index as a whole or not at all.
2. Decoding and applying a hundred thousand rows takes seconds. Both go in steps of a few milliseconds; the driver calls
   `work` between its other duties as long as there is any. Short ones are done at once.
3. The advertisements of each broker have a queue of their own, and queues take turns. So a broker that advertises too
   much or too often delays only its own interest.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from postroad.broker.interests import Advertised
from postroad.errors import PostroadError
from postroad.routing import Delta, Reaction
from postroad.routing.control_frames import MAX_INTEREST_BYTES, Interest
from postroad.routing.link_state_records import RecordVerdict

if TYPE_CHECKING:
    from collections.abc import Generator

    from postroad.broker.interests import Interests
    from postroad.routing import InterestDelta, LinkState

__all__ = ["Advertisements", "Learned"]

# Steps to take at once when an advertisement arrives: up to some hundred rows, about what subscribers change from one
# tick to the next.
STEPS_AT_ONCE = 4
# Limit of the queue of one broker: twice the largest interest, since a new whole replaces everything before it.
MAX_WAITING_FRAMES = 8_192
MAX_WAITING_BYTES = 2 * MAX_INTEREST_BYTES


class Learned(NamedTuple):
    """Result of a step.

    Attributes:
        reaction: what to pass on.
        faults: (link, reason): a neighbour sent an invalid advertisement, which an honest one would not do.
    """

    reaction: Reaction = Reaction()
    faults: tuple[tuple[int, str], ...] = ()


class _WaitingFrame(NamedTuple):
    frame: Interest | InterestDelta | None  # None: the broker is gone
    link: int

    @property
    def number(self) -> tuple[int, int]:
        return (0, 0) if self.frame is None else (self.frame.epoch, self.frame.version)

    @property
    def size(self) -> int:
        if self.frame is None:
            return 0
        return len(self.frame.summary) if isinstance(self.frame, Interest) else sum(map(len, _delta(self.frame)))


class _AdvertisementQueue:
    """The advertisements of one broker, in order."""

    __slots__ = ("current", "size", "steps", "waiting")

    def __init__(self) -> None:
        self.current: _WaitingFrame | None = None
        self.steps: Generator[Learned | None, None, None] | None = None
        self.waiting: deque[_WaitingFrame] = deque()
        self.size = 0

    def put(self, one: _WaitingFrame) -> None:
        if isinstance(one.frame, Interest):
            # A full interest makes all that waits before it obsolete.
            self.clear()
        if self.size + one.size <= MAX_WAITING_BYTES and len(self.waiting) < MAX_WAITING_FRAMES:
            self.waiting.append(one)
            self.size += one.size

    def clear(self) -> None:
        self.waiting.clear()
        self.size = 0

    def holds(self, number: tuple[int, int]) -> bool:
        known = [one.number for one in (self.current, *self.waiting) if one is not None and one.frame is not None]
        return number in known[:1] or number in known[-1:]


class Advertisements:
    """The queues of advertisements, one for each broker.

    Args:
        interests: where advertisements are applied.
        state: judges records, stores them and passes them on.
    """

    def __init__(self, interests: Interests, state: LinkState) -> None:
        self._interests = interests
        self._state = state
        self._queues: dict[int, _AdvertisementQueue] = {}
        self.widened = 0

    @property
    def working(self) -> bool:
        """Return whether there is more to do."""
        return bool(self._queues)

    def receive(self, frame: Interest | InterestDelta, link: int, now: int) -> Learned:
        """Take an advertisement of another broker from a neighbour.

        Raises:
            PostroadError: it is invalid or false.
        """
        if link not in self._state.neighbours:
            return Learned()
        verdict = self._state.judge(frame, link, now)
        if verdict is not RecordVerdict.NEWS:
            return Learned(Reaction(refused=int(verdict is RecordVerdict.REFUSED)))
        queue = self._queues.get(frame.broker)
        if queue is None:
            queue = self._queues[frame.broker] = _AdvertisementQueue()
            queue.put(_WaitingFrame(frame, link))
            return self._take_steps(frame.broker, now)
        if not queue.holds((frame.epoch, frame.version)):
            queue.put(_WaitingFrame(frame, link))
        return Learned()

    def forget(self, broker: int, now: int) -> None:
        """Drop all interests of a broker that is gone or starts again."""
        queue = self._queues.setdefault(broker, _AdvertisementQueue())
        if queue.steps is not None:
            queue.steps.close()
        queue.current = queue.steps = None
        queue.clear()
        queue.waiting.append(_WaitingFrame(None, 0))
        self._take_steps(broker, now)

    def work(self, now: int) -> Learned:
        """Do one step of the queue whose turn it is."""
        if not self._queues:
            return Learned()
        broker = next(iter(self._queues))
        queue = self._queues.pop(broker)
        self._queues[broker] = queue
        one = queue.current or (queue.waiting[0] if queue.waiting else None)
        try:
            return self._step(broker, queue, now) or Learned()
        except PostroadError as error:
            return Learned(faults=((0 if one is None else one.link, str(error)),))

    def _take_steps(self, broker: int, now: int) -> Learned:
        reaction = Reaction()
        for _ in range(STEPS_AT_ONCE):
            queue = self._queues.get(broker)
            if queue is None:
                break
            learned = self._step(broker, queue, now)
            if learned is not None:
                reaction += learned.reaction
        return Learned(reaction)

    def _step(self, broker: int, queue: _AdvertisementQueue, now: int) -> Learned | None:
        """Do one step of a queue; remove an empty queue, and continue after an advertisement that failed."""
        if queue.steps is None:
            if not queue.waiting:
                del self._queues[broker]
                return None
            queue.current = queue.waiting.popleft()
            queue.size -= queue.current.size
            queue.steps = self._learning(broker, queue.current, now)
        try:
            learned = next(queue.steps)
        except StopIteration:
            learned = None
            self._done(broker, queue)
        except PostroadError:
            self._done(broker, queue)
            raise
        return learned

    def _done(self, broker: int, queue: _AdvertisementQueue) -> None:
        queue.steps = queue.current = None
        if not queue.waiting:
            del self._queues[broker]

    def _learning(self, broker: int, one: _WaitingFrame, now: int) -> Generator[Learned | None, None, None]:
        frame, link = one
        if frame is None:
            yield from self._interests.apply(broker, Advertised(None, None))
            return
        # It may have been news when it was queued, and be outdated by now.
        if self._state.judge(frame, link, now) is not RecordVerdict.NEWS:
            return
        advertised = yield from self._interests.read(frame.summary if isinstance(frame, Interest) else _delta(frame))
        reaction = self._state.take(frame, link, now)
        yield Learned(reaction._replace(interests=[]))
        if reaction.interests:
            yield from self._apply(broker, advertised)

    def _apply(self, broker: int, advertised: Advertised) -> Generator[None, None, None]:
        try:
            yield from self._interests.apply(broker, advertised)
        except PostroadError:
            # The index has no room. No subscriber may miss a message because of that, so the broker gets everything.
            self.widened += 1
            yield from self._interests.apply(broker, self._interests.everything())


def _delta(frame: InterestDelta) -> Delta:
    return Delta(frame.added, frame.removed)
