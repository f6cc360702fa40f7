"""Which frames a client may send when.

Rule 1: the first frame is CONNECT or STOMP, which must not occur again.
Rule 2: after DISCONNECT the client sends nothing more; the server still sends receipts.
Rule 3: any fault closes the connection: the server sends one ERROR and reads no further.

    START ──CONNECT, STOMP──► CONNECTED ──DISCONNECT──► FINISHED
      └───────────────────────────┴──────── a fault ────────┴──► CLOSED

All other frames leave CONNECTED as it is. What is not in the table is a fault. Whether a transaction or
a subscription exists is not checked here: the session knows them.
"""

from __future__ import annotations

from enum import Enum

from postroad.protocols.stomp import columns as c

__all__ = ["TRANSITIONS", "State", "next_state", "refusal"]


class State(Enum):
    """The state of a connection."""

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
    """Return the state after a frame, or None if the frame is not allowed."""
    return TRANSITIONS.get((state, command))


def refusal(state: State, command: int) -> str:
    """Return why a frame is not allowed."""
    return f"{c.COMMANDS[command].decode()} is not allowed here: {_REFUSALS[state]}"
