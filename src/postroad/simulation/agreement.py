"""Link state told to all brokers at once, instead of link by link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.routing import Digest, Interest, LinkRecord
from postroad.routing.records import RecordVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroad.broker import Outbox
    from postroad.routing import Frame
    from postroad.simulation.host import Host

__all__ = ["learn", "said_of_itself"]


def said_of_itself(host: Host, now: int) -> list[Frame]:
    """Return a broker's own records of its links and its interest; none if its strategy spreads no link state."""
    state = host.relay.strategy.link_state
    if state is None or not state.neighbours:
        return []
    # Asked by a broker that knows nothing, it sends all that it knows; only its own records are wanted here.
    answer = host.relay.strategy.control(Digest(()), next(iter(state.neighbours)), now)
    own = [frame for _, frame in answer.frames if getattr(frame, "broker", 0) == host.core.number]
    wants_nothing = own[1:] == [Interest(host.core.number, state.epoch, 0, b"")]
    return own[:1] if wants_nothing else own


def learn(host: Host, said: Mapping[int, list[Frame]], now: int, carry_out: Callable[[Host, Outbox], None]) -> None:
    """Let a broker take over what the others say, and compute its routes."""
    state = host.relay.strategy.link_state
    if state is None or not state.neighbours:
        return
    neighbour = next(iter(state.neighbours))
    for other, frames in said.items():
        for frame in frames if other != host.core.number else ():
            if not isinstance(frame, LinkRecord):
                carry_out(host, host.relay.control(frame, neighbour, now))
            elif state.judge(frame, neighbour, now) is RecordVerdict.NEWS:
                # Nothing waits yet that new routes could help, so it need not pass the relay.
                state.take(frame, neighbour, now)
    while host.relay.working:
        carry_out(host, host.relay.work(now))
    # Routes are computed on first use; do it now.
    assert state.routes.number == host.core.number
