"""One client's conversation in STOMP: bytes in, calls of the core, bytes out. No sockets here.

The messages of a read go to the core as one batch, cut only where a control frame stands between them.
"""

from __future__ import annotations

import functools
import logging
import secrets
from typing import TYPE_CHECKING

import numpy as np

from postroad.broker import AckMode, Acknowledgement, BrokerError, Outbox, OverflowPolicy, settlements
from postroad.broker.numbers import NumbersError
from postroad.errors import PostroadError
from postroad.messages.id_columns import WORD_BITS
from postroad.protocols import stomp
from postroad.protocols.stomp import Version
from postroad.protocols.stomp.id_headers import CLOCK_RECEIPT, MESSAGE_ID_HEADER, SERVER_TIME_HEADER
from postroad.security import principal_of
from postroad.sessions.contract import LoginVerdict
from postroad.sessions.stomp.answers import answers_together
from postroad.sessions.stomp.durable import CLIENT_ID_HEADER, deletes_durable, durable_name
from postroad.sessions.stomp.heart_beats import HeartBeats
from postroad.sessions.stomp.ids import CORRECTION_MS, TOKEN_BYTES, asks_for_ids, claimed_publisher, id_terms, no_id
from postroad.sessions.stomp.queue_headers import consumer_terms
from postroad.sessions.stomp.receipts import Receipts
from postroad.sessions.stomp.renderers import RENDERERS, StompRenderer
from postroad.sessions.stomp.replay import replay_start
from postroad.sessions.stomp.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from postroad.broker import Delivery, IdAdmission, ReplayStart, Session, Subscription
    from postroad.messages import Batch, MessageId
    from postroad.messages.columns import Bytes
    from postroad.protocols.stomp.columns import Columns
    from postroad.sessions.contract import Terms, Transport
    from postroad.sessions.dispatch import Dispatcher

__all__ = ["OVERFLOW_HEADER", "StompConversation"]

log = logging.getLogger("postroad.server")

# The header of SUBSCRIBE that chooses what happens when the subscription's queue is full.
OVERFLOW_HEADER = "overflow"

# Receipts that wait behind a full socket because their client sends and does not read. With more than this the broker
# reads no further from it: as much again as waits in the socket's own buffer.
MAX_UNREAD_REPLY_BYTES = 1024 * 1024
# How long it then has to read some: a client that only sends before it reads would otherwise wait for ever, as we do.
UNREAD_REPLY_MS = 30_000
# Frames other than SEND that are carried out in one turn of the loop, and for how long at most: a read of 256 KiB holds
# thousands of SUBSCRIBEs, which take some 100 microseconds each, and single ones take many milliseconds. What is left
# comes after everybody else has had a turn.
CONTROLS_PER_TURN = 256
CONTROLS_MS = 20
# Subscriptions in a client mode that a session of STOMP 1.0 may have: its acknowledgements do not name one, so that all
# have to be searched for the message.
MAX_SEARCHED_SUBSCRIPTIONS = 100
# Frames that a client may send before it has the answer to its CONNECT, while its login is checked.
MAX_EARLY_BYTES = 64 * 1024
# What came while others had their turn is read in parts of this size, as if a socket had given it.
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
        self._decoder = stomp.StompDecoder(limits)
        self._session: Session | None = None
        self._prefixes: dict[int, tuple[bytes, int | None]] = {}
        self._keys: dict[int, str] = {}
        # Subscriptions in a client mode: where an acknowledgement that names none is looked for.
        self._searched: dict[str, Subscription] = {}
        self._transactions = Transactions()
        self._receipts = Receipts(dispatcher, self._send, self._fail)
        self._closed = False
        self._login = ""
        self._client_id = ""
        # A login is being checked: what came behind the CONNECT waits here, and then what was read meanwhile.
        self._checking = False
        self._held: tuple[stomp.Received, int, int] | None = None
        self._early = bytearray()
        # Others have their turn; what is left of the last read waits in the same place.
        self._resting = False
        # A DISCONNECT has come: nothing that follows it counts.
        self._parting = False
        self._timer = dispatcher.timer
        now = self._timer()
        self._beats = HeartBeats(now)
        self._connect_by = now + terms.connect_ms
        self._unread_replies = 0
        self._give_up_at: int | None = None
        self._correct_from = now
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
        return RENDERERS[self._version]

    def render(self, delivery: Delivery, prepared: object | None) -> Bytes:
        prefix, number = self._prefixes[delivery.subscription.number]
        return self.renderer.render(delivery.batch, delivery.rows, prefix, number, prepared)

    def write(self, data: Bytes) -> None:
        self._send(data.data)

    def pause_reading(self) -> None:
        self._beats.deaf = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        session = self._session
        if self._give_up_at is not None or self._resting or (session is not None and session.paused):
            return
        self._beats.deaf = False
        self._beats.heard = self._timer()
        self._transport.resume_reading()
        self._wake()

    def refuse(self, reason: str) -> None:
        self._fail(reason)

    # --- what the driver reports -----------------------------------------------------------------------------------

    def received(self, data: bytes | bytearray | memoryview) -> None:
        """The socket gave bytes."""
        if self._closed or self._parting:
            return
        self._beats.heard = self._timer()
        if self._checking or self._resting:
            self._keep_early(data)
            return
        found = self._decoder.receive(data)
        if found.events:
            self._act_on(found)
        elif found.batch is not None:
            self._publish(found.batch, found, 0, len(found.batch))

    def _act_on(self, found: stomp.Received, place: int = 0, row: int = 0) -> None:
        """Act on what was read, from an event and a row on; where that is much, a part of it."""
        first, until = place, self._timer() + CONTROLS_MS
        self._receipts.begin()
        while place < len(found.events):
            event = found.events[place]
            if found.batch is not None and event.row > row:
                self._publish(found.batch, found, row, event.row)
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
            if place - first >= CONTROLS_PER_TURN or self._timer() >= until:
                if self._rest(found, place, row):
                    return
                first, until = place, self._timer() + CONTROLS_MS
        self._receipts.begin()
        if found.batch is not None and row < len(found.batch):
            self._publish(found.batch, found, row, len(found.batch))

    def _rest(self, found: stomp.Received, place: int, row: int) -> bool:
        """Let others have a turn before the rest is carried out; False where nothing is left, or nobody gives turns."""
        soon = self._dispatcher.soon
        if soon is None or place == len(found.events):
            return False
        self._held = (found, place, row)
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
        """The socket takes no more for now, or takes more again."""
        if self._session is None:
            return
        core = self._dispatcher.core
        if yes:
            self._unread_replies = 0
            if self._give_up_at is not None:
                self._give_up_at = None
                self.resume_reading()
            self._dispatcher.carry_out(core.drained(self._session, self._dispatcher.clock()))
        else:
            core.congested(self._session)

    @property
    def login(self) -> str:
        """The login that the client has proved; empty without."""
        return self._login

    @property
    def kept_bytes(self) -> int:
        """What is kept of unfinished frames and open transactions."""
        return self._decoder.pending + self._transactions.held_bytes + len(self._early)

    @property
    def waiting_bytes(self) -> int:
        """What waits for its subscriptions."""
        return 0 if self._session is None else self._session.waiting.bytes

    @property
    def has_waiting(self) -> bool:
        """Whether messages wait that the socket could take now."""
        session = self._session
        return session is not None and not session.congested and self._dispatcher.core.has_waiting(session)

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        if not self._closed:
            self._leave(reason)

    def broke(self, error: Exception) -> None:
        """The broker failed at this conversation: the client is told so, and nobody else is touched."""
        log.error("internal error", extra=self._who(), exc_info=error)
        self._fail("internal error: the broker failed at what this client asked; its log says where")

    def tick(self, now: int) -> None:
        """Time has passed: beat, or notice that the client has gone quiet or never said anything."""
        if self._closed:
            return
        if self._session is None and now >= self._connect_by:
            late = "the login could not be checked" if self._checking else "no CONNECT frame"
            self._fail(f"{late} within {self._terms.connect_ms:,} ms (limit connect_seconds)")
            return
        if self._give_up_at is not None and now >= self._give_up_at:
            self._fail(f"this client sends and does not read: {self._unread_replies:,} bytes of replies wait for it")
            return
        beats = self._beats
        # Whatever waits in a congested socket is as good as a beat, and beats would pile up behind it.
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
        times = [time for time in (due, self._give_up_at) if time is not None]
        if times:
            self._transport.wake_at(min(times))

    # --- messages --------------------------------------------------------------------------------------------------

    def _publish(self, batch: Batch, found: stomp.Received, first: int, last: int) -> None:
        session = self._session
        assert session is not None
        part = batch if last - first == len(batch) else batch.take(np.arange(first, last))
        try:
            queued = found.has_queues
            if session.assigning is not None:
                self._publish_identified(part, found.receipts[first:last], found.message_ids[first:last], queued)
                return
            named = found.message_ids[first:last] if found.has_message_ids else None
            if self._accept(part, named, queued) and found.asks_receipts:
                self._receipts.messages(part, found.receipts[first:last], session)
        except (BrokerError, NumbersError) as error:
            # No defect: without a number of its own on disk, a publisher's ids could be another one's.
            log.error("publisher refused", extra={**self._who(), "reason": str(error)})
            self._fail(f"SEND: {error}")

    def _publish_identified(self, batch: Batch, receipts: Columns, message_ids: Columns, queued: bool) -> None:
        """Publish what has its ids already, up to the first message whose id is not one or may not be."""
        count = stomp.read_ids(batch, message_ids)
        refusal = None if count == len(batch) else no_id(stomp.given_id_text(batch, message_ids, count))
        if refusal is not None:
            batch = batch.take(np.arange(count))
        admission = self._accept_identified(batch, queued=queued)
        if admission is None:
            return
        if admission.end < len(batch):
            refusal = admission.refusal
            batch = batch.take(np.arange(admission.end))
        session, resent = self._session, admission.resent > 0
        assert session is not None
        self._receipts.messages(batch, receipts[: admission.end], session, resent)
        if refusal is not None:
            self._fail(f"SEND: {refusal}")

    def _accept_identified(self, batch: Batch, together: bool = False, queued: bool = False) -> IdAdmission | None:
        """What became of a batch with given ids; None when the client may not publish, and is told so."""
        session = self._session
        assert session is not None
        outbox, admission = self._dispatcher.publish_identified(batch, session, together, queued)
        if admission.first_skewed is not None:
            self._correct(admission.first_skewed, self._dispatcher.clock())
        return admission if self._may_publish(session, outbox) else None

    def _correct(self, skewed: MessageId, now: int) -> None:
        """Tell the client that its clock is off, not more often than is of use."""
        timer = self._timer()
        if timer >= self._correct_from:
            self._correct_from = timer + CORRECTION_MS
            headers = {SERVER_TIME_HEADER: str(now), MESSAGE_ID_HEADER: str(skewed)}
            self._send(stomp.receipt_frame(CLOCK_RECEIPT.encode(), self._version, headers))

    def _accept(self, batch: Batch, message_ids: Columns | None, queued: bool = False) -> bool:
        session = self._session
        assert session is not None
        # The broker gives the ids: what the sender calls its messages are other names of them.
        aliases = [] if message_ids is None else stomp.foreign_ids(batch, message_ids, self._version)
        return self._may_publish(session, self._dispatcher.publish(batch, session, aliases, queued))

    def _may_publish(self, session: Session, outbox: Outbox) -> bool:
        if outbox.unstorable:
            self._fail(f"SEND: {outbox.unstorable}")
            return False
        if outbox.refused:
            self._terms.audit.refused("publication refused", **self._who(), principal=session.principal)
            self._fail(f"{session.principal or 'anonymous'} may not publish to this topic")
        return not outbox.refused

    # --- control frames --------------------------------------------------------------------------------------------

    def _answer(self, event: stomp.Event) -> None:
        try:
            headers = self._act(event)
        except PostroadError as error:
            if isinstance(event, stomp.Subscribe):
                refused = {**self._who(), "topic": event.topic, "selector": event.selector, "reason": str(error)}
                self._terms.audit.refused("subscription refused", **refused)
            self._fail(str(error), event.receipt)
            return
        if event.receipt is not None and not isinstance(event, stomp.ProtocolError | stomp.Connect):
            self._receipts.control(event, event.receipt, headers, self._version, self._session)
        if isinstance(event, stomp.Disconnect):
            self._part()

    def _part(self) -> None:
        """The client takes its leave; receipts that still wait go first."""
        self._parting = True
        self._receipts.after_all(self._close_for_good, self._session)

    def _close_for_good(self) -> None:
        if not self._closed:
            self._leave("DISCONNECT", for_good=True)
            self._transport.close()

    def _act(self, event: stomp.Event) -> dict[str, str]:
        """Do what a frame says; answers the headers for its receipt."""
        if isinstance(event, stomp.Connect):
            self._connect(event)
        elif isinstance(event, stomp.Subscribe):
            self._subscribe(event)
        elif isinstance(event, stomp.Unsubscribe):
            self._unsubscribe(event)
        elif isinstance(event, stomp.Ack | stomp.Nack):
            if event.transaction is None:
                self._acknowledge(event)
            else:
                self._transactions.acknowledge(event.transaction, event)
        elif isinstance(event, stomp.Begin):
            self._transactions.begin(event.transaction)
        elif isinstance(event, stomp.TransactionSend):
            self._transactions.send(event.transaction, event.frame)
        elif isinstance(event, stomp.Abort):
            self._transactions.end(event.transaction)
        elif isinstance(event, stomp.Commit):
            return self._commit(event)
        elif isinstance(event, stomp.ProtocolError):
            self._fail_protocol(event)
        return {}

    def _connect(self, event: stomp.Connect) -> None:
        """Let a client in, now or when its login is checked; the broker reads no further from it meanwhile."""
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
        """The login was checked: at once, while `_connect` waits for `answers`, or later."""
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
            self._fail(str(error))
        except Exception as error:
            self.broke(error)

    def _go_on(self) -> None:
        """Act on what came while the login was checked or others had their turn, and read on."""
        held, self._held = self._held, None
        if held is not None:
            self._act_on(*held)
        while self._early and not (self._closed or self._parting or self._resting):
            part, self._early = self._early[:EARLY_PART_BYTES], self._early[EARLY_PART_BYTES:]
            self._act_on(self._decoder.receive(part))
        if not self._closed:
            self.resume_reading()

    def _keep_early(self, data: bytes | bytearray | memoryview) -> None:
        # A transport may hand over what it had read when it was told to pause.
        self._early += data
        if self._checking and len(self._early) > MAX_EARLY_BYTES:
            self._fail(f"more than {MAX_EARLY_BYTES:,} bytes came before the answer to CONNECT; wait for CONNECTED")

    def _let_in(self, event: stomp.Connect, verdict: LoginVerdict) -> None:
        if verdict.refusal:
            raise BrokerError(verdict.refusal)
        if refusal := self._transport.connected():
            raise BrokerError(refusal)
        self._login = verdict.login
        self._client_id = event.headers.get(CLIENT_ID_HEADER, "")
        self._session = self._dispatcher.core.attached(verdict.principal)
        self._dispatcher.join(self._session.number, self)
        least = self._terms.heart_beat_ms
        self._beats.agree(*event.heart_beat, least)
        headers, outbox = self._assigns_ids(event, self._session)
        number = str(self._session.number)
        self._send(
            stomp.connected_frame(
                event.version, server="postroad", session=number, heart_beat=(least, least), headers=headers
            )
        )
        self._dispatcher.carry_out(outbox)
        who = {**self._who(), "login": event.login, "verified": bool(verdict.login), "version": str(event.version)}
        log.info("connected", extra=who)
        self._wake()

    def _assigns_ids(self, event: stomp.Connect, session: Session) -> tuple[dict[str, str], Outbox]:
        """Let a client that asks give its own ids: the headers that tell it how, and what is to be done."""
        if not asks_for_ids(event.headers):
            return {}, Outbox()
        core, now = self._dispatcher.core, self._dispatcher.clock()
        was = claimed_publisher(event.headers)
        publisher, outbox = core.assigns_ids(session, secrets.token_hex(TOKEN_BYTES), now, was)
        return id_terms(publisher, core.number, core.skew_tolerance_ms, now), outbox

    def _subscribe(self, event: stomp.Subscribe) -> None:
        assert self._session is not None
        self._check_searched(event)
        key = event.id if event.id is not None else event.destination
        name = None if event.queue else durable_name(event.headers, self._client_id, event.id)
        replay = replay_start(event.headers)
        if event.queue:
            if replay is not None:
                raise BrokerError("a queue has no past: from and after are for topics")
            subscription = self._consume(event, key)
        elif name is None:
            subscription = self._dispatcher.core.subscribe(
                self._session,
                key,
                event.topic,
                event.selector or "",
                AckMode(event.ack),
                self._overflow(event.headers),
                self._dispatcher.clock(),
                replay,
            )
        else:
            subscription = self._subscribe_durably(event, key, name, replay)
        acknowledges = subscription.ack_mode is not AckMode.AUTO and self._version is Version.V1_2
        prefix = stomp.message_prefix(event.id, self._version)
        self._prefixes[subscription.number] = (prefix, subscription.number if acknowledges else None)
        self._keys[subscription.number] = key
        if subscription.ack_mode is not AckMode.AUTO:
            self._searched[key] = subscription
        if replay is not None:
            # Its turns begin.
            self._dispatcher.carry_out(Outbox())
        if event.queue:
            # From now on its messages can be rendered.
            self._dispatcher.carry_out(self._dispatcher.core.offer(subscription, self._dispatcher.clock()))

    def _consume(self, event: stomp.Subscribe, key: str) -> Subscription:
        assert self._session is not None
        queues = self._dispatcher.core.queues
        if queues is None:
            raise BrokerError("this broker has no store, so it has no queues (setting store)")
        asked = consumer_terms(event.headers, event.selector, event.ack)
        return queues.subscribe(self._session, key, event.topic, asked, self._dispatcher.clock())

    def _subscribe_durably(
        self, event: stomp.Subscribe, key: str, name: tuple[str, str], replay: ReplayStart | None
    ) -> Subscription:
        assert self._session is not None
        dispatcher, outbox = self._dispatcher, Outbox()
        durables = dispatcher.core.durables
        if durables is None:
            raise BrokerError("this broker has no store, so it has no durable subscriptions (setting store)")
        now, ack = dispatcher.clock(), AckMode(event.ack)
        subscription = durables.subscribe(
            self._session, key, name, event.topic, event.selector or "", ack, now, outbox, replay
        )
        dispatcher.carry_out(outbox)
        return subscription

    def _overflow(self, headers: Mapping[str, str]) -> OverflowPolicy:
        text = headers.get(OVERFLOW_HEADER, OverflowPolicy.SPOOL.value)
        try:
            chosen = OverflowPolicy(text)
        except ValueError:
            known = ", ".join(policy.value for policy in OverflowPolicy)
            raise BrokerError(f"{OVERFLOW_HEADER}:{text!r} is not known; choose one of {known}") from None
        if chosen is OverflowPolicy.PUSH_BACK and not self._terms.push_back:
            raise BrokerError(f"{OVERFLOW_HEADER}:{text} is not allowed here (setting push_back); choose another one")
        return chosen

    def _check_searched(self, event: stomp.Subscribe) -> None:
        acknowledges = AckMode(event.ack) is not AckMode.AUTO
        if self._version is Version.V1_0 and acknowledges and len(self._searched) >= MAX_SEARCHED_SUBSCRIPTIONS:
            raise BrokerError(
                f"a session of STOMP 1.0 has at most {MAX_SEARCHED_SUBSCRIPTIONS} subscriptions that acknowledge; "
                "connect with a newer version, whose ACK names the subscription"
            )

    def _unsubscribe(self, event: stomp.Unsubscribe) -> None:
        assert self._session is not None
        key = event.id if event.id is not None else event.destination or ""
        subscription = self._session.subscriptions.get(key)
        deletes = deletes_durable(event.headers)
        core, now = self._dispatcher.core, self._dispatcher.clock()
        if subscription is None and (name := durable_name(event.headers, self._client_id, event.id)) is not None:
            self._dispatcher.carry_out(core.delete_durable(self._session, name, now))
            return
        self._dispatcher.carry_out(core.unsubscribe(self._session, key, now, deletes))
        if subscription is not None:
            del self._prefixes[subscription.number], self._keys[subscription.number]
            self._searched.pop(key, None)

    def _acknowledge(self, event: stomp.Ack | stomp.Nack) -> None:
        assert self._session is not None
        key = self._acknowledged_key(event)
        head, tail = event.message_id.head, event.message_id.tail
        positive = isinstance(event, stomp.Ack)
        requeues = isinstance(event, stomp.Ack) or event.requeues
        core, now = self._dispatcher.core, self._dispatcher.clock()
        self._dispatcher.carry_out(core.acknowledge(self._session, key, head, tail, positive, now, requeues))

    def _acknowledge_together(self, events: Sequence[stomp.Event]) -> bool:
        """Act on several acknowledgements at once, which costs far less; False if that cannot be, and nothing is done.

        One that is wrong ends the session, and those before it count: then they are taken one by one.
        """
        session, answers = self._session, [each for each in events if isinstance(each, stomp.Ack | stomp.Nack)]
        if session is None:
            return False
        try:
            settled = settlements(session, [self._acknowledgement(each) for each in answers])
        except BrokerError:
            return False
        dispatcher = self._dispatcher
        dispatcher.carry_out(dispatcher.core.settle(session, settled, dispatcher.clock()))
        for event in answers:
            if event.receipt is not None:
                self._receipts.control(event, event.receipt, {}, self._version, self._session)
        return True

    def _acknowledgement(self, event: stomp.Ack | stomp.Nack) -> Acknowledgement:
        message = event.message_id.head << WORD_BITS | event.message_id.tail
        requeues = isinstance(event, stomp.Ack) or event.requeues
        return Acknowledgement(self._acknowledged_key(event), message, isinstance(event, stomp.Ack), requeues)

    def _acknowledged_key(self, event: stomp.Ack | stomp.Nack) -> str:
        if event.number is not None:
            key = self._keys.get(event.number)
            if key is None:
                raise BrokerError("acknowledgement for a subscription that this session does not have (any more)")
            return key
        if event.subscription is not None:
            return event.subscription
        wanted = event.message_id.head << WORD_BITS | event.message_id.tail
        for key, subscription in self._searched.items():
            if wanted in subscription.unacknowledged:
                return key
        raise BrokerError("acknowledgement of a message that does not wait for one; each counts once")

    def _commit(self, event: stomp.Commit) -> dict[str, str]:
        transaction = self._transactions.end(event.transaction)
        assert self._session is not None
        told = [self._acknowledgement(each) for each in transaction.acknowledgements]
        settled = settlements(self._session, told)
        headers = {"message-count": "0"}
        if transaction.frames:
            found = stomp.decode_frames(transaction.frames, self._version, self._decoder.limits)
            assert found.batch is not None
            # What it consumed is done with when what it made of that is in.
            if not self._accept_committed(found, found.batch):
                return {}
            headers = {"message-id": str(found.batch.message(0).id), "message-count": str(len(found.batch))}
        if self._session is not None and settled:
            core, now = self._dispatcher.core, self._dispatcher.clock()
            self._dispatcher.carry_out(core.settle(self._session, settled, now))
        return headers

    def _accept_committed(self, found: stomp.Received, batch: Batch) -> bool:
        assert self._session is not None
        if self._session.assigning is None:
            return self._accept(batch, found.message_ids, found.has_queues)
        count = stomp.read_ids(batch, found.message_ids)
        if count < len(batch):
            raise BrokerError(f"COMMIT: {no_id(stomp.given_id_text(batch, found.message_ids, count))}")
        admission = self._accept_identified(batch, together=True, queued=found.has_queues)
        if admission is not None and admission.refusal is not None:
            raise BrokerError(f"COMMIT: {admission.refusal}")
        return admission is not None

    # --- errors ----------------------------------------------------------------------------------------------------

    def _fail_protocol(self, event: stomp.ProtocolError) -> None:
        headers = {} if event.versions is None else {"version": event.versions}
        shown = event.frame.decode("utf-8", "replace")
        details = f"The frame was, as far as it was read:\n{shown}" if shown else ""
        self._fail(event.text, event.receipt, details, headers)

    def _fail(
        self,
        text: str,
        receipt: bytes | None = None,
        details: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Tell the client what was wrong, and close."""
        if self._closed:
            return
        first, _, rest = text.partition("\n")
        version = self._decoder.version
        frame = stomp.error_frame(first, version, details=rest or details, receipt=receipt, headers=headers or {})
        self._send(frame)
        self._leave(first)
        self._transport.close()

    def _leave(self, reason: str, for_good: bool = False) -> None:
        """The session ends at once, also when the connection takes a while to close."""
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
            self._beats.sent = self._timer()
            self._transport.write(data)
            if self._session is not None and self._session.congested:
                self._hold(len(data))

    def _hold(self, size: int) -> None:
        """The client has not read what was sent before: count what is added to it, and stop reading when it is much."""
        self._unread_replies += size
        if self._unread_replies > MAX_UNREAD_REPLY_BYTES and self._give_up_at is None:
            self._give_up_at = self._timer() + UNREAD_REPLY_MS
            self.pause_reading()
            self._wake()
