"""A running broker: listens, keeps the conversations, watches its queues, and stops cleanly."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

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
from postroad.server.capacity_watch import CapacityWatch
from postroad.server.clients import Clients
from postroad.server.console import Console
from postroad.server.counts import ServerStatistics, server_counts
from postroad.server.directories import claim_directories
from postroad.server.durable_admin import DurableAdmin
from postroad.server.extras import check_extras
from postroad.server.links import Links
from postroad.server.login_gate import Gate
from postroad.server.observation import Observation
from postroad.server.outgoing_admin import OutgoingAdmin
from postroad.server.ports import ListenError, Ports
from postroad.server.publisher_secret import publisher_secret
from postroad.server.queue_admin import QueueAdmin
from postroad.server.queue_watch import QueueWatch
from postroad.server.reload import Reload, terms_of
from postroad.server.reservation import Reservation, ReservationError
from postroad.server.status import status
from postroad.server.store_driver import StoreDriver
from postroad.server.tls import console_context, link_keys, link_tls, server_context
from postroad.server.troubles import quarantines, troubles
from postroad.sessions import Audit, Dispatcher, steady_clock, wall_clock
from postroad.store import StoreReadError
from postroad.tracking import journey_document

if TYPE_CHECKING:
    import ssl

    from postroad.broker import BrokerStatistics
    from postroad.config import BrokerConfig, NetworkConfig
    from postroad.messages import MessageId
    from postroad.recording import LiveRecord
    from postroad.security import BrokerKeys
    from postroad.server.tls import LinkTls
    from postroad.sessions.contract import BatchTimer
    from postroad.tracking import Exploration

__all__ = ["Service"]

log = logging.getLogger("postroad.server")

_DATA_HELD = (
    "is in use by another broker ({owner}): both would give the same numbers. Stop that one, "
    "or give this one a data directory of its own (--data DIR)"
)

# How often a broker that starts looks whether it has joined its network.
JOIN_LOOK_SECONDS = 0.02


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
        tls = server_context(config.tls)
        admin_tls = server_context(config.admin_tls, "admin_tls")
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
        self.timing = self._timed(core)
        self.clients = Clients(
            config, self._dispatcher, terms_of(config, self._gate, self.audit), self.audit, self.timing
        )
        self.ports = Ports(config, self.clients, tls, admin_tls)
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
        return self.ports.number("stomp")

    @property
    def websocket_port(self) -> int:
        """The port for STOMP over WebSocket."""
        return self.ports.number("websocket")

    @property
    def link_port(self) -> int:
        """The port for links from other brokers."""
        return self.ports.number("link")

    @property
    def links(self) -> Links | None:
        """The links to other brokers, if it belongs to a network."""
        return self._links

    @property
    def admin_port(self) -> int:
        """The port of the admin endpoint."""
        return self.ports.number("admin")

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
            await self.ports.listen_for_operators(self._admin)
            if config.network is not None and self._links is not None:
                self._links.state_interest()
                await self.ports.listen_for_links(self._links, config.network, self._link_tls)
                self._links.start()
                if config.network.join_seconds and (peers := self._dispatcher.core.peers) is not None:
                    peers.greet(wall_clock())
                await self._joined(self._links, config.network.join_seconds)
            await self.ports.listen_for_clients()
        except (ListenError, StoreReadError):
            await self.stop()
            raise
        if self._tracking is not None:
            await self._tracking.tell(self.ports.admin_address, config.tracking.persist_seconds)
        self._watching = asyncio.create_task(self._watch.run())
        self._probing = asyncio.create_task(self._capacity.run())
        where = {"host": config.host, "tls": bool(config.tls), **self.ports.numbers()}
        log.info("listening", extra={"broker": config.number, **where})

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

    async def stop(self) -> None:
        """Tell every client, close every connection, and stop."""
        self._stopping = True
        self._dispatcher.finish()
        for task in (self._watching, self._probing):
            if task is not None:
                task.cancel()
        self.ports.close_to_clients()
        # Clients first: what they have sent continues over the links, and nothing comes after it.
        self.clients.stop()
        cut = await self.clients.closed_all()
        self._dispatcher.finish()
        if self._links is not None:
            await self._links.stop(self._returns)
        self.ports.close_to_links()
        if (peers := self._dispatcher.core.peers) is not None:
            peers.stop(wall_clock())
        if self.inquiry is not None:
            await self.inquiry.stop()
        await self._storage.stop()
        if self._tracking is not None:
            await self._tracking.stop(is_whole=not self._storage.leaves_unknown)
        self._lock.release()
        # The admin endpoint last: it says "not ready" while the broker stops.
        self.ports.close()
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
        self._link_tls = links
        if self._links is not None:
            self._links.take_tls(links)
        self.ports.take_tls(tls, admin_tls, links)

    async def abort(self) -> None:
        """Close every connection and every port at once, whatever is written."""
        self.ports.close()
        self._lock.release()
        await self.clients.abort()
