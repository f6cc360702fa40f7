"""The contract of a network in a test, in virtual or in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from postroad.messages import Draft, MessageId, Value
    from postroad.topology import Plan

__all__ = ["BrokerNetwork", "LinkTraffic", "NotSettled"]


class NotSettled(PostroadError):
    """A network did not come to rest in a time in which every network should."""


class LinkTraffic(NamedTuple):
    """What one broker has sent another so far.

    Attributes:
        messages: how many; one that goes over several links counts on each.
        data_bytes: bytes of frames with messages.
        control_bytes: bytes that brokers tell each other about links and subscriptions.
        other_bytes: handshakes, confirmations and heart-beats; 0 in virtual time, where links do without.
    """

    messages: int = 0
    data_bytes: int = 0
    control_bytes: int = 0
    other_bytes: int = 0

    def minus(self, earlier: LinkTraffic) -> LinkTraffic:
        """What came since."""
        return LinkTraffic(*(now - then for now, then in zip(self, earlier, strict=True)))


class BrokerNetwork(Protocol):
    """A network of brokers in this process, with publishers and subscribers at any of them.

    Attributes are text on the way, as STOMP has it: selectors take numbers for numbers. A name stands for one
    subscriber. What a broker's crash takes along (its subscribers, for one) is gone; `start` begins again.
    """

    @property
    def plan(self) -> Plan:
        """What was planned."""

    @property
    def running(self) -> frozenset[int]:
        """The brokers that run now."""

    async def subscribe(self, broker: int, topic: str, where: str = "", *, name: str | None = None) -> str:
        """A subscriber at a broker; returns its name. Other brokers hear of it a little later: see `settled`."""

    async def unsubscribe(self, name: str) -> None:
        """A subscriber leaves; what it got can still be seen."""

    async def publish(
        self, broker: int, topic: str, attributes: Mapping[str, Value] | None = None, body: bytes | str = b""
    ) -> MessageId:
        """Publish a message at a broker; it is accepted when this returns, not delivered yet."""

    async def publish_many(self, broker: int, drafts: Iterable[Draft]) -> list[MessageId]:
        """Publish many messages at a broker."""

    def delivered(self, name: str) -> list[MessageId]:
        """What a subscriber got, in order."""

    async def run(self, seconds: float) -> None:
        """Let time pass: in virtual time at once, in real time as long as it takes."""

    async def cut(self, one: int, other: int) -> None:
        """The link between two brokers breaks, and stays so until `join`."""

    async def join(self, one: int, other: int) -> None:
        """A link that was cut works again."""

    async def crash(self, broker: int) -> None:
        """Kill a broker: it is gone at once, with its clients and all it held in memory."""

    async def start(self, broker: int) -> None:
        """A broker that crashed starts again."""

    async def settled(self) -> None:
        """Wait until nothing happens any more: links that can be up are up, subscriptions are known, queues are empty.

        Raises:
            NotSettled: it does not come to rest.
        """

    def traffic(self) -> dict[tuple[int, int], LinkTraffic]:
        """(from, to) -> what was sent since the beginning."""
