"""`WebSocketDecoder`: decodes the WebSocket frames of one client, a read at a time.

The frames of a read become one array of payload: Python code runs once per read, whether it holds one frame or 40,000.
Payload is passed on as it comes, also of a frame or message that is not finished; the protocol inside has its own
frames. So nothing is kept but a beginning of a frame that is too short to be read, which is less than
`LONGEST_CONTROL`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.protocols.websocket import frame_kernels as k

if TYPE_CHECKING:
    from postroad.messages.columns import Bytes

__all__ = ["LONGEST_CONTROL", "Decoded", "WebSocketDecoder", "WebSocketFault"]

# Two bytes, four of the mask, and the most that a control frame may carry.
LONGEST_CONTROL = 2 + 4 + k.MAX_CONTROL_BYTES

# Codes of RFC 6455, 7.4.1.
_PROTOCOL_ERROR, _TOO_BIG = 1002, 1009
# They go into a close frame, which has room for 123 bytes of text.
_TEXTS = {
    k.RESERVED_BITS: "a frame has reserved bits set, but no extension was agreed on",
    k.UNKNOWN_OPCODE: "a frame has an unknown opcode; known are 0, 1, 2, 8, 9 and 10",
    k.NOT_MASKED: "a frame is not masked; clients have to mask all of theirs",
    k.LARGE_CONTROL: f"a control frame carries more than {k.MAX_CONTROL_BYTES} bytes",
    k.CUT_CONTROL: "a control frame is a fragment; it has to come in one piece",
    k.NOTHING_CONTINUED: "a frame continues a message, but none was begun",
    k.MESSAGE_UNFINISHED: "a message begins before the last fragment of the one before it",
}


class WebSocketFault(NamedTuple):
    """Why a connection has to be closed.

    Attributes:
        code: for the close frame.
        text: for people.
    """

    code: int
    text: str


class Decoded(NamedTuple):
    """The result of one read.

    Attributes:
        payload: what its data frames carry, unmasked, end to end.
        ping: the last PING frame, whole and masked; empty for none. It is enough to answer this one (RFC 6455, 5.5.3).
        close: the CLOSE frame, whole and masked; empty for none. What follows it is ignored.
        fault: why the connection has to be closed; None if all is well. What was before the fault is in `payload`.
    """

    payload: Bytes
    ping: bytes = b""
    close: bytes = b""
    fault: WebSocketFault | None = None


class WebSocketDecoder:
    """Decodes one client's frames, after the opening handshake. After a CLOSE frame or a fault, throw it away.

    Args:
        max_message_bytes: the limit of one message, below 2^31.
    """

    __slots__ = ("_limit", "_rest", "_state")

    def __init__(self, max_message_bytes: int) -> None:
        self._limit = max_message_bytes
        self._rest = b""
        self._state = np.zeros(k.STATE, dtype=np.int64)

    @property
    def pending(self) -> int:
        """Bytes kept of an unfinished frame."""
        return len(self._rest)

    @property
    def is_binary(self) -> bool:
        """Whether the last message that began is binary."""
        return int(self._state[k.KIND]) == k.BINARY

    def receive(self, data: bytes | bytearray | memoryview) -> Decoded:
        """Decode what a socket read."""
        if self._rest:
            data = self._rest + data
        state = self._state
        frames = np.frombuffer(data, dtype=np.uint8)
        out = np.empty(len(frames), dtype=np.uint8)
        status = k.decode_frames(frames, state, self._limit, out)
        at, ping, ping_end = (int(state[field]) for field in (k.AT, k.PING, k.PING_END))
        payload = out[: state[k.FILLED]]
        last_ping = frames[ping:ping_end].tobytes()
        self._rest = b""
        if status == k.FINE:
            self._rest = frames[at:].tobytes()
            return Decoded(payload, last_ping)
        if status == k.CLOSING:
            return Decoded(payload, last_ping, frames[at : state[k.CLOSE_END]].tobytes())
        return Decoded(payload, last_ping, fault=self._fault(status))

    def _fault(self, status: int) -> WebSocketFault:
        if status == k.LARGE_MESSAGE:
            return WebSocketFault(_TOO_BIG, f"a message is larger than {self._limit:,} bytes; send smaller ones")
        return WebSocketFault(_PROTOCOL_ERROR, _TEXTS[status])
