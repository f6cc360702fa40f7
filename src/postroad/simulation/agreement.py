"""What brokers say of themselves where they spread link state, told to all others at once instead of link by link."""

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
    """A broker's own records of its links and its subscribers; none where its strategy spreads no link state."""
    state = host.relay.strategy.link_state
    if state is None or not state.neighbours:
        return []
    # Asked by somebody who knows nothing, it tells all that it knows; what it says of itself is wanted here.
    answer = host.relay.strategy.control(Digest(()), next(iter(state.neighbours)), now)
    own = [frame for _, frame in answer.frames if getattr(frame, "broker", 0) == host.core.number]
    wants_nothing = own[1:] == [Interest(host.core.number, state.epoch, 0, b"")]
    return own[:1] if wants_nothing else own


def learn(host: Host, said: Mapping[int, list[Frame]], now: int, carry_out: Callable[[Host, Outbox], None]) -> None:
    """A broker takes over what the others say, and finds its ways."""
    state = host.relay.strategy.link_state
    if state is None or not state.neighbours:
        return
    neighbour = next(iter(state.neighbours))
    for other, frames in said.items():
        for frame in frames if other != host.core.number else ():
            if not isinstance(frame, LinkRecord):
                carry_out(host, host.relay.control(frame, neighbour, now))
            elif state.judge(frame, neighbour, now) is RecordVerdict.NEWS:
                # Nothing is held yet that new ways could help, so it need not pass the relay.
                state.take(frame, neighbour, now)
    while host.relay.working:
        carry_out(host, host.relay.work(now))
    # Ways are found when somebody first asks for them; from now on they are there.
    assert state.routes.number == host.core.number
