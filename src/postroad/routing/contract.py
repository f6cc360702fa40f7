"""The contract of a routing strategy: what the broker's core asks, and what it reports. `docs/routing.md` explains it.

A strategy has no sockets and no clock. A link is known by the number of the broker at its other end. `now` is in
milliseconds and never goes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroad.messages import Batch
    from postroad.routing.control_frames import Frame
    from postroad.routing.destinations import Destinations, Integers
    from postroad.routing.link_state import LinkState

__all__ = ["NOTHING", "Delta", "InterestChange", "Matcher", "Parcel", "Reaction", "Routed", "Strategy"]

if TYPE_CHECKING:
    # Reads a topic pattern; returns a function that says whether a topic fits it.
    Matcher = Callable[[str], Callable[[str], bool]]


class Delta(NamedTuple):
    """How an interest changed, in the form that brokers advertise it: what came, and what went; empty for nothing.

    Adding what is there already, or taking away what is not, changes nothing.
    """

    added: bytes
    removed: bytes


class Parcel(NamedTuple):
    """Rows of `Routed.batch` and the destinations they travel with, for one link (0: for none)."""

    link: int
    rows: Integers
    destinations: Destinations


class Routed(NamedTuple):
    """What becomes of a batch.

    Attributes:
        batch: the rows that came in, in order, with the envelopes with which they are relayed.
        parcels: what to send, at most one for each link.
        local: rows to match against local subscriptions.
        held: destinations without a way to them now: keep them and `reroute` when a reaction says so, or give up.
        exhausted: destinations whose hop limit ran out on the way; a dead letter.
        duplicates: rows that were dropped because their id was seen before.
        doubtful: those of `local` that may have been delivered here before: it is too long ago to know.
    """

    batch: Batch
    parcels: list[Parcel]
    local: Integers
    held: Parcel | None = None
    exhausted: Parcel | None = None
    duplicates: int = 0
    doubtful: Integers | None = None


class Reaction(NamedTuple):
    """What a change calls for.

    Attributes:
        frames: (link, control frame) to send, in order.
        interests: (broker, interest) of other brokers that changed, in order: a whole, or how the one before it
            changed; None when the broker is gone.
        retry: there are new ways: `reroute` what is held.
        connect: brokers to which a link is wanted that the plan does not have.
        disconnect: links to close: nothing goes over them any more.
        refused: records that were not believed, though the neighbour that sent them is not to blame.
    """

    frames: list[tuple[int, Frame]] = []  # noqa: RUF012  # never written to
    interests: list[tuple[int, bytes | Delta | None]] = []  # noqa: RUF012
    retry: bool = False
    connect: tuple[int, ...] = ()
    disconnect: tuple[int, ...] = ()
    refused: int = 0

    def __add__(self, other: object) -> Reaction:
        """Both, one after the other."""
        if not isinstance(other, Reaction):
            return NotImplemented
        return Reaction(
            [*self.frames, *other.frames],
            [*self.interests, *other.interests],
            self.retry or other.retry,
            self.connect + other.connect,
            self.disconnect + other.disconnect,
            self.refused + other.refused,
        )


NOTHING = Reaction()


class InterestChange(NamedTuple):
    """How the wants of this broker's own subscribers changed. Each strategy takes the part it understands.

    Attributes:
        summary: the whole interest in the form that brokers advertise it (`drp`); None when it is unchanged, or when
            `delta` says how it changed.
        added: topic patterns of subscriptions that came, one for each (`tree`, `cluster`).
        removed: topic patterns of subscriptions that went.
        delta: how the interest changed (`drp`).
        whole: gives the whole interest, should the change not be enough; with every delta.
    """

    summary: bytes | None = None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    delta: Delta | None = None
    whole: Callable[[], bytes] | None = None


class Strategy(Protocol):
    """One broker's way of routing."""

    def publish(self, batch: Batch, wanted: Destinations, now: int) -> Routed:
        """Messages enter the network here.

        Args:
            batch: the rows.
            wanted: which brokers may want each row: too many do no harm, too few lose messages. Nowhere, if the
                strategy keeps no link state.
            now: the time.
        """

    def relay(self, batch: Batch, destinations: Destinations, link: int, now: int) -> Routed:
        """Messages arrived over a link."""

    def reroute(self, batch: Batch, destinations: Destinations, now: int, *, returned: bool) -> Routed:
        """Rows that were held, or (`returned`) that a broken link gave back and that may have arrived anyway."""

    def control(self, frame: Frame, link: int, now: int) -> Reaction:
        """A control frame arrived over a link.

        Raises:
            RoutingError: the frame makes no sense; the link should be closed.
        """

    def link_up(self, link: int, cost: int, now: int) -> Reaction:
        """A link to another broker works."""

    def link_down(self, link: int, now: int) -> Reaction:
        """A link is gone. What it did not deliver comes back by `reroute`."""

    def interest(self, change: InterestChange, now: int) -> Reaction:
        """Local subscribers want something else."""

    def tick(self, now: int) -> Reaction:
        """Time passes: to be called about once a second."""

    def leave(self, now: int, returns: bool = False) -> Reaction:
        """The broker is about to go, in order; with `returns`, others should keep for it what it wants."""

    @property
    def link_state(self) -> LinkState | None:
        """What every broker says about its links and interest; None if the strategy does not spread that."""

    @property
    def membership(self) -> int:
        """A digest of the known brokers, which changes with them; 0 for strategies that do not know all brokers."""

    def statistics(self) -> dict[str, int]:
        """Counters and sizes by name."""
