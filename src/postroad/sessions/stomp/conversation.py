"""One client's conversation in STOMP: bytes in, calls of the core, bytes out. No sockets here.

The messages of a read go to the core as one batch, divided only at control frames between them.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from postroad.broker import BrokerError
from postroad.errors import PostroadError
from postroad.protocols import stomp
from postroad.protocols.stomp import Version
from postroad.security import principal_of
from postroad.sessions.contract import LoginVerdict
from postroad.sessions.shared_bytes import Piece
from postroad.sessions.stomp.commits import Commits
from postroad.sessions.stomp.connected_client import ConnectedClient
from postroad.sessions.stomp.doubts import doubts_of
from postroad.sessions.stomp.durable_headers import CLIENT_ID_HEADER
from postroad.sessions.stomp.heart_beats import HeartBeats
from postroad.sessions.stomp.ids import assigned_ids
from postroad.sessions.stomp.joined_acknowledgements import answers_together
from postroad.sessions.stomp.publications import StompPublications
from postroad.sessions.stomp.receipts import Receipts
from postroad.sessions.stomp.refusals import AGAIN, UnavailableError, again_headers, refusal_frame, refused_frame
from postroad.sessions.stomp.renderers import RENDERERS, StompRenderer
from postroad.sessions.stomp.subscriptions import StompSubscriptions
from postroad.sessions.stomp.transactions import Transactions
from postroad.sessions.stomp.unread_replies import UnreadReplies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from postroad.broker import Delivery, Session
    from postroad.messages.columns import Bytes
    from postroad.sessions.contract import Terms, Transport
    from postroad.sessions.dispatch import Dispatcher
    from postroad.sessions.shared_bytes import SharedBytes

__all__ = ["StompConversation"]

log = logging.getLogger("postroad.server")

# Frames other than SEND to carry out in one turn of the loop, and the time they may take. A read of 256 KiB holds
# thousands of SUBSCRIBEs, which take some 100 microseconds each, and single ones take many milliseconds. The rest is
# carried out after all other connections had a turn.
CONTROLS_PER_TURN = 256
CONTROLS_MS = 20
# Frames that a client may send before its CONNECT is answered, while its login is checked.
MAX_EARLY_BYTES = 64 * 1024
# Input that arrived during other connections' turns is read in parts of this size, as if a socket had given it.
EARLY_PART_BYTES = 256 * 1024


class StompConversation:
    """One connection's side of the protocol.

    Args:
        dispatcher: the broker's core and its other sessions.
        transport: the connection.
        terms: what holds for every session.
        limits: the limits of frames; None for the message format's own.
    """

    def __init__(
        self, dispatcher: Dispatcher, transport: Transport, terms: Terms, limits: stomp.StompLimits | None = None
    ) -> None:
        self._dispatcher = dispatcher
        self._transport = transport
        self._terms = terms
        self._decoder = stomp.StompDecoder(limits, in_parts=True)
        self._session: Session | None = None
        # Made when the client is admitted.
        self._publications: StompPublications | None = None
        self._subscriptions: StompSubscriptions | None = None
        self._commits: Commits | None = None
        self._transactions = Transactions()
        self._receipts = Receipts(dispatcher, self._send, self._fail)
        self._closed = False
        self._login = ""
        self._renderer = RENDERERS[Version.V1_0]
        # While a login is checked, the rest of its read waits in `_held` and later reads in `_early`.
        self._checking = False
        self._held: tuple[stomp.Received, int, int] | None = None
        self._early = bytearray()
        # Other connections have their turn; the rest of the last read waits in the same places.
        self._resting = False
        # A DISCONNECT has arrived: all input after it is ignored.
        self._parting = False
        self._timer = dispatcher.timer
        now = self._timer()
        self._beats = HeartBeats(now)
        self._connect_by = now + terms.connect_ms
        self._unread = UnreadReplies()
        transport.wake_at(self._connect_by)

    # --- what the dispatcher asks -------------------------------------------------------------------------------------

    @property
    def _version(self) -> Version:
        return self._decoder.version or Version.V1_0

    @property
    def protocol(self) -> str:
        return f"STOMP {self._version!s}"

    @property
    def renderer(self) -> StompRenderer:
        return self._renderer

    def render(self, delivery: Delivery, prepared: object | None) -> Bytes:
        assert self._subscriptions is not None
        prefix, number = self._subscriptions.prefix(delivery.subscription.number)
        return self._renderer.render(delivery.batch, delivery.rows, prefix, number, prepared)

    def pieces(self, delivery: Delivery, prepared: object) -> list[Piece]:
        assert self._subscriptions is not None
        prefix, number = self._subscriptions.prefix(delivery.subscription.number)
        if not self._transport.shares:
            return [Piece(self.renderer.render(delivery.batch, delivery.rows, prefix, number, prepared))]
        return self.renderer.pieces(delivery.rows, prefix, number, prepared)

    def write(self, data: Bytes, shared: SharedBytes | None = None) -> None:
        if not self._closed:
            if self._beats.sends_every:
                self._beats.sent = self._timer()
            # Messages are no replies: what a full socket leaves of one does not make its subscriber a client that asks
            # and does not read.
            self._transport.write(data.data, shared)

    def pause_reading(self) -> None:
        self._beats.deaf = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        session = self._session
        if self._unread.give_up_at is not None or self._resting or (session is not None and session.paused):
            return
        self._beats.deaf = False
        self._beats.heard = self._timer()
        self._transport.resume_reading()
        self._wake()

    def refuse(self, reason: str, again: bool = False) -> None:
        self._fail(reason, headers=AGAIN if again else None)

    # --- what the driver reports -----------------------------------------------------------------------------------

    def received(self, data: bytes | bytearray | memoryview) -> None:
        """Carry out the bytes of one read."""
        if self._closed or self._parting:
            return
        if self._beats.expects_every:
            self._beats.heard = self._timer()
        if self._checking or self._resting:
            self._keep_early(data)
            return
        found = self._decoder.receive(data)
        if found.events:
            self._act_on(found)
        elif found.batch is not None:
            assert self._publications is not None
            self._publications.publish(found.batch, found)
        if self._decoder.has_more and not (self._checking or self._resting):
            self._go_on()

    def _publish(self, found: stomp.Received, first: int, last: int) -> None:
        assert self._publications is not None
        assert found.batch is not None
        part = found if last - first == len(found.batch) else found.part(first, last)
        assert part.batch is not None
        self._publications.publish(part.batch, part)

    def _act_on(self, found: stomp.Received, place: int = 0, row: int = 0) -> None:
        """Carry out a read from an event and a row on: all of it, or as much as one turn may take."""
        first, until = place, self._timer() + CONTROLS_MS
        self._receipts.begin()
        while place < len(found.events):
            event = found.events[place]
            if found.batch is not None and event.row > row:
                self._publish(found, row, event.row)
                row = event.row
            count = answers_together(found.events, place, CONTROLS_PER_TURN)
            if not self._closed and count > 1 and self._acknowledge_together(found.events[place : place + count]):
                place += count
            else:
                place += 1
                if not self._closed:
                    self._answer(event)
            if self._closed or self._parting:
                return
            if self._checking:
                self._held = (found, place, row)
                return
            if place < len(found.events) and (place - first >= CONTROLS_PER_TURN or self._timer() >= until):
                if self._rest((found, place, row)):
                    return
                first, until = place, self._timer() + CONTROLS_MS
        self._receipts.begin()
        if found.batch is not None and row < len(found.batch):
            self._publish(found, row, len(found.batch))
        if self._decoder.has_more and not self._closed:
            self._rest()

    def _rest(self, held: tuple[stomp.Received, int, int] | None = None) -> bool:
        """Give other connections a turn before the rest of a read; False if the dispatcher has no turns."""
        soon = self._dispatcher.soon
        if soon is None:
            return False
        self._held = held
        self._resting = True
        self.pause_reading()
        soon(self._after_rest)
        return True

    def _after_rest(self) -> None:
        self._resting = False
        if self._closed:
            return
        try:
            self._go_on()
        except Exception as error:
            self.broke(error)

    def writable(self, yes: bool) -> None:
        if self._session is None:
            return
        core = self._dispatcher.core
        if yes:
            if self._unread.clear():
                self.resume_reading()
            self._dispatcher.carry_out(core.drained(self._session, self._dispatcher.clock()))
        else:
            core.congested(self._session)

    @property
    def login(self) -> str:
        return self._login

    @property
    def kept_bytes(self) -> int:
        return self._decoder.pending + self._transactions.held_bytes + self._receipts.held_bytes + len(self._early)

    @property
    def waiting_bytes(self) -> int:
        return 0 if self._session is None else self._session.waiting.bytes

    @property
    def has_waiting(self) -> bool:
        session = self._session
        return session is not None and not session.congested and self._dispatcher.core.has_waiting(session)

    def ended(self, reason: str) -> None:
        session, soon = self._session, self._dispatcher.soon
        if soon is not None and session is not None and (self._resting or self._dispatcher.has_turns(session)):
            # What it has sent comes first.
            soon(functools.partial(self.ended, reason))
            return
        self.lost(reason)
        self._receipts.finish(self._transport, self._version, session)

    def lost(self, reason: str) -> None:
        if not self._closed:
            self._leave(reason)

    def broke(self, error: Exception) -> None:
        """End this conversation, and no other, because of a defect of the broker: tell the client, if that works."""
        log.error("internal error", extra=self._who(), exc_info=error)
        try:
            self._fail("internal error: the broker failed at what this client asked; its log says where")
        except Exception:
            self._leave("internal error")
            self._transport.close()

    def tick(self, now: int) -> None:
        """Send a heart-beat if one is due; close if the client is silent or never sent CONNECT."""
        if self._closed:
            return
        if self._session is None and now >= self._connect_by:
            late = "the login could not be checked" if self._checking else "no CONNECT frame"
            self.refuse(f"{late} within {self._terms.connect_ms:,} ms (setting connect_seconds)", self._checking)
            return
        if self._unread.give_up_at is not None and now >= self._unread.give_up_at:
            self._fail(f"this client sends and does not read: {self._unread.bytes:,} bytes of replies wait for it")
            return
        beats = self._beats
        # What waits in a congested socket serves as a heart-beat; further ones would only pile up.
        if beats.must_beat(now):
            if self._session is not None and not self._session.congested:
                self._send(stomp.HEART_BEAT)
            beats.sent = now
        if beats.is_silent(now):
            self._fail(f"nothing heard for {now - beats.heard:,} ms; the heart-beat was {beats.expects_every:,} ms")
            return
        self._wake()

    def _wake(self) -> None:
        if self._closed:
            return
        due = self._connect_by if self._session is None else self._beats.due()
        times = [time for time in (due, self._unread.give_up_at) if time is not None]
        if times:
            self._transport.wake_at(min(times))

    # --- control frames --------------------------------------------------------------------------------------------

    def _answer(self, event: stomp.Event) -> None:
        try:
            headers = self._act(event)
        except PostroadError as error:
            if isinstance(event, stomp.Subscribe):
                refused = {**self._who(), "topic": event.topic, "selector": event.selector, "reason": str(error)}
                self._terms.audit.refused("subscription refused", **refused)
            self._fail(str(error), event.receipt, headers=again_headers(error))
            return
        if event.receipt is not None and not isinstance(event, stomp.ProtocolError | stomp.Connect):
            self._receipts.control(event, event.receipt, headers, self._version, self._session)
        if isinstance(event, stomp.Disconnect):
            self._part()

    def _part(self) -> None:
        """Disconnect the client, after the receipts that still wait."""
        self._parting = True
        self._receipts.after_all(self._close_for_good, self._session)

    def _close_for_good(self) -> None:
        if not self._closed:
            self._leave("DISCONNECT", for_good=True)
            self._transport.close()

    def _act(self, event: stomp.Event) -> dict[str, str]:
        """Do what a frame says; return the headers for its receipt."""
        if isinstance(event, stomp.Connect):
            self._connect(event)
        elif isinstance(event, stomp.ProtocolError):
            self._fail(event.text, event.receipt, *refused_frame(event))
        elif self._subscriptions is not None:
            # Always true: the decoder lets nothing else through before CONNECT.
            return self._act_connected(event, self._subscriptions)
        return {}

    def _act_connected(self, event: stomp.Event, subscriptions: StompSubscriptions) -> dict[str, str]:
        if isinstance(event, stomp.Subscribe):
            subscriptions.subscribe(event)
            for doubt in doubts_of(event):
                self._terms.audit.doubted("subscription doubtful", **self._who(), topic=event.topic, doubt=doubt)
        elif isinstance(event, stomp.Unsubscribe):
            subscriptions.unsubscribe(event)
        elif isinstance(event, stomp.Ack | stomp.Nack):
            if event.transaction is None:
                subscriptions.acknowledge(event)
            else:
                self._transactions.acknowledge(event.transaction, event)
        elif isinstance(event, stomp.Begin):
            self._transactions.begin(event.transaction)
        elif isinstance(event, stomp.TransactionSend):
            self._transactions.send(event.transaction, event.frame)
        elif isinstance(event, stomp.Abort):
            self._transactions.end(event.transaction)
        elif isinstance(event, stomp.Commit):
            assert self._commits is not None
            return self._commits.commit(self._transactions.end(event.transaction))
        return {}

    def _connect(self, event: stomp.Connect) -> None:
        """Admit a client, now or when its login is checked; until then the broker stops reading from it."""
        gate, login = self._terms.gate, event.login or ""
        if gate is None:
            self._let_in(event, LoginVerdict("", principal_of(login, verified=False)))
            return
        answers: list[LoginVerdict] = []
        answer = functools.partial(self._answered, event, answers)
        gate.check(login, event.passcode or "", self._transport.address, answer)
        if answers:
            self._let_in(event, answers[0])
        else:
            self._checking = True
            self.pause_reading()

    def _answered(self, event: stomp.Connect, answers: list[LoginVerdict], verdict: LoginVerdict) -> None:
        """Take the verdict on a login: at once, while `_connect` still runs and looks at `answers`, or later."""
        if not self._checking:
            answers.append(verdict)
            return
        if self._closed:
            return
        self._checking = False
        try:
            self._let_in(event, verdict)
            self._go_on()
        except PostroadError as error:
            self._fail(str(error), headers=again_headers(error))
        except Exception as error:
            self.broke(error)

    def _go_on(self) -> None:
        """Carry out what arrived while the login was checked or others had their turn, and resume reading."""
        held, self._held = self._held, None
        if held is not None:
            self._act_on(*held)
        while (self._early or self._decoder.has_more) and not (self._closed or self._parting or self._resting):
            part = bytearray()
            if not self._decoder.has_more:
                part, self._early = self._early[:EARLY_PART_BYTES], self._early[EARLY_PART_BYTES:]
            self._act_on(self._decoder.receive(part))
        if not self._closed:
            self.resume_reading()

    def _keep_early(self, data: bytes | bytearray | memoryview) -> None:
        # A transport may still deliver what it had read before it paused.
        self._early += data
        if self._checking and len(self._early) > MAX_EARLY_BYTES:
            self._fail(f"more than {MAX_EARLY_BYTES:,} bytes came before the answer to CONNECT; wait for CONNECTED")

    def _let_in(self, event: stomp.Connect, verdict: LoginVerdict) -> None:
        if verdict.refusal:
            raise (UnavailableError if verdict.again else BrokerError)(verdict.refusal)
        if refusal := self._transport.connected():
            raise UnavailableError(refusal)
        self._login = verdict.login
        self._renderer = RENDERERS[self._version]
        self._session = self._dispatcher.core.attached(verdict.principal)
        self._begin(self._session, event.headers.get(CLIENT_ID_HEADER, ""))
        self._dispatcher.join(self._session.number, self)
        least = self._terms.heart_beat_ms
        self._beats.agree(*event.heart_beat, least, self._timer())
        headers, outbox = assigned_ids(event.headers, self._dispatcher, self._session)
        number, beat = str(self._session.number), (least, least)
        frame = stomp.connected_frame(
            event.version, server="postroad", session=number, heart_beat=beat, headers=headers
        )
        self._send(frame)
        self._dispatcher.carry_out(outbox)
        who = {**self._who(), "login": event.login, "verified": bool(verdict.login), "version": str(event.version)}
        log.info("connected", extra=who)
        self._wake()

    def _begin(self, session: Session, client_id: str) -> None:
        client = ConnectedClient(
            self._dispatcher, session, self._version, self._terms, self._send, self._fail, self._who()
        )
        self._publications = StompPublications(client, self._receipts)
        self._subscriptions = StompSubscriptions(client, client_id)
        self._commits = Commits(client, self._publications, self._subscriptions, self._decoder.limits)

    def _acknowledge_together(self, events: Sequence[stomp.Event]) -> bool:
        """Carry out several acknowledgements at once; return False, and do nothing, if one of them is wrong.

        A wrong one ends the session, but those before it count. So they are taken one by one in that case.
        """
        answers = [each for each in events if isinstance(each, stomp.Ack | stomp.Nack)]
        if self._subscriptions is None or not self._subscriptions.acknowledge_together(answers):
            return False
        for event in answers:
            if event.receipt is not None:
                self._receipts.control(event, event.receipt, {}, self._version, self._session)
        return True

    # --- errors ----------------------------------------------------------------------------------------------------

    def _fail(
        self,
        text: str,
        receipt: bytes | None = None,
        details: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send an ERROR and close."""
        if self._closed:
            return
        self._send(refusal_frame(text, self._decoder.version, receipt, details, headers))
        self._leave(text.partition("\n")[0])
        self._transport.close()

    def _leave(self, reason: str, for_good: bool = False) -> None:
        """End the session at once, even if the connection takes a while to close."""
        self._closed = True
        self._transactions = Transactions()
        self._decoder.forget()
        self._held, self._early = None, bytearray()
        log.info("disconnected", extra={**self._who(), "reason": reason})
        if self._session is not None:
            session, self._session = self._session, None
            self._dispatcher.leave(session.number)
            self._dispatcher.carry_out(self._dispatcher.core.detached(session, self._dispatcher.clock(), for_good))

    def _who(self) -> dict[str, object]:
        return {"peer": self._transport.peer, "session": None if self._session is None else self._session.number}

    def _send(self, data: bytes | memoryview) -> None:
        if not self._closed:
            if self._beats.sends_every:
                self._beats.sent = self._timer()
            self._transport.write(data)
            if self._session is not None and self._session.congested and self._unread.add(len(data), self._timer()):
                self.pause_reading()
                self._wake()
