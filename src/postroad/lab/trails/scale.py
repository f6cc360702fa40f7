"""How large a generated trail is, what traffic it records, and what went wrong in it."""

from __future__ import annotations

from dataclasses import dataclass

from postroad.errors import PostroadError

__all__ = ["RECORDERS", "Faults", "Scale"]

RECORDERS = ("exact", "sealed", "bloom")
RELAY_KEYS = ("each", "sets")

# 2026-01-01, midnight UTC: the same seed gives the same trail, so its hour cannot come from the clock.
DEFAULT_START = 1_767_225_600_000
# A broker's mask of interests is a row of this many columns in each slice; far above any network tried here.
MAX_BROKERS = 1_000
_COUNTERS = 65_536


@dataclass(frozen=True)
class Faults:
    """What goes wrong, as shares of the messages unless said otherwise.

    Attributes:
        lost: relayed to a link, and never seen at its other end.
        shed: dropped at the queue of one of their subscriptions.
        acknowledging: share of the subscriptions that acknowledge what they get.
        gaps: brokers whose record has a gap of one seal interval.
    """

    lost: float = 0.0
    shed: float = 0.0
    acknowledging: float = 0.0
    gaps: int = 0

    def __post_init__(self) -> None:
        for name in ("lost", "shed", "acknowledging"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise PostroadError(f"the share of {name} is between 0 and 1, not {share}")
        if self.lost + self.shed > 1:
            raise PostroadError("a message has at most one fault: the shares of lost and shed add up to more than 1")
        if self.gaps < 0:
            raise PostroadError(f"the number of gaps is 0 or more, not {self.gaps}")


@dataclass(frozen=True)
class Scale:
    """What is generated. The defaults are one hour of a network of twenty brokers.

    Attributes:
        brokers: in a power-law network.
        messages: published in all.
        seed: the same seed and settings give the same trail.
        recorder: what the brokers keep: one of `RECORDERS`.
        publishers: at each broker.
        subscriptions: at each broker.
        interests: distinct sets of subscriptions that a message can have.
        start: Unix ms of the first id.
        seconds: over which the messages are spread.
        seal_seconds: how often each broker seals and commits; a small number makes many small files.
        faults: what goes wrong.
        relay_keys: whether filters have a key for each neighbour that a message was relayed to, or one for all.
        aliases: whether each message also has a foreign id (`alias_of`).
    """

    brokers: int = 20
    messages: int = 10_000_000
    seed: int = 1
    recorder: str = "exact"
    publishers: int = 200
    subscriptions: int = 25
    interests: int = 10_000
    start: int = DEFAULT_START
    seconds: int = 3_600
    seal_seconds: int = 60
    faults: Faults = Faults()
    relay_keys: str = "each"
    aliases: bool = False

    def __post_init__(self) -> None:
        if self.relay_keys not in RELAY_KEYS:
            raise PostroadError(f"keys of what was relayed are one of {RELAY_KEYS}, not {self.relay_keys!r}")
        if self.recorder not in RECORDERS:
            raise PostroadError(f"there is no recorder {self.recorder!r} to imitate; choose one of {RECORDERS}")
        for name in ("brokers", "messages", "publishers", "subscriptions", "interests", "seconds", "seal_seconds"):
            if getattr(self, name) < 1:
                raise PostroadError(f"the number of {name} is 1 or more, not {getattr(self, name)}")
        if self.brokers > MAX_BROKERS:
            raise PostroadError(f"at most {MAX_BROKERS:,} brokers, not {self.brokers:,}")
        if self.seed < 0:
            raise PostroadError(f"a seed is 0 or more, not {self.seed}")
        # Far beyond this, the ids of one publisher and millisecond would run out of counters.
        if self.messages / (self.brokers * self.publishers * self.seconds * 1_000) > _COUNTERS / 8:
            raise PostroadError("too many messages for so few publishers and seconds: ids would run out; raise either")

    @property
    def slices(self) -> int:
        """Return how many times each broker seals."""
        return -(-self.seconds // self.seal_seconds)

    def span(self, part: int) -> tuple[int, int]:
        """Return the first id time of a slice, and the first after it."""
        since = self.start + 1_000 * self.seal_seconds * part
        return since, min(since + 1_000 * self.seal_seconds, self.start + 1_000 * self.seconds)

    @property
    def end(self) -> int:
        """Return the first time after the last slice."""
        return self.start + 1_000 * self.seconds
