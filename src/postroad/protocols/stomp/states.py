"""Which frames a client may send when.

Rule 1: the first frame is CONNECT or STOMP, and it comes once.
Rule 2: after DISCONNECT nothing comes any more, but the server still sends what it owes.
Rule 3: any fault closes the connection: the server sends one ERROR and reads no further.

    START ──CONNECT, STOMP──► CONNECTED ──DISCONNECT──► FINISHED
      └───────────────────────────┴──────── a fault ────────┴──► CLOSED

All other frames leave CONNECTED as it is. What is not in the table is a fault. Whether a transaction or a
subscription that a frame names exists is not known here: the broker's session keeps those.
"""

from __future__ import annotations

from enum import Enum

from postroad.protocols.stomp import columns as c

__all__ = ["TRANSITIONS", "State", "next_state", "refusal"]


class State(Enum):
    """Where a connection is."""

    START = "start"
    CONNECTED = "connected"
    FINISHED = "finished"
    CLOSED = "closed"


TRANSITIONS: dict[tuple[State, int], State] = {
    (State.START, c.CONNECT): State.CONNECTED,
    (State.START, c.STOMP): State.CONNECTED,
    (State.CONNECTED, c.SEND): State.CONNECTED,
    (State.CONNECTED, c.SUBSCRIBE): State.CONNECTED,
    (State.CONNECTED, c.UNSUBSCRIBE): State.CONNECTED,
    (State.CONNECTED, c.ACK): State.CONNECTED,
    (State.CONNECTED, c.NACK): State.CONNECTED,
    (State.CONNECTED, c.BEGIN): State.CONNECTED,
    (State.CONNECTED, c.COMMIT): State.CONNECTED,
    (State.CONNECTED, c.ABORT): State.CONNECTED,
    (State.CONNECTED, c.DISCONNECT): State.FINISHED,
}

_REFUSALS = {
    State.START: "the first frame of a connection is CONNECT or STOMP",
    State.CONNECTED: "this connection is already open; CONNECT comes once",
    State.FINISHED: "nothing may follow DISCONNECT",
    State.CLOSED: "this connection is closed by an error",
}


def next_state(state: State, command: int) -> State | None:
    """Where a frame leads, or None when it is not allowed."""
    return TRANSITIONS.get((state, command))


def refusal(state: State, command: int) -> str:
    """Why a frame is not allowed."""
    return f"{c.COMMANDS[command].decode()} is not allowed here: {_REFUSALS[state]}"
