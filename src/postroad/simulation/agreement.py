"""Link state told to all brokers at once, instead of link by link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.broker.interests import Interests
from postroad.errors import PostroadError
from postroad.matching import SubscriptionIndex
from postroad.routing import Delta, Digest, Interest, InterestDelta, LinkRecord
from postroad.routing.link_state_records import RecordVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroad.broker import Outbox
    from postroad.routing.link_state_records import Record
    from postroad.simulation.host import Host

__all__ = ["exact_interests", "learn", "said_of_itself"]

_NANOSECONDS_PER_MS = 1_000_000


def said_of_itself(host: Host, now: int) -> list[Record]:
    """Return a broker's own records of its links and its interest; none if its strategy spreads no link state."""
    state = host.relay.strategy.link_state
    if state is None or not state.neighbours:
        return []
    # Asked by a broker that knows nothing, it sends all that it knows; only its own records are wanted here.
    answer = host.relay.strategy.control(Digest(()), next(iter(state.neighbours)), now)
    records = [frame for _, frame in answer.frames if isinstance(frame, LinkRecord | Interest | InterestDelta)]
    own = [frame for frame in records if frame.broker == host.core.number]
    wants_nothing = own[1:] == [Interest(host.core.number, state.epoch, 0, b"")]
    return own[:1] if wants_nothing else own


def exact_interests(said: Mapping[int, list[Record]], matching_ms: int) -> Interests | None:
    """Return what all brokers want, entered once, to be copied to each; None if an index has no room for it.

    Args:
        said: what each broker says about itself.
        matching_ms: what the interest of one broker may cost a message, as each broker limits it.
    """
    known = Interests(SubscriptionIndex(), None, matching_ms * _NANOSECONDS_PER_MS)
    try:
        for broker, frames in said.items():
            for frame in frames:
                if isinstance(frame, Interest):
                    known.replace(broker, frame.summary)
                elif isinstance(frame, InterestDelta):
                    known.change(broker, Delta(frame.added, frame.removed))
    except PostroadError:
        return None
    return known


def learn(
    host: Host,
    said: Mapping[int, list[Record]],
    known: Interests | None,
    now: int,
    carry_out: Callable[[Host, Outbox], None],
) -> None:
    """Let a broker take over what the others say, and compute its routes.

    Args:
        host: the broker.
        said: what each broker says about itself.
        known: what all of them want, if it is to be copied instead of being read by each.
        now: the time in ms.
        carry_out: does what the broker says to it.
    """
    state = host.relay.strategy.link_state
    if state is None or not state.neighbours:
        return
    neighbour = next(iter(state.neighbours))
    for other, frames in said.items():
        for frame in frames if other != host.core.number else ():
            if known is None and not isinstance(frame, LinkRecord):
                carry_out(host, host.relay.control(frame, neighbour, now))
            # Nothing waits yet that new routes could help, so it need not pass the relay.
            elif state.judge(frame, neighbour, now) is RecordVerdict.NEWS:
                state.take(frame, neighbour, now)
    while host.relay.working:
        carry_out(host, host.relay.work(now))
    if known is not None:
        host.relay.adopt(known)
    # Routes are computed on first use; do it now.
    assert state.routes.number == host.core.number
