"""The connections of a broker's clients: which are accepted, what memory they hold, and which have to be closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING

from postroad.server.tcp import CLOSE_SECONDS, READ_BYTES, STRANGER_READ_BYTES
from postroad.sessions import Entrance, Holding, Holdings, Terms, steady_clock, who_goes

if TYPE_CHECKING:
    from collections.abc import Collection

    from postroad.broker import Limits
    from postroad.config import BrokerConfig
    from postroad.recording import Sampler
    from postroad.server.listeners import MakeSession
    from postroad.server.tcp import TcpConnection
    from postroad.sessions import Audit, ClientSession, Dispatcher

__all__ = ["Clients"]

log = logging.getLogger("postroad.server")

# Between two looks for clients that have hung up: each asks the system about every connection that is paused.
GONE_LOOK_SECONDS = 1.0

STOPPING = "this broker is stopping; connect to another one, or again later"


class Clients:
    """All connections of clients, over whichever port.

    Args:
        config: the settings; replaced by those of a reload.
        dispatcher: the core and the sessions.
        terms: what holds for every session; replaced by those of a reload.
        audit: gets refusals.
        timing: counts messages and times some reads.

    Attributes:
        received_bytes, sent_bytes: over all connections, without what TLS adds.
    """

    def __init__(
        self, config: BrokerConfig, dispatcher: Dispatcher, terms: Terms, audit: Audit, timing: Sampler
    ) -> None:
        self.config = config
        self.terms = terms
        self.audit = audit
        self.timing = timing
        self.timer = steady_clock
        self.read_buffer = memoryview(bytearray(READ_BYTES))
        self.stranger_buffer = self.read_buffer[:STRANGER_READ_BYTES]
        self.received_bytes = self.sent_bytes = 0
        self.opened_count = self.relieved_count = self.internal_errors = 0
        self.entrance: Entrance[TcpConnection] = Entrance(config.limits)
        self.holdings = Holdings(config.limits.memory_bytes, dispatcher.core.waiting)
        self._dispatcher = dispatcher
        self._connections: dict[ClientSession, TcpConnection] = {}
        self._relieving = False
        self._looked_for_gone = -math.inf
        self._stopping = False
        self._empty = asyncio.Event()
        dispatcher.when_queued = self._look_at_holdings
        dispatcher.relieve = self._relieve_now

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def connections(self) -> Collection[TcpConnection]:
        """The open connections."""
        return self._connections.values()

    def take_limits(self, limits: Limits) -> None:
        """Apply other limits from now on; clients beyond them stay."""
        self.entrance.take_limits(limits)
        self.holdings.take_budget(limits.memory_bytes)

    # --- what connections report -----------------------------------------------------------------------------------

    def opened(self, connection: TcpConnection, make: MakeSession) -> ClientSession:
        """A client has connected."""
        self.opened_count += 1
        session = make(self._dispatcher, connection, self.terms)
        self._connections[session] = connection
        refusal = "" if connection in self.entrance else self.arrived(connection, connection.address)
        if refusal:
            asyncio.get_running_loop().call_soon(connection.cut_off, refusal, True)
        elif self._stopping:
            session.refuse(STOPPING, again=True)
        return session

    def arrived(self, connection: TcpConnection, address: str) -> str:
        """A connection was accepted, which may have a TLS handshake to do yet; why it is refused, or an empty text."""
        arrival = self.entrance.arrive(connection, address)
        most = self.entrance.stranger_limit
        reason = f"no CONNECT was answered yet, and newer connections need the place (limits.strangers is {most:,})"
        for stranger in arrival.evicted:
            stranger.cut_off(reason, again=True)
        if arrival.refusal:
            self._end_gone()
        return arrival.refusal

    def left(self, connection: TcpConnection) -> None:
        """A connection has ended before its TLS handshake was done."""
        self.entrance.leave(connection)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another client."""
        return self.entrance.is_full

    def connected(self, connection: TcpConnection) -> str:
        """A client's CONNECT is to be answered; why it cannot be, or an empty text."""
        refusal = self.entrance.connect(connection)
        if refusal:
            self._end_gone()
        return refusal

    def _end_gone(self) -> None:
        """Let connections end whose clients have hung up unseen, because they are paused: others need their places."""
        now = asyncio.get_running_loop().time()
        if now < self._looked_for_gone + GONE_LOOK_SECONDS:
            return
        self._looked_for_gone = now
        gone = [each for each in self.connections if each.end_if_gone()]
        if gone:
            log.warning("paused publishers were gone", extra={"count": len(gone)})

    def closed(self, connection: TcpConnection, session: ClientSession) -> None:
        """A connection is gone."""
        self.entrance.leave(connection)
        self._connections.pop(session, None)
        if not self._connections:
            self._empty.set()

    def count_internal_error(self) -> None:
        """A defect closed a connection."""
        self.internal_errors += 1

    # --- sessions --------------------------------------------------------------------------------------------------

    def connection_of(self, number: int) -> tuple[str, str]:
        """The address and the protocol of a session of the core."""
        session = self._dispatcher.session(number)
        connection = None if session is None else self._connections.get(session)
        return ("", "") if session is None or connection is None else (connection.peer, session.protocol)

    def close_session(self, number: int, by: str) -> bool:
        """Close a client's session, as an operator asks; whether there was one."""
        session = self._dispatcher.session(number)
        if session is None:
            return False
        log.info(
            "session closed by operator", extra={"session": number, "peer": self.connection_of(number)[0], "by": by}
        )
        session.refuse("an operator of this broker has closed the session")
        return True

    def close_logins(self, logins: set[str], reason: str) -> None:
        """Close the sessions of these users."""
        for session in [each for each in self._connections if each.login in logins]:
            session.refuse(reason)

    # --- the end ---------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Tell every client that the broker stops; nothing that they send is taken from now on."""
        self._stopping = True
        for session, connection in list(self._connections.items()):
            try:
                session.refuse(STOPPING, again=True)
            except Exception:
                log.exception("internal error", extra={"peer": connection.peer})
                connection.abort()

    async def closed_all(self) -> int:
        """Wait until all connections have ended, for at most CLOSE_SECONDS; how many did not by themselves."""
        if not self._connections:
            return 0
        self._empty.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), CLOSE_SECONDS)
        left = len(self._connections)
        await self.abort()
        return left

    async def abort(self) -> None:
        """Close every connection at once, whatever is written."""
        for connection in list(self._connections.values()):
            connection.abort()
        # The loop reports their loss in its next turn.
        await asyncio.sleep(0)

    # --- memory ----------------------------------------------------------------------------------------------------

    def holds(self, change: int) -> None:
        """What is held for a connection has changed."""
        self.holdings.add(change)
        if change > 0:
            self._look_at_holdings()

    def _look_at_holdings(self) -> None:
        if self.holdings.is_too_much and not self._relieving:
            # In the next turn: the connection to close may be in the middle of something.
            self._relieving = True
            asyncio.get_running_loop().call_soon(self._relieve)

    def _relieve_now(self) -> None:
        if self.holdings.is_too_much:
            self._relieve()

    def _relieve(self) -> None:
        """Count what is held for everybody, and close the connections that hold too much."""
        self._relieving = False
        strangers = set(self.entrance.strangers)
        holdings = [Holding(each, each.held_bytes, each in strangers) for each in self._connections.values()]
        budget = self.holdings.budget
        for holding in who_goes(holdings, budget):
            self.relieved_count += 1
            log.warning("memory used up", extra={"peer": holding.key.peer, "held": holding.bytes, "limit": budget})
            holding.key.cut_off(
                f"the broker's memory for clients is used up (limits.memory_bytes is {budget:,}), "
                f"and it holds {holding.bytes:,} bytes for this connection, so this one has to go"
            )
        self.holdings.counted()
