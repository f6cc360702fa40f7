"""`Plan`: the description of a network: its brokers, links, strategy and promise, as TOML that people read and edit."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec

from postroad.topology.errors import PlanError, TopologyError
from postroad.topology.graph import DEFAULT_COST, LARGEST_BROKER, LARGEST_COST, Graph
from postroad.topology.hierarchy import Hierarchy, Station
from postroad.topology.toml import toml_text

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "HIERARCHICAL",
    "PLAN_VERSION",
    "STRATEGY_NAMES",
    "BrokerPlan",
    "Delivery",
    "LinkPlan",
    "Plan",
    "Settings",
    "StrategyName",
]

PLAN_VERSION = 1

# A plan of the largest network is 8 MiB of TOML; what is longer is something else.
MAX_PLAN_BYTES = 16 * 1024 * 1024
# In `Plan.of`: below, systems hand out ports of their own accord.
_FIRST_PORT = 20_000
_LARGEST_PORT = 65_535

# The routing strategies: this is where a new one gets its name, and `broker/strategies.py` says how it is made.
StrategyName = Literal["drp", "flood", "tree", "cluster"]
STRATEGY_NAMES: tuple[StrategyName, ...] = get_args(StrategyName)
# Those that need a place for each broker in a hierarchy.
HIERARCHICAL: frozenset[StrategyName] = frozenset({"tree", "cluster"})
Delivery = Literal["relay", "custody"]
Number = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BROKER)]
Port = Annotated[int, msgspec.Meta(ge=1, le=_LARGEST_PORT)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[^\s\x00-\x1f\x7f]+$")]
PublicKey = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9+/]{43}=$")]
Milliseconds = Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all brokers of a network agree on.

    Attributes:
        heartbeat_ms: how often a link says that it lives.
        missed_heartbeats: after how many silent heart-beats it counts as dead.
        refresh_ms: how often a broker says again what it said about itself.
        lifetime_ms: how long it is believed without that.
        interest: `drp`: how brokers tell each other what their subscribers want: `exact`, or `encoded` as bit vectors.
        categories: encoded: those of B-DRP as it was published (`paper`), or finer ones (`sharp`).
        vector_bits: encoded: the length of a vector, a multiple of 64.
        vector_hashes: encoded: how many bits each category sets.
        broadcast_threshold: `drp`: the share of all brokers above which a message goes to all of them.
        window: how many blocks of 64 ids of each origin are remembered whatever their age, against delivering twice.
        hold_ms: how long messages wait for a way to a broker that cannot be reached, because it is restarted perhaps.
        order: with `publisher`, what comes from other brokers is delivered in the order its publishers
            sent it, also after ways have changed.
    """

    heartbeat_ms: Milliseconds = 1_000
    missed_heartbeats: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 3
    refresh_ms: Milliseconds = 30_000
    lifetime_ms: Milliseconds = 100_000
    interest: Literal["exact", "encoded"] = "exact"
    categories: Literal["paper", "sharp"] = "sharp"
    vector_bits: Annotated[int, msgspec.Meta(ge=64, le=32_768, multiple_of=64)] = 4_096
    vector_hashes: Annotated[int, msgspec.Meta(ge=1, le=32)] = 8
    broadcast_threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.8
    window: Annotated[int, msgspec.Meta(ge=64, le=2**24)] = 16_384
    # At most a minute, which is how long destinations remember every id.
    hold_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 10_000
    order: Literal["none", "publisher"] = "none"


class BrokerPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One broker: where it listens, and in a tree or a cluster its place.

    Attributes:
        number: its number, never used again for another broker.
        host: the address it listens on.
        port: for clients.
        link_port: for other brokers.
        parents: whom it attaches to, in order of preference (`tree`, `cluster`).
        peers: the other controllers at the top, for a controller at the top and for its deputy (`cluster`).
        deputises_for: the top controller whose place it takes when that one fails (`cluster`).
        key: its public key (Ed25519), base64; all brokers of a plan have one, or none.
    """

    number: Number
    host: Name = "127.0.0.1"
    port: Port
    link_port: Port
    parents: tuple[Number, ...] = ()
    peers: tuple[Number, ...] = ()
    deputises_for: Number | None = None
    key: PublicKey | None = None


class LinkPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A link between two brokers.

    Attributes:
        between: the numbers of the two.
        cost: the lower, the more the link is used.
    """

    between: tuple[Number, Number]
    cost: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_COST)] = DEFAULT_COST


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole network. `Plan.parse(plan.to_toml()) == plan`.

    Attributes:
        version: of the format.
        name: of the network.
        strategy: how messages find their way.
        delivery: what a crash may lose.
        tls: brokers have certificates of the network's own authority, and links speak TLS.
        settings: what all brokers agree on.
        brokers: who belongs to it.
        links: who is linked with whom.
        queue_homes: the broker that has a queue, by the queue's name; for others a hash of the name says it.
    """

    version: Literal[1] = 1
    name: Name
    strategy: StrategyName = "drp"
    delivery: Delivery = "relay"
    tls: bool = False
    settings: Settings = Settings()
    brokers: tuple[BrokerPlan, ...]
    links: tuple[LinkPlan, ...] = ()
    queue_homes: dict[str, int] = {}

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read a plan from TOML and check it.

        Raises:
            PlanError: it is not a plan; the error begins with the path of the field.
        """
        if len(text) > MAX_PLAN_BYTES:
            raise PlanError("", f"a plan has at most {MAX_PLAN_BYTES:,} characters, this has {len(text):,}")
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise PlanError("", f"not TOML: {error}") from None
        # Looked at first: in a later version, anything else may be different too.
        if (version := data.get("version")) != PLAN_VERSION:
            raise PlanError("version", f"this is for plans of version {PLAN_VERSION}; the plan says {version!r}")
        try:
            plan = msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise _named(error) from error
        return plan.checked()

    @classmethod
    def of(
        cls,
        shape: Graph | Hierarchy,
        name: str,
        *,
        strategy: StrategyName = "drp",
        delivery: Delivery = "relay",
        host: str = "127.0.0.1",
        first_port: int = _FIRST_PORT,
        settings: Settings | None = None,
    ) -> Plan:
        """A plan of this shape on one host, with two ports for each broker from `first_port` on."""
        graph = shape.graph() if isinstance(shape, Hierarchy) else shape
        stations = shape.stations if isinstance(shape, Hierarchy) else {}
        if first_port + 2 * len(graph.brokers) - 1 > _LARGEST_PORT:
            raise PlanError("brokers", f"two ports each from {first_port} on go past {_LARGEST_PORT:,}: use more hosts")
        brokers = tuple(
            _placed(number, host, first_port + 2 * place, stations.get(number, Station()))
            for place, number in enumerate(graph.brokers)
        )
        links = tuple(LinkPlan(between=ends, cost=cost) for ends, cost in graph.links.items())
        return cls(
            name=name,
            strategy=strategy,
            delivery=delivery,
            settings=settings or Settings(),
            brokers=brokers,
            links=links,
        ).checked()

    def to_toml(self) -> str:
        """The plan as TOML; what has its default value is left out, except where a reader would miss it."""
        return toml_text(_stated(msgspec.to_builtins(self)))

    def graph(self) -> Graph:
        """Its brokers and links."""
        return Graph(
            (broker.number for broker in self.brokers),
            {(min(link.between), max(link.between)): link.cost for link in self.links},
        )

    def hierarchy(self) -> Hierarchy:
        """The place of each broker in its tree or cluster."""
        return Hierarchy(
            {one.number: Station(one.parents, one.peers, one.deputises_for) for one in self.brokers},
        )

    def checked(self) -> Plan:
        """The plan itself.

        Raises:
            PlanError: numbers used twice, links to nowhere, places that contradict each other, or no connection.
        """
        if not self.brokers:
            raise PlanError("brokers", "a network has at least one broker")
        if self.settings.lifetime_ms <= self.settings.refresh_ms:
            raise PlanError("settings.lifetime_ms", "must be longer than refresh_ms, or brokers vanish between two")
        self._check_brokers()
        self._check_links()
        numbers = {broker.number for broker in self.brokers}
        for queue, home in self.queue_homes.items():
            if home not in numbers:
                raise PlanError(f"queue_homes.{queue}", f"there is no broker {home}")
        if self.strategy in HIERARCHICAL:
            self._check_places()
        try:
            connected = self.graph().is_connected
        except TopologyError as error:
            raise PlanError("links", str(error)) from None
        if not connected:
            raise PlanError("links", "some brokers cannot be reached from others; add links between the parts")
        return self

    def _check_brokers(self) -> None:
        _check_distinct(((f"brokers[{at}].number", one.number) for at, one in enumerate(self.brokers)), "number")
        places = [
            (f"brokers[{at}].{field}", (one.host, getattr(one, field)))
            for at, one in enumerate(self.brokers)
            for field in ("port", "link_port")
        ]
        _check_distinct(places, "host and port")
        keys = [(f"brokers[{at}].key", one.key) for at, one in enumerate(self.brokers) if one.key is not None]
        _check_distinct(keys, "key")
        if keys and len(keys) < len(self.brokers):
            at = next(at for at, one in enumerate(self.brokers) if one.key is None)
            raise PlanError(f"brokers[{at}].key", "is missing: all brokers have keys, or none")

    def _check_links(self) -> None:
        numbers = {broker.number for broker in self.brokers}
        for at, link in enumerate(self.links):
            for end in link.between:
                if end not in numbers:
                    raise PlanError(f"links[{at}].between", f"there is no broker {end}")
            if link.between[0] == link.between[1]:
                raise PlanError(f"links[{at}].between", f"broker {link.between[0]} cannot be linked to itself")
        _check_distinct(
            ((f"links[{at}].between", tuple(sorted(link.between))) for at, link in enumerate(self.links)), "pair"
        )

    def _check_places(self) -> None:
        numbers = {broker.number: broker for broker in self.brokers}
        for at, broker in enumerate(self.brokers):
            named = {"parents": broker.parents, "peers": broker.peers, "deputises_for": (broker.deputises_for,)}
            for field, others in named.items():
                for other in others:
                    if other is not None and (other not in numbers or other == broker.number):
                        raise PlanError(f"brokers[{at}].{field}", f"there is no other broker {other}")
            named_there = broker.deputises_for or broker.number
            for peer in broker.peers:
                if named_there not in numbers[peer].peers:
                    raise PlanError(f"brokers[{at}].peers", f"broker {peer} does not name {named_there} as its peer")
        self._check_order()
        tops = [broker.number for broker in self.brokers if not broker.parents]
        if self.strategy == "tree" and len(tops) != 1:
            raise PlanError("brokers", f"a tree has one broker without parents, its root; here are {len(tops)}: {tops}")

    def _check_order(self) -> None:
        """No broker may come above itself, whichever of the named parents are chosen."""
        left = {broker.number: set(broker.parents) for broker in self.brokers}
        while free := [number for number, parents in left.items() if not parents & left.keys()]:
            for number in free:
                del left[number]
        if left:
            at = next(at for at, broker in enumerate(self.brokers) if broker.number in left)
            raise PlanError(f"brokers[{at}].parents", f"these brokers are above each other in a ring: {sorted(left)}")


def _placed(number: int, host: str, port: int, station: Station) -> BrokerPlan:
    return BrokerPlan(
        number=number,
        host=host,
        port=port,
        link_port=port + 1,
        parents=station.parents,
        peers=station.peers,
        deputises_for=station.deputises_for,
    )


def _check_distinct(named: Iterable[tuple[str, object]], what: str) -> None:
    seen: dict[object, str] = {}
    for path, value in named:
        if value in seen:
            raise PlanError(path, f"the same {what} as {seen[value]}: {value}")
        seen[value] = path


def _named(error: msgspec.ValidationError) -> PlanError:
    """msgspec ends its errors with the path, as in "Expected `int`, got `str` - at `$.brokers[0].number`"."""
    problem, _, path = str(error).partition(" - at `")
    return PlanError(path.rstrip("`").removeprefix("$").removeprefix("."), problem)


def _stated(value: Any) -> Any:
    """Fields as they are written: what is false or empty goes without saying."""
    if not isinstance(value, dict):
        return [_stated(one) for one in value] if isinstance(value, (list, tuple)) else value
    return {name: _stated(one) for name, one in value.items() if one not in (None, (), {}) and one is not False}
