"""A network in virtual time: the same cores and strategies, an event queue instead of sockets."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from postroad.broker import planned_strategy, scheme_of
from postroad.client.send_frames import header_text
from postroad.errors import PostroadError
from postroad.messages import Draft
from postroad.simulation import SimulatedNetwork
from postroad.testing.network_contract import LinkTraffic, NotSettled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from postroad.messages import MessageId, Value
    from postroad.simulation import LinkQuality
    from postroad.topology import Plan

__all__ = ["VirtualNetwork", "as_text"]

STEP_MS = 100
# No network needs longer: the slowest thing that happens by itself is that silence is noticed, a few times in a row.
MOST_MS = 300_000


class VirtualNetwork:
    """`BrokerNetwork` over `SimulatedNetwork`.

    Args:
        plan: the network.
        seed: for the delays of links; the same seed gives the same run.
        quality: how good the links are.
    """

    def __init__(self, plan: Plan, seed: int = 0, quality: LinkQuality | None = None) -> None:
        self._plan = plan
        self.simulated = SimulatedNetwork(
            plan.graph(),
            planned_strategy(plan),
            random.Random(seed),
            quality=quality,
            custody=plan.delivery == "custody",
            scheme=scheme_of(plan.settings),
        )
        self._running = set(plan.graph().brokers)
        self._cut: set[frozenset[int]] = set()
        self._subscribers: dict[str, int] = {}
        self._names = 0
        # The longest pause in which something still comes: an orphan of a tree waits for its parent, then for another.
        self._quiet_ms = 3 * plan.settings.heartbeat_ms * plan.settings.missed_heartbeats

    @property
    def plan(self) -> Plan:
        """What was planned."""
        return self._plan

    @property
    def running(self) -> frozenset[int]:
        """The brokers that run now."""
        return frozenset(self._running)

    async def subscribe(self, broker: int, topic: str, where: str = "", *, name: str | None = None) -> str:
        """A subscriber at a broker; returns its name."""
        self._names += 1
        name = name or f"subscriber-{self._names}"
        self.simulated.subscribe(self._checked(broker), name, topic, where)
        self._subscribers[name] = broker
        return name

    async def unsubscribe(self, name: str) -> None:
        """A subscriber leaves."""
        broker = self._subscribers.pop(name, None)
        if broker is not None:
            self.simulated.unsubscribe(broker, name)

    async def publish(
        self, broker: int, topic: str, attributes: Mapping[str, Value] | None = None, body: bytes | str = b""
    ) -> MessageId:
        """Publish a message at a broker."""
        data = body.encode() if isinstance(body, str) else body
        return (await self.publish_many(broker, [Draft(topic, attributes or {}, body=data)]))[0]

    async def publish_many(self, broker: int, drafts: Iterable[Draft]) -> list[MessageId]:
        """Publish many messages at a broker."""
        return self.simulated.publish(self._checked(broker), [as_text(draft) for draft in drafts])

    def delivered(self, name: str) -> list[MessageId]:
        """What a subscriber got, in order."""
        return list(self.simulated.delivered.get(name, ()))

    async def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.simulated.run(round(seconds * 1_000))

    async def cut(self, one: int, other: int) -> None:
        """The link between two brokers breaks."""
        ends = frozenset((one, other))
        if ends not in self._cut and self.simulated.link(one, other).up:
            self.simulated.cut(one, other)
        self._cut.add(ends)

    async def join(self, one: int, other: int) -> None:
        """A link that was cut works again."""
        ends = frozenset((one, other))
        if ends in self._cut:
            self._cut.remove(ends)
            if ends <= self._running and not self.simulated.link(one, other).up:
                self.simulated.join(one, other)

    async def crash(self, broker: int) -> None:
        """A broker is gone at once."""
        self.simulated.crash(self._checked(broker))
        self._running.remove(broker)
        self._subscribers = {name: at for name, at in self._subscribers.items() if at != broker}

    async def start(self, broker: int) -> None:
        """A broker that crashed starts again."""
        self.simulated.start(broker)
        self._running.add(broker)
        # A simulated broker starts with all its links; those that are cut go down before anything passed over them.
        for ends in self._cut:
            if broker in ends and ends <= self._running:
                self.simulated.cut(*ends)

    async def settled(self) -> None:
        """Let virtual time pass until nothing happens any more."""
        quiet = passed = 0
        last = self._happened()
        while quiet < self._quiet_ms:
            if passed >= MOST_MS:
                raise NotSettled(f"brokers still talk after {MOST_MS // 1_000} s of virtual time without a cause")
            self.simulated.run(STEP_MS)
            passed += STEP_MS
            happened = self._happened()
            quiet = quiet + STEP_MS if happened == last else 0
            last = happened

    def _happened(self) -> tuple[int, ...]:
        ways = self.simulated.links()
        deliveries = sum(map(len, self.simulated.delivered.values()))
        return (deliveries, sum(way.bytes for way in ways.values()), sum(way.up for way in ways.values()))

    def traffic(self) -> dict[tuple[int, int], LinkTraffic]:
        """(from, to) -> what was sent since the beginning."""
        return {
            ends: LinkTraffic(way.messages, way.bytes - way.control_bytes, way.control_bytes)
            for ends, way in self.simulated.links().items()
        }

    def _checked(self, broker: int) -> int:
        if broker not in self._running:
            raise PostroadError(f"broker {broker} does not run; those that do: {sorted(self._running)}")
        return broker


def as_text(draft: Draft) -> Draft:
    """The draft as a client would send it: attributes become header lines."""
    headers = draft.headers.items() if hasattr(draft.headers, "items") else draft.headers
    texts = [(name, header_text(name, value)) for name, value in draft.attributes.items()]
    return draft._replace(attributes={}, headers=[*headers, *texts])
