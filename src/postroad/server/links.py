"""Links to other brokers: dial, accept, and move bytes between sockets and the link protocol.

Of two brokers that name each other, the one with the lower number dials. It dials again after a lost connection, with
growing pauses; what the neighbour has not received is sent again on the next connection. After one heart-beat without a
connection, what is held for the neighbour is taken back and takes another route.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from postroad.errors import PostroadError
from postroad.protocols import link
from postroad.routing import Destinations, decode_frame, encode_frame
from postroad.server.admission import LinkAdmission
from postroad.server.dialler import Dialler
from postroad.server.link_arrivals import LinkArrivals
from postroad.server.link_connection import MAX_UNREAD_BYTES, LinkConnection
from postroad.server.link_counts import ClosedTraffic, link_statistics
from postroad.server.link_drain import LinkDrain
from postroad.server.link_work import LinkWork
from postroad.server.strangers import Strangers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from postroad.broker import Outbox, QueuePackets, Relay, Sending
    from postroad.broker.consignments import Consignment
    from postroad.config import NetworkConfig
    from postroad.security import BrokerKeys
    from postroad.server.counts import LinkStatistics, QuarantineStatus
    from postroad.server.link_listener import Accepted
    from postroad.server.tls import LinkTls
    from postroad.sessions.contract import BatchTimer

__all__ = ["Links"]

log = logging.getLogger("postroad.links")

# How many heart-beats frames that a lost neighbour has not received (under custody: settled) wait for its return before
# they take another route. A cut connection is dialled again within 0.1 s. The longer frames wait, the later they come,
# and the more ids their destinations have to remember to recognise duplicates.
GIVE_UP_BEATS = 1
# How often links tick: about as often as the other end wants to hear which of its frames arrived.
TICK_SECONDS = 0.025
# The kinds of control frames: of routing, questions about messages, and what brokers say about queues.
ROUTING = 1
QUESTION = 2
PACKET = 3
# What a neighbour may leave unread before packets to it are left out.
MAX_UNREAD_PACKETS = 32 * 1024 * 1024


class Links:
    """All links of one broker.

    Args:
        number: this broker.
        relay: the core joined with a strategy.
        config: the network this broker belongs to.
        carry_out: carries out an outbox of the core.
        clock: the time in milliseconds since 1970, UTC, for messages.
        timer: milliseconds that only go forward, for connections.
        tls: how to wrap connections; None for none.
        keys: the key of this broker and those of the others; None for none.

    Attributes:
        strangers: connections that have not proved who they are.
        timing: counts messages and times some reads; None for none.
        packets: what brokers say about queues; None if this one has none.
    """

    def __init__(
        self,
        number: int,
        relay: Relay,
        config: NetworkConfig,
        carry_out: Callable[[Outbox], None],
        clock: Callable[[], int],
        timer: Callable[[], int],
        tls: LinkTls | None = None,
        keys: BrokerKeys | None = None,
    ) -> None:
        self.number = number
        self.timer = timer
        self._relay = relay
        self._config = config
        self.carry = carry_out
        self._clock = clock
        self._epoch = clock()
        secret = config.secret
        self._identity = link.Identity(
            number,
            self._epoch,
            config.name,
            secret=None if secret is None else secret.encode(),
            capabilities=link.CUSTODY if config.delivery == "custody" else 0,
            heart_beat=config.settings.heartbeat_ms,
            missed_beats=config.settings.missed_heartbeats,
            seals=keys,
        )
        self._give_up_ms = GIVE_UP_BEATS * config.settings.heartbeat_ms
        self._known = {neighbour.number: neighbour for neighbour in config.neighbours}
        self._neighbours: dict[int, link.Neighbour] = {}
        self._connections: dict[link.LinkConversation, LinkConnection] = {}
        self._lost_at: dict[int, int] = {}
        self._up: set[int] = set()
        self._traffic = ClosedTraffic()
        self._dialler = Dialler(lambda other: LinkConnection(self, dialled=other), self._is_to_be_dialled, tls)
        self._ticker: asyncio.Task[None] | None = None
        self.on_question: Callable[[bytes, int], None] | None = None
        self.packets: QueuePackets | None = None
        self.timing: BatchTimer | None = None
        # Neighbours whose links make local publishers wait.
        self._crowded: set[int] = set()
        self.stopping = False
        # Steps of long advertisements.
        self._work = LinkWork(
            lambda: relay.working and not self.stopping, lambda: self.carry(relay.work(clock())), self._log_defect
        )
        self._turned_away = self._internal_errors = 0
        self._admission = LinkAdmission(config, timer)
        self._arrivals = LinkArrivals(relay, config, self._admission, clock)
        hosts = [neighbour.host for neighbour in config.neighbours]
        self.strangers: Strangers[Accepted] = Strangers(host for host in hosts if host not in ("", "localhost"))

    # --- start and stop --------------------------------------------------------------------------------------------

    def state_interest(self) -> None:
        """Advertise the interest of this broker before anybody can ask: the first neighbour hears of durable
        subscriptions too."""
        self.carry(self._relay.tick(self._clock()))

    def take_tls(self, tls: LinkTls | None) -> None:
        """Show this certificate to neighbours that are dialled from now on."""
        self._dialler.take_tls(tls)

    def start(self) -> None:
        """Dial the neighbours with higher numbers; the others dial here."""
        for neighbour in self._config.neighbours:
            if neighbour.number > self.number and not neighbour.standby:
                self._dialler.dial(neighbour)
        self._ticker = asyncio.create_task(self._tick_for_ever())

    async def stop(self, returns: bool = False) -> None:
        """Reroute messages, let neighbours take what is kept for them, and say goodbye to each of them.

        Args:
            returns: whether others should keep what is wanted here until this broker is back.
        """
        self.carry(self._relay.leave(self._clock(), returns))
        await self._emptied()
        # No other task runs from here to the goodbye: what was received is relayed, or not confirmed.
        self.stopping = True
        self._dialler.stop()
        if self._ticker is not None:
            self._ticker.cancel()
        for conversation, connection in list(self._connections.items()):
            connection.write(conversation.bye(link.Reason.CLOSING, "this broker is stopping"))
            connection.close()
        await asyncio.sleep(0)

    async def _emptied(self) -> None:
        """Wait until nothing is kept for those who could take it. Nothing new comes, so it usually takes a moment."""
        drain = LinkDrain(self.timer())
        while drain.goes_on(self._held_frames(), self.timer()):  # noqa: ASYNC110
            await asyncio.sleep(TICK_SECONDS)

    def _held_frames(self) -> int:
        return sum(self._neighbour(number).sender.statistics().held_frames for number in self._up)

    @property
    def is_joined(self) -> bool:
        """Whether all planned links work, and what the neighbours know of others' wishes is known here."""
        planned = {number for number, known in self._known.items() if not known.standby}
        routing = self._relay.routing_statistics()
        return (
            planned <= self._up
            and self._relay.is_informed
            and routing.get("parent", 0) == routing.get("planned_parent", routing.get("parent", 0))
        )

    def _is_to_be_dialled(self, number: int) -> bool:
        return self._current(number) is None and not self._admission.barred(number)

    def _connect(self, number: int) -> None:
        """Open a standby link. One end of every planned link dials it anyway."""
        neighbour = self._known.get(number)
        if neighbour is None:
            log.warning("no address", extra={"neighbour": number})
        elif neighbour.standby and not self.stopping:
            self._dialler.dial(neighbour)

    def _disconnect(self, number: int) -> None:
        """Close a standby link."""
        neighbour = self._known.get(number)
        if neighbour is None or not neighbour.standby:
            return
        self._dialler.give_up(number)
        if (conversation := self._current(number)) is not None:
            bye = conversation.bye(link.Reason.CLOSING, "this link is not needed any more")
            self._connections[conversation].write(bye)
            self._end(conversation)

    # --- connections -----------------------------------------------------------------------------------------------

    def conversation(
        self, connection: LinkConnection, dialled: int, binding: bytes, certificate: Mapping[str, Any] | None
    ) -> link.LinkConversation:
        """Begin the conversation of a new connection; with the peer's certificate, if it has one."""
        made = link.LinkConversation(
            replace(self._identity, binding=binding),
            self._neighbour,
            dialling=bool(dialled),
            nonce=secrets.token_bytes(32),
            now=self.timer(),
            expected=self._admission.expected(dialled, certificate),
            barred=self._admission.barred,
        )
        self._connections[made] = connection
        return made

    def count_turned_away(self) -> None:
        """A connection that had not finished its handshake made room for another."""
        self._turned_away += 1

    def _log_defect(self) -> None:
        """A defect of ours, in work that no single connection waits for."""
        log.exception("internal error")
        self.count_internal_error()

    def count_internal_error(self) -> None:
        """A defect closed a connection."""
        self._internal_errors += 1

    def _neighbour(self, number: int) -> link.Neighbour:
        if number not in self._neighbours:
            sender = link.LinkSender(self._epoch, custody=self._config.delivery == "custody")
            self._neighbours[number] = link.Neighbour(sender, link.LinkReceiver())
        return self._neighbours[number]

    def heard(self, conversation: link.LinkConversation, heard: link.Heard) -> None:
        """Carry out what a read or a tick brought."""
        connection = self._connections.get(conversation)
        if connection is None:
            return
        for data in heard.output:
            connection.write(data)
        if heard.opened:
            self._opened(conversation, heard)
        for part in link.group_frames(heard.frames):
            self._take(conversation, part)
        if conversation.neighbour is not None:
            self._let_go(_peer(conversation))
        self._settle()
        if heard.error is not None:
            log.warning("link closed", extra={"reason": str(heard.error)})
            if heard.error.ours and heard.error.reason is link.Reason.FAULT and conversation.neighbour is not None:
                self._admission.offended(_peer(conversation), str(heard.error))
            self._end(conversation, at_once=heard.error.reason is link.Reason.SILENT)

    def _end(self, conversation: link.LinkConversation, *, at_once: bool = False) -> None:
        """Close a connection. What is held for its neighbour need not wait until the socket is closed."""
        if conversation in self._connections:
            self._connections[conversation].close(at_once=at_once)
            self.lost(conversation)

    def _opened(self, conversation: link.LinkConversation, heard: link.Heard) -> None:
        number = _peer(conversation)
        self._lost_at.pop(number, None)
        if heard.replaced is not None and heard.replaced in self._connections:
            self._connections[heard.replaced].close()
        log.info("link up", extra={"neighbour": number})
        now = self._clock()
        if number not in self._up:
            self._up.add(number)
            self.carry(self._relay.link_up(number, self._known[number].cost, now))
        self._reroute(number, heard.returned)

    def _take(self, conversation: link.LinkConversation, part: link.Control | list[link.Data]) -> None:
        number = _peer(conversation)
        try:
            if not isinstance(part, link.Control):
                self._take_messages(number, part)
            elif part.kind == QUESTION:
                if self.on_question is not None:
                    self.on_question(part.payload, number)
            elif part.kind == PACKET:
                if self.packets is not None:
                    self.packets.receive(part.payload, number)
            else:
                self.carry(self._relay.control(decode_frame(part.payload), number, self._clock()))
                self._work.go_on()
        except PostroadError as error:
            self._refuse(number, str(error))

    def _take_messages(self, number: int, frames: list[link.Data]) -> None:
        for batch, outbox in self._arrivals.receive(number, self._neighbours[number].receiver, frames):
            self.carry(outbox)
            if self.timing is not None:
                self.timing.count(batch, outbox, relayed=True)

    def _refuse(self, number: int, reason: str) -> None:
        """Close the link to a neighbour that sent what no honest one would, and quarantine it."""
        self._admission.offended(number, reason)
        conversation = self._current(number)
        if conversation is not None:
            self._connections[conversation].write(conversation.bye(link.Reason.FAULT, reason[:200]))
            self._end(conversation)

    def _let_go(self, number: int) -> None:
        """Release what a neighbour has confirmed or gave back; there may be room again."""
        sender = self._neighbour(number).sender
        self._relay.settled(cast("list[Consignment]", sender.take_let_go()))
        if number in self._crowded and sender.relaxed:
            self._crowded.discard(number)
            log.info("link has room", extra={"neighbour": number})
            self.carry(self._relay.link_free(number))

    def _settle(self) -> None:
        """Note the settled consignments of neighbours; the next progress frame reports them."""
        for consignment in self._relay.consignments.take_settled():
            self._neighbours[consignment.link].receiver.settle(consignment.epoch, consignment.number)

    def lost(self, conversation: link.LinkConversation) -> None:
        """A connection is closed, or about to be."""
        if conversation not in self._connections:
            return
        was_open = conversation.open
        number = _peer(conversation) if conversation.neighbour is not None else 0
        conversation.closed()
        connection = self._connections.pop(conversation)
        self._traffic.add(number, connection)
        if number and (was_open or self._neighbours[number].current is None):
            self._lost_at.setdefault(number, self.timer())
            if number in self._up:
                self._up.discard(number)
                log.info("link down", extra={"neighbour": number})
                self.carry(self._relay.link_down(number, self._clock()))

    # --- what the core sends ---------------------------------------------------------------------------------------

    def send(self, outbox: Outbox) -> None:
        """Send the control frames and parcels of an outbox, and dial or hang up as it says."""
        now = self.timer()
        for number in outbox.connects:
            self._connect(number)
        for number, frame in outbox.frames:
            conversation = self._current(number)
            if conversation is not None:
                data = conversation.control(ROUTING, encode_frame(frame), now)
                self._write_bounded(number, self._connections[conversation], data)
        for sending in outbox.parcels:
            self._send(sending, now)
        for number in outbox.disconnects:
            self._disconnect(number)
        for refusal in outbox.refusals:
            if refusal.grave:
                self._refuse(refusal.link, refusal.reason)
            else:
                self._admission.refused(refusal.link, refusal.reason)

    @property
    def up(self) -> frozenset[int]:
        """The neighbours whose links are up."""
        return frozenset(self._up)

    def ask(self, number: int, payload: bytes) -> None:
        """Send a neighbour a question about a message, or an answer, if its link is up."""
        conversation = self._current(number)
        if conversation is not None:
            data = conversation.control(QUESTION, payload, self.timer())
            self._write_bounded(number, self._connections[conversation], data)

    def send_packets(self, packets: Iterable[tuple[int, bytes]]) -> None:
        """Send packets about queues, each to the broker that it is for, as far as there are ways."""
        if self.packets is not None:
            self.packets.send(packets)

    def send_packet(self, number: int, data: bytes) -> None:
        """Send a neighbour a packet, unless it has not read many: packets that do not come are sent again."""
        conversation = self._current(number)
        if conversation is not None and self._connections[conversation].unread < MAX_UNREAD_PACKETS:
            self._connections[conversation].write(conversation.control(PACKET, data, self.timer()))

    def refused(self, number: int, reason: str) -> None:
        """Count what a neighbour sent and is not believed; the neighbour may be honest."""
        self._admission.refused(number, reason)

    def _write_bounded(self, number: int, connection: LinkConnection, data: bytes) -> None:
        """Write within a bound: a neighbour can ask for any amount of control frames."""
        if connection.unread + len(data) > MAX_UNREAD_BYTES:
            self._refuse(number, f"it asks for more than {MAX_UNREAD_BYTES:,} bytes of records and does not read them")
        else:
            connection.write(data)

    def _current(self, number: int) -> link.LinkConversation | None:
        neighbour = self._neighbours.get(number)
        current = None if neighbour is None else neighbour.current
        return current if current in self._connections else None

    def _send(self, sending: Sending, now: int) -> None:
        number, conversation = sending.link, self._current(sending.link)
        sender = self._neighbour(number).sender
        what = (
            sending.batch,
            sending.rows,
            sending.destinations.sets,
            sending.destinations.lines,
            self._relay.strategy.membership,
        )
        mark, returned = sending.consignment, sending.returned
        if conversation is not None:
            sent = conversation.send(*what, now, mark=mark, returned=returned)
            connection = self._connections[conversation]
            for data in sent.frames:
                connection.write(data)
        else:
            sent = sender.send(*what, mark=mark, returned=returned)
            self._lost_at.setdefault(number, now)
        # Links never wait for each other: what does not fit is shed, and only local publishers pause.
        self._relay.sent(sending, sent.taken, sent.held, self._clock())
        if sending.publisher and sender.crowded:
            if number not in self._crowded:
                self._crowded.add(number)
                log.warning("link full", extra={"neighbour": number})
            self.carry(self._relay.link_full(number, sending.publisher))

    def _reroute(self, number: int, returned: list[link.Data]) -> None:
        now = self._clock()
        for data in returned:
            consignment = cast("Consignment | None", data.mark)
            destinations = Destinations(data.sets, data.lines)
            self.carry(self._relay.returned(data.batch, destinations, now, consignment, number))

    # --- time ------------------------------------------------------------------------------------------------------

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                self.tick()
            except Exception:
                # Without ticks every link would count as dead.
                self._log_defect()

    def tick(self) -> None:
        """Send heart-beats, let routing refresh, and take back frames from neighbours that stay away."""
        now = self.timer()
        for conversation in list(self._connections):
            if conversation in self._connections and (conversation.open or conversation.neighbour is None):
                self.heard(conversation, conversation.tick(now))
        self.carry(self._relay.tick(self._clock()))
        if self.packets is not None:
            self.packets.tick()
        self._work.go_on()
        self._settle()
        for number, since in list(self._lost_at.items()):
            if now - since >= self._give_up_ms and self._current(number) is None:
                del self._lost_at[number]
                self._reroute(number, self._neighbour(number).sender.give_up())
                self._let_go(number)

    def statistics(self) -> dict[str, int]:
        """Counts for people and for metrics."""
        return {
            "links_up": len(self._up),
            "planned_links_up": sum(number in self._up for number, known in self._known.items() if not known.standby),
            "links_known": len(self._known),
            "links_crowded": len(self._crowded),
            "links_quarantined": len(self._admission.quarantined()),
            "connections_turned_away": self._turned_away,
            "internal_errors": self._internal_errors,
        }

    def quarantined(self) -> list[QuarantineStatus]:
        """The neighbours in quarantine, and why."""
        return self._admission.quarantined()

    def neighbours(self) -> list[LinkStatistics]:
        """Counts of each link, by the neighbour's number."""
        return [self._link(number) for number in sorted({*self._known, *self._neighbours})]

    def _link(self, number: int) -> LinkStatistics:
        current = self._current(number)
        traffic = self._traffic.total(number, None if current is None else self._connections[current])
        up, crowded = number in self._up, number in self._crowded
        return link_statistics(number, self._neighbour(number), up, crowded, self._admission, traffic)


def _peer(conversation: link.LinkConversation) -> int:
    assert conversation.peer is not None
    return conversation.peer.broker
