"""Plays the queue of brokers: when each message comes out, from when it came in.

A loop reads whatever one socket holds as one batch, one socket after the other in the order in which they began to hold
something, and sleeps when none has anything. There is no formula for such a queue with waking, variation and pauses, so
it is played, message by message, some hundred thousand a second: at times that were drawn, or at those of a load that
was measured.

Brokers in a line that share one processor are not one server. Each takes what came from the one before as a batch, runs
until it has nothing left, and sleeps; the processor then goes to the one that was woken first. So messages that come
while a broker further on has the processor share a read at the first one, and stay together from there.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from postroad.capacity.pauses import arrival_rate, drawn_pauses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from postroad.capacity.loop_costs import LoopCosts

    Floats = NDArray[np.float64]

__all__ = ["loop_ends"]

# A broker that still has work after this long gives way to another one that waits for the same processor: the slice of
# a Linux scheduler.
SLICE_SECONDS = 0.003


def loop_ends(
    costs: LoopCosts, times: Floats, sources: NDArray[np.int64] | None = None, seed: int = 0, brokers: int = 1
) -> Floats:
    """When each message is out; those of one batch at the very same time.

    Args:
        costs: of each loop.
        times: when messages come, in order.
        sources: the socket of each; None for one socket.
        seed: of factors and pauses.
        brokers: in a line, on one processor.
    """
    if not len(times):
        return np.zeros(0)
    random = np.random.default_rng(seed)
    sockets = [0] * len(times) if sources is None else sources.tolist()
    factors = random.choice(costs.factors, brokers * len(times)).tolist()
    pauses = drawn_pauses(costs.pauses, arrival_rate(times), random)
    return np.array(_play(costs, times.tolist(), sockets, factors, pauses, brokers))


def _play(
    costs: LoopCosts,
    times: list[float],
    sockets: list[int],
    factors: list[float],
    pauses: Iterator[tuple[float, float]],
    brokers: int,
) -> list[float]:
    fixed, further, wake, total = costs.first - costs.further, costs.further, costs.wake, len(times)
    out = [0.0] * total
    # What each socket of a broker holds, in the order in which sockets began to hold something: so a loop serves them.
    waiting: list[dict[int, list[int]]] = [{} for _ in range(brokers)]
    entry, slept = waiting[0], [True] * brokers
    # Brokers that are awake; the first one has the processor.
    ready: deque[int] = deque()
    pause_at, pause = next(pauses)
    now, come, done, reads, until = -math.inf, 0, 0, 0, 0.0
    while done < total:
        while come < total and times[come] <= now:
            if 0 not in ready:
                ready.append(0)
            entry.setdefault(sockets[come], []).append(come)
            come += 1
        if ready and not waiting[ready[0]]:
            slept[ready.popleft()] = True
            until = now + SLICE_SECONDS
        elif now >= until and len(ready) > 1:
            ready.rotate(-1)
            until = now + SLICE_SECONDS
        if not ready:
            now = times[come]
            while pause_at <= now:
                # One that ends before the message comes delays nobody.
                now = max(now, pause_at + pause)
                pause_at, pause = next(pauses)
            until = now + SLICE_SECONDS
            continue
        broker = ready[0]
        mine = waiting[broker]
        socket = next(iter(mine))
        members = mine.pop(socket)
        if len(members) > costs.most:
            # The rest waits for its turn, behind other sockets.
            mine[socket], members = members[int(costs.most) :], members[: int(costs.most)]
        seconds = fixed + further * len(members)
        now += factors[reads] * (seconds + wake if slept[broker] else seconds)
        slept[broker] = False
        reads += 1
        while pause_at <= now:
            now += pause
            pause_at, pause = next(pauses)
        if broker == brokers - 1:
            for member in members:
                out[member] = now
            done += len(members)
        else:
            waiting[broker + 1].setdefault(0, []).extend(members)
            if broker + 1 not in ready:
                ready.append(broker + 1)
    return out
