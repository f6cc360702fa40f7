"""Queues and durable subscriptions across brokers, over channels: how each broker uses and serves the others.

A channel is a sequence of datagrams, each for one broker. Brokers between the two relay it by their routes
(`server.links`). Whatever is under way when a broker dies or a route ends is sent again; what must not be lost
meanwhile is in a store at one of the two ends.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from postroad.broker.channel_items import (
    Answered,
    ChannelError,
    Consume,
    ConsumerAnswer,
    ConsumerDelivery,
    Dismiss,
    Forget,
    Informed,
    Leave,
    Put,
    PutRefused,
    StandingPart,
    Stored,
    decode_item,
    encode_item,
)
from postroad.broker.channels import Channel, Datagram
from postroad.broker.confirmations import CONFIRM_MS, Confirmations
from postroad.broker.guest_consumers import GuestConsumers
from postroad.broker.outbox import Outbox
from postroad.broker.outgoing_queues import OutgoingQueues
from postroad.broker.receptions import Receptions
from postroad.broker.remote_consumers import RemoteConsumers
from postroad.broker.remote_durables import RemoteDurables
from postroad.broker.standing_interest import StandingInterest

if TYPE_CHECKING:
    from postroad.broker.channel_items import Item
    from postroad.broker.core import Broker
    from postroad.broker.deliveries import Deliveries
    from postroad.broker.sessions import Session

__all__ = ["HEAD_BYTES", "PacketHead", "Peers", "packet", "passed_on", "read_packet"]

# Longer than any route through a network of a thousand brokers; a packet that travels further is in a loop.
MAX_HOPS = 64
# The head of a packet: the broker that sends it, its destination, and how many hops are left.
_HEAD = struct.Struct("<QQB")
HEAD_BYTES = _HEAD.size
# Session numbers: the time when this process began, with a count in the low bits.
_SESSION_BITS = 20

_DATAGRAMS = msgspec.msgpack.Decoder(Datagram)


class PacketHead(NamedTuple):
    """Where a packet comes from, where it goes, and how many brokers may still relay it."""

    source: int
    target: int
    hops: int


def packet(source: int, target: int, datagram: Datagram) -> bytes:
    """Return a datagram as it travels."""
    return _HEAD.pack(source, target, MAX_HOPS) + msgspec.msgpack.encode(datagram)


def read_packet(data: bytes) -> PacketHead:
    """Return where a packet comes from and where it goes.

    Raises:
        ChannelError: it is too short for a packet.
    """
    if len(data) < HEAD_BYTES:
        raise ChannelError(f"a packet of {len(data)} bytes is too short: it begins with {HEAD_BYTES} bytes of its own")
    return PacketHead(*_HEAD.unpack_from(data))


def passed_on(data: bytes) -> bytes:
    """Return a packet for another broker, with one hop less."""
    source, target, hops = _HEAD.unpack_from(data)
    return _HEAD.pack(source, target, hops - 1) + data[HEAD_BYTES:]


class Peers:
    """The channels of a broker, and who uses them.

    Args:
        core: the broker.
        deliveries: delivers messages to clients.
        epoch: when this process began, in ms.

    Attributes:
        outgoing: messages for queues and durable subscriptions of others.
        receptions: messages of others for queues and durable subscriptions here.
        remote_durables: what durable subscriptions of others want.
        standing: what durable subscriptions here want, so that others put it here; None if the plan does not list the
            brokers of the network. Then messages for durable subscriptions come over links.
        consumers: clients here of queues of others.
        guests: clients of others of queues here.
        has_packets: there may be packets to take.
    """

    def __init__(self, core: Broker, deliveries: Deliveries, epoch: int) -> None:
        assert deliveries.stored is not None
        self._core = core
        self._channels: dict[int, Channel] = {}
        self._number = epoch << _SESSION_BITS
        self._events: list[tuple[int, bool]] = []
        # Those that wait for other brokers, in the order in which they began to.
        self._sessions: dict[Session, None] = {}
        self.has_packets = False
        self.outgoing = OutgoingQueues(core, deliveries.stored, self)
        self.receptions = Receptions(core, deliveries, self)
        self.consumers = RemoteConsumers(core, deliveries, self)
        self.guests = GuestConsumers(core, self)
        self.remote_durables = RemoteDurables(core, deliveries.stored, self)
        self.standing = StandingInterest(core, deliveries.stored.log, self, epoch) if core.homes.brokers else None

    def restore(self, now: int) -> None:
        """Restore what an earlier process left."""
        if self.standing is not None:
            assert self._core.durables is not None
            self.standing.restore(self._core.durables.formers.latest)
        self.outgoing.restore()
        self.remote_durables.restore()
        self.receptions.restore()
        for queue in (*self.outgoing.listed(), *self.outgoing.for_durables()):
            if queue.home != self._core.number:
                # Also if nothing waits: the home does not know yet that nothing is in doubt.
                self.want(queue.home, now)
            self.outgoing.pump(queue, now)

    def greet(self, now: int) -> None:
        """Ask all other brokers what their durable subscriptions want, even if they do not say it by themselves."""
        for broker in self._core.homes.brokers - {self._core.number}:
            self.want(broker, now)

    @property
    def is_informed(self) -> bool:
        """Return whether all brokers that can be reached have said what their durable subscriptions want."""
        relay = self._core.relay
        others = self._core.homes.brokers - {self._core.number} - self.remote_durables.heard
        return relay is None or not any(relay.next_hop(each) for each in others)

    # --- channels ----------------------------------------------------------------------------------------------------

    def _take_number(self) -> int:
        self._number += 1
        return self._number

    def _channel(self, peer: int) -> Channel:
        channel = self._channels.get(peer)
        if channel is None:
            channel = self._channels[peer] = Channel(
                self._take_number,
                lambda: self._events.append((peer, True)),
                lambda: self._events.append((peer, False)),
            )
        return channel

    def time(self, now: int) -> int:
        """Return the time in ms for time-outs, which only goes forward if the driver has such a clock."""
        return now if self._core.timer is None else self._core.timer()

    def want(self, peer: int, now: int) -> None:
        """Ask for a channel to another broker."""
        channel = self._channel(peer)
        channel.is_wanted = self.has_packets = True
        channel.tick(self.time(now))

    def is_open(self, peer: int) -> bool:
        """Return whether something can be sent to a broker."""
        channel = self._channels.get(peer)
        return channel is not None and channel.is_open

    def is_down(self, peer: int, now: int) -> bool:
        """Return whether a broker has been silent for so long that nobody should wait for it."""
        channel = self._channels.get(peer)
        since = None if channel is None else channel.closed_since
        return since is not None and self.time(now) - since >= CONFIRM_MS

    def backlog(self, peer: int) -> int:
        """Return how many bytes wait to be sent to a broker, or to be confirmed by it."""
        return self._channel(peer).backlog_bytes

    def send(self, peer: int, item: Item) -> None:
        """Send an item to a broker; dropped if there is no channel, since a new channel starts from the beginning."""
        channel = self._channels.get(peer)
        if channel is not None and channel.is_open:
            channel.send(encode_item(item))
            self.has_packets = True

    def confirmations(self, session: Session) -> Confirmations:
        """Return what a session waits for at other brokers."""
        if session.confirmations is None:
            session.confirmations = Confirmations()
        self._sessions[session] = None
        return session.confirmations

    # --- what comes, and what goes -----------------------------------------------------------------------------------

    def receive(self, data: bytes, now: int) -> tuple[Outbox, str]:
        """Take a packet for this broker; return what to do, and what was wrong with it, if anything."""
        outbox, source = Outbox(), read_packet(data).source
        try:
            datagram = _DATAGRAMS.decode(memoryview(data)[HEAD_BYTES:])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return outbox, f"a packet of broker {source} is not valid: {error}"
        if source == self._core.number or not self.receptions.is_ready(source):
            return outbox, ""
        channel = self._channel(source)
        received = channel.receive(datagram, self.time(now))
        self.has_packets = True
        self._tell(outbox, now)
        try:
            for item in received:
                self._act(source, decode_item(item), outbox, now)
            self.guests.offer(outbox, now)
        except ChannelError as error:
            # What follows it cannot be believed either.
            channel.lose()
            self._tell(outbox, now)
            self.guests.offer(outbox, now)
            return outbox, str(error)
        return outbox, ""

    def _act(self, source: int, item: Item, outbox: Outbox, now: int) -> None:
        match item:
            case Put():
                self.receptions.put(source, item, outbox, now)
            case Forget():
                self.receptions.forget(source, item.number)
            case Stored():
                self.outgoing.stored_there(source, item, now)
            case PutRefused():
                self.outgoing.refused_there(source, item, now)
            case Consume():
                self.guests.consume(source, item, now)
            case Leave():
                self.guests.leave(source, item.consumer, outbox, now)
            case ConsumerAnswer():
                self.guests.answer(source, item, outbox, now)
            case ConsumerDelivery():
                self.consumers.deliver(source, item, outbox, now)
            case Answered():
                self.consumers.answered(source, item)
            case Dismiss():
                self.consumers.dismissed(source, item, outbox)
            case StandingPart():
                self.remote_durables.learn(source, item)
            case Informed():
                if self.standing is not None:
                    self.standing.informed(source, item)

    def _tell(self, outbox: Outbox, now: int) -> None:
        """Tell the parts about channels that have opened or were lost."""
        events, self._events = self._events, []
        for peer, opened in events:
            if opened:
                self.outgoing.opened(peer, now)
                self.consumers.opened(peer)
                if self.standing is not None:
                    self.standing.opened(peer)
            else:
                self.outgoing.lost(peer, now)
                self.remote_durables.lost(peer)
                if self.standing is not None:
                    self.standing.lost(peer)
                self.receptions.lost(peer, now)
                self.consumers.lost(peer, outbox, now)
                self.guests.lost(peer, outbox, now)

    def stored(self, now: int) -> None:
        """Continue: the store has written something, or read it."""
        self.receptions.proceed()
        self.outgoing.proceed(now)
        self.remote_durables.proceed()
        if self.standing is not None:
            self.standing.proceed()
        self.guests.proceed()

    def tick(self, now: int) -> Outbox:
        """Handle time-outs; to be called a few times a second."""
        outbox, time = Outbox(), self.time(now)
        for channel in self._channels.values():
            channel.tick(time)
            self.has_packets = True
        self._tell(outbox, now)
        self.outgoing.tick(now)
        if self.standing is not None:
            self.standing.tick(now)
            if self._core.durables is not None:
                self._core.durables.forget_formers()
        self.guests.tick(outbox, now)
        for session in list(self._sessions):
            waits = session.confirmations
            assert waits is not None
            if waits.overdue(time):
                waits.fail(f"another broker did not confirm it within {CONFIRM_MS // 1_000} s")
            if not waits:
                del self._sessions[session]
        return outbox

    def stop(self, now: int) -> None:
        """End all channels: what others have not confirmed stays here, and the record says so."""
        self.guests.pause()
        for channel in self._channels.values():
            channel.lose()
        self._tell(Outbox(), now)

    def take_packets(self, now: int) -> list[tuple[int, bytes]]:
        """Return what is to be sent: the destination broker, and the packet."""
        self.has_packets, number, time = False, self._core.number, self.time(now)
        return [
            (peer, packet(number, peer, datagram))
            for peer, channel in self._channels.items()
            for datagram in channel.flush(time)
        ]
