"""A running broker: listens, keeps the conversations, watches its queues, and stops cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from postroad.broker import (
    Broker,
    PublisherNumbers,
    Relay,
    SubscriptionNumbers,
    make_strategy,
    order_wait,
    queue_home,
    scheme_of,
)
from postroad.broker.numbers import BLOCK, SUBSCRIPTION_BLOCK
from postroad.config import ConfigError, check_network, load_token, load_users
from postroad.errors import PostroadError
from postroad.recording import DirectoryLock, Inquiry, LockedError, Sampler, TrailAnswers, make_record, trail_root
from postroad.server.admin import Admin
from postroad.server.capacity_watch import CapacityWatch
from postroad.server.console import Console
from postroad.server.counts import ServerStatistics
from postroad.server.directories import claim_directories
from postroad.server.durable_admin import DurableAdmin
from postroad.server.extras import check_extras
from postroad.server.gate import Gate
from postroad.server.link_listener import BACKLOG as LINK_BACKLOG
from postroad.server.link_listener import LinkListener
from postroad.server.links import Links
from postroad.server.listeners import CLIENT_LISTENERS
from postroad.server.observation import Observation
from postroad.server.publisher_secret import publisher_secret
from postroad.server.queue_admin import QueueAdmin
from postroad.server.queue_packets import QueuePackets
from postroad.server.queue_watch import QueueWatch
from postroad.server.reservation import Reservation, ReservationError
from postroad.server.status import status
from postroad.server.store_driver import StoreDriver
from postroad.server.tcp import CLOSE_SECONDS, READ_BYTES, STRANGER_READ_BYTES, TcpConnection
from postroad.server.tls import link_keys, link_tls, server_context
from postroad.server.tls_listener import TlsListener
from postroad.sessions import Audit, Dispatcher, Entrance, Holding, Holdings, Terms, steady_clock, wall_clock, who_goes
from postroad.tracking import journey_document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from postroad.broker import BrokerStatistics
    from postroad.config import BrokerConfig, NetworkConfig
    from postroad.messages import MessageId
    from postroad.recording import LiveRecord
    from postroad.security import BrokerKeys
    from postroad.server.listeners import ClientListener, MakeSession
    from postroad.server.tls import LinkTls
    from postroad.sessions import ClientSession
    from postroad.tracking import Exploration

__all__ = ["ListenError", "Service"]

log = logging.getLogger("postroad.server")

# Connections that the kernel may hold until they are accepted; a burst of reconnecting clients fits.
BACKLOG = 1024
_DATA_HELD = (
    "is in use by another broker ({owner}): both would hand out the same numbers. Stop that one, "
    "or give this one a data directory of its own (--data DIR)"
)

STOPPING = "this broker is stopping; connect to another one, or again later"

Listening = TypeVar("Listening", bound="asyncio.Server | LinkListener | TlsListener")


class ListenError(PostroadError):
    """A port cannot be opened."""


class Service:
    """One broker on the network.

    `start` returns when clients can connect; `stop` tells every client, closes every connection and waits for the last
    byte, for at most CLOSE_SECONDS. Both may be cancelled; a cancelled stop leaves connections to the loop.

    Raises:
        ConfigError: the settings need a library or a file that is not there.
        ReservationError: the data directory is not usable.
    """

    def __init__(self, config: BrokerConfig) -> None:
        check_extras(config)
        self.config = config
        self.timer = steady_clock
        self.read_buffer = memoryview(bytearray(READ_BYTES))
        self.stranger_buffer = self.read_buffer[:STRANGER_READ_BYTES]
        self._tls = server_context(config.tls)
        self.audit = Audit()
        users = None if config.users_file is None else load_users(Path(config.users_file))
        self._gate = Gate(users, self.timer, self.audit)
        self._reloading = asyncio.Lock()
        self._terms = Terms(
            gate=self._gate,
            audit=self.audit,
            heart_beat_ms=config.heart_beat_ms,
            connect_ms=int(config.connect_seconds * 1_000),
            push_back=config.push_back,
        )
        claim_directories(config)
        self._tracking = make_record(config, wall_clock)
        self._lock = DirectoryLock(Path(config.data) / "lock", config.number, f"{config.data} {_DATA_HELD}")
        publishers = Reservation(Path(config.data), "publisher", BLOCK)
        subscriptions = Reservation(Path(config.data), "subscription", SUBSCRIPTION_BLOCK)
        core = Broker(
            config.number,
            PublisherNumbers(publishers.reserve),
            config.limits,
            subscription_numbers=SubscriptionNumbers(subscriptions.reserve),
            skew_tolerance_ms=config.tracking.skew_tolerance_ms,
            recorder=None if self._tracking is None else self._tracking.recorder,
            index_secret=secrets.randbits(64),
            in_turns=True,
        )
        self._dispatcher = Dispatcher(core, wall_clock, self.timer)
        # Who may not keep publishers waiting may not do so by what it stores either.
        store = config.store if config.push_back else msgspec.structs.replace(config.store, at_limit="drop-oldest")
        core.queue_settings, data = config.queues, Path(config.data)
        core.know_publishers_again(functools.cache(lambda: publisher_secret(data)))
        self._storage = StoreDriver(data / "store", store, core, self._dispatcher.carry_out, wall_clock)
        self._dispatcher.store = self._storage
        self._link_tls: LinkTls | None = None
        self._keys: BrokerKeys | None = None
        self._links = None if config.network is None else self._linked(core, config.network)
        self._connections: dict[ClientSession, TcpConnection] = {}
        self._entrance: Entrance[TcpConnection] = Entrance(config.limits)
        self._holdings = Holdings(config.limits.memory_bytes, core.waiting)
        self._dispatcher.when_queued = self._look_at_holdings
        self._relieving = False
        self._empty = asyncio.Event()
        self._servers: dict[str, asyncio.Server | LinkListener | TlsListener] = {}
        self.timing = self._timed(core)
        self._inquiry = self._tracked(core)
        token = None if config.admin_token_file is None else load_token(Path(config.admin_token_file))
        self._admin = Admin(
            lambda: status(self),
            lambda: self.is_ready,
            self.troubles,
            None if self._inquiry is None else self._trace,
            None if self._tracking is None else self._tracking.aliased,
            token=token,
            audit=self.audit,
            durable=DurableAdmin(core, self._dispatcher.carry_out, wall_clock),
            queues=QueueAdmin(core, self._dispatcher.carry_out, wall_clock),
            console=Console(self, Observation(self._dispatcher, self.timing), token or ""),
            close=self.close_session,
        )
        self._watch = QueueWatch(core, self)
        self._watching: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._stopping = False
        self._opened = self._relieved = self._internal_errors = 0

    def _linked(self, core: Broker, network: NetworkConfig) -> Links:
        number = self.config.number
        check_network(network, number)
        brokers = network.brokers or [member.number for member in network.members]
        core.homes.home = lambda queue: queue_home(queue, brokers, network.queue_homes)
        keys = self._keys = link_keys(network, number)

        strategy = make_strategy(
            network.strategy,
            number,
            wall_clock(),
            station=network.station,
            settings=network.settings,
            custody=network.delivery == "custody",
            seals=keys,
            secret=secrets.randbits(64),
        )
        relay = Relay(core, strategy, scheme_of(network.settings), order_wait(network.settings))
        self._link_tls = link_tls(network.tls)
        links = Links(number, relay, network, self._dispatcher.carry_out, wall_clock, self.timer, self._link_tls, keys)
        self._dispatcher.links = links
        links.packets = QueuePackets(core, links, brokers, wall_clock)
        # Other strategies know no ways to single brokers.
        linked = {neighbour.number for neighbour in network.neighbours}
        core.homes.can_reach = lambda home: strategy.link_state is not None or home in linked
        return links

    def _timed(self, core: Broker) -> Sampler:
        recorder = None if self._tracking is None else self._tracking.recorder
        watch = self._capacity = CapacityWatch(lambda: sampler.messages, wall_clock)
        sampler = Sampler(core, wall_clock, recorder, watch.monitor.timed)
        self._dispatcher.timing = sampler
        if self._links is not None:
            self._links.timing = sampler
        return sampler

    def _tracked(self, core: Broker) -> Inquiry | None:
        tracking, links = self._tracking, self._links
        if tracking is None:
            return None
        core.alias_attribute = self.config.tracking.alias_attribute
        self._dispatcher.record = tracking
        written = TrailAnswers(trail_root(self.config))
        inquiry = Inquiry(
            core.number,
            wall_clock(),
            tracking.answer,
            wall_clock,
            links,
            self.neighbourhoods,
            written.answer,
            self._keys,
        )
        if links is not None:
            links.on_question = inquiry.received
        return inquiry

    def neighbourhoods(self) -> dict[int, frozenset[int]]:
        """The neighbours of all brokers, as far as the strategy knows them."""
        relay = self._dispatcher.core.relay
        state = None if relay is None else relay.strategy.link_state
        return {} if state is None else state.named()

    # --- what it is ------------------------------------------------------------------------------------------------

    @property
    def dispatcher(self) -> Dispatcher:
        """The core and the sessions of its clients."""
        return self._dispatcher

    @property
    def port(self) -> int:
        """The port for STOMP over TCP."""
        return self._port("stomp")

    @property
    def websocket_port(self) -> int:
        """The port for STOMP over WebSocket."""
        return self._port("websocket")

    @property
    def link_port(self) -> int:
        """The port for links from other brokers."""
        return self._port("link")

    @property
    def links(self) -> Links | None:
        """The links to other brokers, if it belongs to a network."""
        return self._links

    @property
    def admin_port(self) -> int:
        """The port of the admin endpoint."""
        return self._port("admin")

    def _port(self, name: str) -> int:
        return int(self._servers[name].sockets[0].getsockname()[1])

    @property
    def is_ready(self) -> bool:
        """Whether clients can connect."""
        return self._watching is not None and not self._stopping

    def troubles(self) -> list[str]:
        """What does not work as it should, though the broker runs."""
        found = [] if self._tracking is None or not self._tracking.trouble else [f"tracking: {self._tracking.trouble}"]
        if self._storage.trouble:
            found.append(f"store: {self._storage.trouble}")
        barred = [] if self._links is None else self._links.quarantined()
        return found + [
            f"links: broker {one.neighbour} is in quarantine for {one.seconds_left:.0f} s: {one.reason}"
            for one in barred
        ]

    @property
    def storage(self) -> StoreDriver:
        """Drives its store."""
        return self._storage

    @property
    def capacity(self) -> CapacityWatch:
        """How much of its capacity it uses."""
        return self._capacity

    @property
    def tracking(self) -> LiveRecord | None:
        """The record that it keeps, if any."""
        return self._tracking

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

    async def _trace(self, message: MessageId, exploration: Exploration) -> bytes:
        assert self._inquiry is not None
        return msgspec.json.encode(journey_document(await self._inquiry.trace(message, exploration)))

    def statistics(self) -> BrokerStatistics:
        """Counts of the core, for people and for metrics."""
        return self._dispatcher.core.statistics()

    def server_statistics(self) -> ServerStatistics:
        """Counts of connections."""
        return ServerStatistics(
            connections_now=len(self._connections),
            connections=self._opened,
            connections_turned_away=self._entrance.refused,
            strangers_now=self._entrance.stranger_count,
            strangers_evicted=self._entrance.evicted,
            held_bytes_now=self._holdings.total,
            connections_relieved=self._relieved,
            logins_refused=self.audit.counts["login refused"],
            logins_delayed=self.audit.counts["login delayed"],
            subscriptions_refused=self.audit.counts["subscription refused"],
            publications_refused=self.audit.counts["publication refused"],
            origins_refused=self.audit.counts["origin refused"],
            admin_requests_refused=self.audit.counts["admin request refused"],
            internal_errors=self._internal_errors,
        )

    # --- start and stop --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen.

        Raises:
            LockedError: another broker uses the data directory, or writes to the trail under the same number.
            ListenError: a port cannot be opened; none is open then.
        """
        config = self.config
        self._dispatcher.soon = asyncio.get_running_loop().call_soon
        try:
            await asyncio.to_thread(self._lock.claim)
        except OSError as error:
            reason = f"{self._lock.path}: cannot be locked ({error.strerror or error})"
            raise ReservationError(f"{reason}; make the data directory writable, or name another") from error
        try:
            if self._tracking is not None:
                await self._tracking.start()
        except LockedError:
            self._lock.release()
            raise
        await self._storage.start()
        try:
            # The admin endpoint first: it says "not ready" while the others come up.
            if config.admin_port is not None:
                self._servers["admin"] = await _listening("admin_port", config.admin_port, self._admin.listen)
            if config.network is not None and self._links is not None:
                self._servers["link"] = await self._listen_for_links(self._links, config.network)
                self._links.start()
            for listener in CLIENT_LISTENERS:
                await self._listen(listener)
        except ListenError:
            await self.stop()
            raise
        if self._tracking is not None:
            admin = "" if config.admin_port is None else f"http://127.0.0.1:{self.admin_port}"
            await self._tracking.tell(admin, config.tracking.persist_seconds)
        self._watching = asyncio.create_task(self._watch.run())
        self._probing = asyncio.create_task(self._capacity.run())
        ports = {f"{name}_port": self._port(name) for name in self._servers}
        log.info("listening", extra={"broker": config.number, "host": config.host, "tls": bool(config.tls), **ports})

    async def _listen(self, listener: ClientListener) -> None:
        port = getattr(self.config, listener.setting)
        if port is None:
            return
        connection = self._connection(listener)

        async def listen(port: int) -> asyncio.Server | TlsListener:
            if self._tls is not None:
                accepting = TlsListener(self, connection, self._tls, self.config.connect_seconds)
                return await accepting.listen(self.config.host, port, BACKLOG)
            return await asyncio.get_running_loop().create_server(connection, self.config.host, port, backlog=BACKLOG)

        self._servers[listener.name] = await _listening(listener.setting, port, listen)

    def _connection(self, listener: ClientListener) -> Callable[[], TcpConnection]:
        """What makes the connections of a port."""
        make, profile = listener.sessions(self.config), listener.websocket
        if profile is None:
            return lambda: TcpConnection(self, make)
        # A plain install does not bring its library.
        from postroad.server.websocket import WebSocketConnection

        return lambda: WebSocketConnection(self, make, profile)

    async def _listen_for_links(self, links: Links, network: NetworkConfig) -> LinkListener:
        tls = None if self._link_tls is None else self._link_tls.listening

        async def listen(port: int) -> LinkListener:
            return await LinkListener(links, links.strangers, tls).listen(network.host, port, LINK_BACKLOG)

        return await _listening("network.port", network.port, listen)

    async def stop(self) -> None:
        """Tell every client, close every connection, and stop."""
        self._stopping = True
        self._dispatcher.finish()
        if self._links is not None:
            await self._links.stop()
        for task in (self._watching, self._probing):
            if task is not None:
                task.cancel()
        for name, server in self._servers.items():
            if name != "admin":
                server.close()
        for session, connection in list(self._connections.items()):
            try:
                session.refuse(STOPPING)
            except Exception:
                log.exception("internal error", extra={"peer": connection.peer})
                connection.abort()
        cut = await self._wait_until_closed()
        if self._inquiry is not None:
            await self._inquiry.stop()
        await self._storage.stop()
        if self._tracking is not None:
            await self._tracking.stop()
        self._lock.release()
        if "admin" in self._servers:
            self._servers["admin"].close()
        await self._gate.stop()
        log.info("stopped", extra={"connections_cut": cut})

    async def reload_users(self) -> None:
        """Read the users file again. Clients whose user is gone, or has another passcode now, are closed.

        A file that cannot be read changes nothing; the log says so.
        """
        path = self.config.users_file
        if path is None:
            log.info("users not reloaded", extra={"reason": "no users_file is set"})
            return
        # One after the other, so that the last to be asked for is the last to be read.
        async with self._reloading:
            try:
                users = await asyncio.to_thread(load_users, Path(path))
            except ConfigError as error:
                log.error("users not reloaded", extra={"reason": str(error)})
                return
            before = self._gate.users or {}
            self._gate.replace_users(users)
        gone = {login for login, record in before.items() if users.get(login) != record}
        for session in [each for each in self._connections if each.login in gone]:
            session.refuse("this user was removed or has another passcode now; log in again")
        log.info("users reloaded", extra={"users": len(users), "changed_or_removed": len(gone)})

    async def _wait_until_closed(self) -> int:
        """Returns how many connections did not end by themselves in time."""
        if not self._connections:
            return 0
        self._empty.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), CLOSE_SECONDS)
        left = len(self._connections)
        await self.abort()
        return left

    async def abort(self) -> None:
        """Close every connection and every port at once, whatever is written."""
        for server in self._servers.values():
            server.close()
        for connection in list(self._connections.values()):
            connection.abort()
        self._lock.release()
        # The loop reports their loss in its next turn.
        await asyncio.sleep(0)

    # --- what connections report -----------------------------------------------------------------------------------

    def opened(self, connection: TcpConnection, make: MakeSession) -> ClientSession:
        """A client has connected."""
        self._opened += 1
        session = make(self._dispatcher, connection, self._terms)
        self._connections[session] = connection
        refusal = "" if connection in self._entrance else self.arrived(connection, connection.address)
        if refusal:
            asyncio.get_running_loop().call_soon(connection.cut_off, refusal)
        elif self._stopping:
            session.refuse(STOPPING)
        return session

    def arrived(self, connection: TcpConnection, address: str) -> str:
        """A connection was accepted, which may have a TLS handshake to do yet; why it is refused, or an empty text."""
        arrival = self._entrance.arrive(connection, address)
        for stranger in arrival.evicted:
            stranger.cut_off("no CONNECT was answered yet, and newer connections need the place (limit strangers)")
        return arrival.refusal

    def left(self, connection: TcpConnection) -> None:
        """A connection has ended before its TLS handshake was done."""
        self._entrance.leave(connection)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another client."""
        return self._entrance.is_full

    def connected(self, connection: TcpConnection) -> str:
        """A client's CONNECT is to be answered; why it cannot be, or an empty text."""
        return self._entrance.connect(connection)

    def closed(self, connection: TcpConnection, session: ClientSession) -> None:
        """A connection is gone."""
        self._entrance.leave(connection)
        self._connections.pop(session, None)
        if not self._connections:
            self._empty.set()

    # --- memory ----------------------------------------------------------------------------------------------------

    def holds(self, change: int) -> None:
        """What is held for a connection has changed."""
        self._holdings.add(change)
        if change > 0:
            self._look_at_holdings()

    def _look_at_holdings(self) -> None:
        if self._holdings.is_too_much and not self._relieving:
            # Not now: whoever has to go may be in the middle of something.
            self._relieving = True
            asyncio.get_running_loop().call_soon(self._relieve)

    def _relieve(self) -> None:
        """Count what is held for everybody, and cut off who has to go."""
        self._relieving = False
        strangers = set(self._entrance.strangers)
        holdings = [Holding(each, each.held_bytes, each in strangers) for each in self._connections.values()]
        budget = self.config.limits.memory_bytes
        for holding in who_goes(holdings, budget):
            self._relieved += 1
            log.warning("memory used up", extra={"peer": holding.key.peer, "held": holding.bytes, "limit": budget})
            holding.key.cut_off(
                f"the broker's memory for clients is used up ({budget:,} bytes, limit memory_bytes), "
                f"and it holds {holding.bytes:,} bytes for this connection, so this one has to go"
            )
        self._holdings.counted()

    def count_internal_error(self) -> None:
        """A defect closed a connection."""
        self._internal_errors += 1


async def _listening(setting: str, port: int, listen: Callable[[int], Awaitable[Listening]]) -> Listening:
    try:
        return await listen(port)
    except OSError as error:
        raise ListenError(
            f"{setting}: cannot listen on port {port} ({error}); choose another one, or stop the other program"
        ) from error
