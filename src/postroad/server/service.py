"""A running broker: listens, keeps the conversations, watches its queues, and stops cleanly."""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from postroad.broker import (
    Broker,
    PublisherNumbers,
    QueuePackets,
    Relay,
    SubscriptionNumbers,
    make_strategy,
    make_unicast,
    order_wait,
    queue_home,
    scheme_of,
)
from postroad.broker.numbers import BLOCK, SUBSCRIPTION_BLOCK
from postroad.config import check_admin, check_network, is_loopback, load_token, load_users
from postroad.errors import PostroadError
from postroad.recording import (
    AgeClock,
    DirectoryLock,
    Inquiry,
    LockedError,
    Sampler,
    TrailAnswers,
    make_record,
    trail_root,
)
from postroad.server.admin import Admin
from postroad.server.admin_client import AdminClient
from postroad.server.admin_listener import AdminListener
from postroad.server.capacity_watch import CapacityWatch
from postroad.server.clients import Clients
from postroad.server.console import Console
from postroad.server.counts import ServerStatistics, server_counts
from postroad.server.directories import claim_directories
from postroad.server.durable_admin import DurableAdmin
from postroad.server.extras import check_extras
from postroad.server.link_listener import BACKLOG as LINK_BACKLOG
from postroad.server.link_listener import LinkListener
from postroad.server.links import Links
from postroad.server.listeners import CLIENT_LISTENERS
from postroad.server.login_gate import Gate
from postroad.server.observation import Observation
from postroad.server.outgoing_admin import OutgoingAdmin
from postroad.server.publisher_secret import publisher_secret
from postroad.server.queue_admin import QueueAdmin
from postroad.server.queue_watch import QueueWatch
from postroad.server.reload import Reload, terms_of
from postroad.server.reservation import Reservation, ReservationError
from postroad.server.status import status
from postroad.server.store_driver import StoreDriver
from postroad.server.tcp import TcpConnection
from postroad.server.tls import console_context, link_keys, link_tls, server_context
from postroad.server.tls_listener import TlsListener
from postroad.server.troubles import quarantines, troubles
from postroad.sessions import Audit, Dispatcher, steady_clock, wall_clock
from postroad.store import StoreReadError
from postroad.tracking import journey_document

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from postroad.broker import BrokerStatistics
    from postroad.config import BrokerConfig, NetworkConfig
    from postroad.messages import MessageId
    from postroad.recording import LiveRecord
    from postroad.security import BrokerKeys
    from postroad.server.listeners import ClientListener
    from postroad.server.tls import LinkTls
    from postroad.sessions.contract import BatchTimer
    from postroad.tracking import Exploration

__all__ = ["ListenError", "Service"]

log = logging.getLogger("postroad.server")

# Connections that the kernel may hold until they are accepted; a burst of reconnecting clients fits.
BACKLOG = 1024
_DATA_HELD = (
    "is in use by another broker ({owner}): both would hand out the same numbers. Stop that one, "
    "or give this one a data directory of its own (--data DIR)"
)

# How often a broker that starts looks whether it has joined its network.
JOIN_LOOK_SECONDS = 0.02

Listening = TypeVar("Listening", bound="asyncio.Server | AdminListener | LinkListener | TlsListener")


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
        check_admin(config)
        self.timer = steady_clock
        self._tls = server_context(config.tls)
        self._admin_tls = server_context(config.admin_tls, "admin_tls")
        self.audit = Audit()
        users = None if config.users_file is None else load_users(Path(config.users_file))
        self._gate = Gate(users, self.timer, self.audit)
        claim_directories(config)
        self._ages = AgeClock(wall_clock, file=Path(config.data) / "ages.json")
        self._tracking = make_record(config, wall_clock, self._ages)
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
        self._storage = StoreDriver(data / "store", store, core, self._dispatcher.carry_out, wall_clock, self._ages)
        self._dispatcher.store = self._storage
        self._link_tls: LinkTls | None = None
        self._keys: BrokerKeys | None = None
        self._links = None if config.network is None else self._linked(core, config.network)
        self._servers: dict[str, asyncio.Server | AdminListener | LinkListener | TlsListener] = {}
        self.timing = self._timed(core)
        self.clients = Clients(
            config, self._dispatcher, terms_of(config, self._gate, self.audit), self.audit, self.timing
        )
        self.inquiry = self._tracked(core)
        self.observation = Observation(self.timing, self._take_timer, wall_clock)
        token = None if config.admin_token_file is None else load_token(Path(config.admin_token_file))
        queues = QueueAdmin(core, self._dispatcher.carry_out, wall_clock)
        durable = DurableAdmin(core, self._dispatcher.carry_out, wall_clock)
        others = AdminClient(token or "", console_context(config.network, self._link_tls))
        self._admin = Admin(
            lambda: status(self),
            lambda: self.is_ready,
            self.troubles,
            None if self.inquiry is None else self._trace,
            None if self._tracking is None else self._tracking.aliased,
            token=token,
            audit=self.audit,
            durable=durable,
            queues=queues,
            outgoing=OutgoingAdmin(core, self._dispatcher.carry_out, wall_clock),
            console=Console(self, self.observation, queues, durable, others),
            close=self.clients.close_session,
            observation=self.observation,
            is_private=not is_loopback(config.admin_host),
        )
        self.reload = Reload(self, self._gate, self._admin)
        self._watch = QueueWatch(core, self)
        self._watching: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._stopping = self._hurried = False

    def _linked(self, core: Broker, network: NetworkConfig) -> Links:
        number = self.config.number
        check_network(network, number)
        brokers = network.brokers or [member.number for member in network.members]
        core.timer = self.timer
        core.homes.brokers = frozenset(brokers)
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
        relay = Relay(
            core,
            strategy,
            scheme_of(network.settings),
            order_wait(network.settings),
            network.settings.hold_ms,
            make_unicast(network.strategy, number, wall_clock(), settings=network.settings, seals=keys),
        )
        self._link_tls = link_tls(network.tls)
        links = Links(number, relay, network, self._dispatcher.carry_out, wall_clock, self.timer, self._link_tls, keys)
        self._dispatcher.links = links
        links.packets = QueuePackets(core, links, brokers, wall_clock)
        return links

    def _timed(self, core: Broker) -> Sampler:
        recorder = None if self._tracking is None else self._tracking.recorder
        watch = self._capacity = CapacityWatch(lambda: sampler.messages, wall_clock)
        sampler = Sampler(core, wall_clock, recorder, watch.monitor.timed)
        self._take_timer(sampler)
        return sampler

    def _take_timer(self, timer: BatchTimer) -> None:
        self._dispatcher.timing = timer
        if self._links is not None:
            self._links.timing = timer

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
        """What does not work as it should while the broker runs."""
        record = "" if self._tracking is None else self._tracking.trouble
        found = troubles(record, self._storage.trouble, self._dispatcher.core, wall_clock())
        return found + ([] if self._links is None else quarantines(self._links.quarantined()))

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

    async def _trace(self, message: MessageId, exploration: Exploration) -> bytes:
        assert self.inquiry is not None
        return msgspec.json.encode(journey_document(await self.inquiry.trace(message, exploration)))

    def statistics(self) -> BrokerStatistics:
        """Counts of the core, for people and for metrics."""
        return self._dispatcher.core.statistics()

    def server_statistics(self) -> ServerStatistics:
        """Counts of connections."""
        return server_counts(self.clients, self.audit)

    # --- start and stop --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen.

        Raises:
            LockedError: another broker uses the data directory, or writes to the trail under the same number.
            StoreReadError: the store cannot be read; it is unchanged.
            ListenError: a port cannot be opened; none is open then.
        """
        config = self.config
        self._dispatcher.soon = asyncio.get_running_loop().call_soon
        try:
            await asyncio.to_thread(self._lock.claim)
        except OSError as error:
            reason = f"{self._lock.path}: cannot be locked ({error.strerror or error})"
            raise ReservationError(f"{reason}; make the data directory writable, or name another") from error
        await asyncio.to_thread(self._ages.begin)
        try:
            if self._tracking is not None:
                await self._tracking.start()
        except LockedError:
            self._lock.release()
            raise
        try:
            await self._storage.start()
            # The admin endpoint first: it says "not ready" while the others come up.
            if config.admin_port is not None:
                self._servers["admin"] = await _listening("admin_port", config.admin_port, self._listen_for_operators)
            if config.network is not None and self._links is not None:
                self._links.state_interest()
                self._servers["link"] = await self._listen_for_links(self._links, config.network)
                self._links.start()
                if config.network.join_seconds and (peers := self._dispatcher.core.peers) is not None:
                    peers.greet(wall_clock())
                await self._joined(self._links, config.network.join_seconds)
            for listener in CLIENT_LISTENERS:
                await self._listen(listener)
        except (ListenError, StoreReadError):
            await self.stop()
            raise
        if self._tracking is not None:
            admin = "" if config.admin_port is None else self._own_admin_address()
            await self._tracking.tell(admin, config.tracking.persist_seconds)
        self._watching = asyncio.create_task(self._watch.run())
        self._probing = asyncio.create_task(self._capacity.run())
        ports = {f"{name}_port": self._port(name) for name in self._servers}
        log.info("listening", extra={"broker": config.number, "host": config.host, "tls": bool(config.tls), **ports})

    async def _joined(self, links: Links, seconds: float) -> None:
        """Wait, for a limited time, until messages published here would reach every broker that wants them."""
        until = self.timer() + 1_000 * seconds
        while not (self._is_joined(links) or self._hurried) and self.timer() < until:  # noqa: ASYNC110
            await asyncio.sleep(JOIN_LOOK_SECONDS)
        if seconds and not self._is_joined(links):
            log.warning("network not joined", extra={"seconds": seconds, "links_up": len(links.up)})

    def _is_joined(self, links: Links) -> bool:
        peers = self._dispatcher.core.peers
        return links.is_joined and (peers is None or peers.is_informed)

    def hurry(self) -> None:
        """Wait for nobody: a broker that starts is to stop."""
        self._hurried = True

    def _own_admin_address(self) -> str:
        """How programs of this machine reach the admin endpoint."""
        host = self.config.admin_host
        near = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
        return f"http{'' if self._admin_tls is None else 's'}://{near}:{self.admin_port}"

    async def _listen_for_operators(self, port: int) -> asyncio.Server | AdminListener:
        return await self._admin.listen(port, self.config.admin_host, self._admin_tls)

    async def _listen(self, listener: ClientListener) -> None:
        port = getattr(self.config, listener.setting)
        if port is None:
            return
        connection = self._connection(listener)

        async def listen(port: int) -> asyncio.Server | TlsListener:
            if self._tls is not None:
                accepting = TlsListener(self.clients, connection, self._tls, self.config.connect_seconds)
                return await accepting.listen(self.config.host, port, BACKLOG)
            return await asyncio.get_running_loop().create_server(connection, self.config.host, port, backlog=BACKLOG)

        self._servers[listener.name] = await _listening(listener.setting, port, listen)

    def _connection(self, listener: ClientListener) -> Callable[[], TcpConnection]:
        """What makes the connections of a port."""
        make, profile = listener.sessions(self.config), listener.websocket
        if profile is None:
            return lambda: TcpConnection(self.clients, make)
        # A plain install does not bring its library.
        from postroad.server.websocket import WebSocketConnection

        return lambda: WebSocketConnection(self.clients, make, profile)

    async def _listen_for_links(self, links: Links, network: NetworkConfig) -> LinkListener:
        async def listen(port: int) -> LinkListener:
            return await LinkListener(links, links.strangers, self._link_tls).listen(network.host, port, LINK_BACKLOG)

        return await _listening("network.port", network.port, listen)

    async def stop(self) -> None:
        """Tell every client, close every connection, and stop."""
        self._stopping = True
        self._dispatcher.finish()
        for task in (self._watching, self._probing):
            if task is not None:
                task.cancel()
        for name, server in self._servers.items():
            if name not in ("admin", "link"):
                server.close()
        # Clients first: what they have sent continues over the links, and nothing comes after it.
        self.clients.stop()
        cut = await self.clients.closed_all()
        self._dispatcher.finish()
        if self._links is not None:
            await self._links.stop(self._returns)
        if "link" in self._servers:
            self._servers["link"].close()
        if self.inquiry is not None:
            await self.inquiry.stop()
        await self._storage.stop()
        if self._tracking is not None:
            await self._tracking.stop()
        self._lock.release()
        if "admin" in self._servers:
            self._servers["admin"].close()
        await self._gate.stop()
        log.info("stopped", extra={"connections_cut": cut})

    @property
    def _returns(self) -> bool:
        """Whether something here outlives this process that wants messages: others keep them for it."""
        return bool(self.statistics().durable_now or self.config.store.retain)

    def take_config(self, config: BrokerConfig) -> None:
        """These are the settings from now on."""
        self.config = self.clients.config = config

    def take_tls(self, tls: ssl.SSLContext | None, admin_tls: ssl.SSLContext | None, links: LinkTls | None) -> None:
        """Show these certificates to who connects from now on, and to neighbours that are dialled from now on."""
        self._tls, self._admin_tls, self._link_tls = tls, admin_tls, links
        if self._links is not None:
            self._links.take_tls(links)
        for name, server in self._servers.items():
            context = admin_tls if name == "admin" else tls
            if isinstance(server, LinkListener):
                server.take_tls(links)
            elif isinstance(server, AdminListener | TlsListener) and context is not None:
                server.take_context(context)

    async def abort(self) -> None:
        """Close every connection and every port at once, whatever is written."""
        for server in self._servers.values():
            server.close()
        self._lock.release()
        await self.clients.abort()


async def _listening(setting: str, port: int, listen: Callable[[int], Awaitable[Listening]]) -> Listening:
    try:
        return await listen(port)
    except (OSError, UnicodeError) as error:  # the latter for a host name with an empty or an overlong part
        is_port = isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES)
        advice = "choose another one, or stop the other program" if is_port else "is its host one of this machine?"
        raise ListenError(f"{setting}: cannot listen on port {port} ({error}); {advice}") from error
