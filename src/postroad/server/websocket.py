"""A client over WebSocket: frames of the `websockets` library around the same session as over TCP."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from websockets.exceptions import NegotiationError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from postroad.server.origins import allows_origin
from postroad.server.tcp import TcpConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.server.clients import Clients
    from postroad.server.listeners import MakeSession
    from postroad.sessions import WebSocketProfile

__all__ = ["WebSocketConnection"]

# What a client may send until its CONNECT is answered: the request with a browser's cookies, and a CONNECT frame with
# the frames around it. The library would take a request of 1 MiB, and keep what is not a whole WebSocket message yet.
MAX_STRANGER_BYTES = 32 * 1024

# What is read at once, and for how long: a read of 256 KiB has room for 40,000 frames without content, which take half
# a second. The rest waits until all other connections had a turn.
PART_BYTES = 32 * 1024
TURN_MS = 20

_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
_PONG = b"\x8a"

# The library logs every connection; ours does that already, with more to say.
_library_log = logging.getLogger("postroad.server.websocket")
_library_log.setLevel(logging.ERROR)


class WebSocketConnection(TcpConnection):
    """One WebSocket connection, with or without TLS.

    Args:
        clients, make: as for a plain connection.
        profile: how the protocol travels in WebSocket messages.
    """

    def __init__(self, clients: Clients, make: MakeSession, profile: WebSocketProfile) -> None:
        super().__init__(clients, make)
        self._profile = profile
        self._subprotocols = [Subprotocol(name) for name in profile.subprotocols]
        self._protocol = ServerProtocol(
            # `_answer_to` judges them.
            origins=None,
            subprotocols=self._subprotocols,
            # The library makes a method of its own of this: a method of ours would not get the names.
            select_subprotocol=lambda _, offered: self._choose(offered),
            max_size=profile.max_message_bytes,
            logger=_library_log,
        )
        # Clients in browsers want text; a client that sends binary messages gets such ones.
        self._binary = False
        self._heard = False
        self._refused = False
        self._early_bytes = 0
        # What was read and not looked at yet; while there is some, nothing more is read.
        self._unread = bytearray()
        self._is_turn_due = False
        self._paused = False

    def _choose(self, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        """The newest that both know; a client that names none may speak the protocol all the same."""
        for known in self._subprotocols:
            if known in offered:
                return known
        if offered:
            raise NegotiationError(f"no common subprotocol; spoken here are {', '.join(self._subprotocols)}")
        return None

    def data_received(self, data: bytes | memoryview) -> None:
        if self._shut:
            return
        self._heard = True
        if self._is_stranger:
            self._early_bytes += len(data)
            if self._early_bytes > MAX_STRANGER_BYTES:
                self.cut_off(f"more than {MAX_STRANGER_BYTES:,} bytes came before CONNECT (limit MAX_STRANGER_BYTES)")
                return
        self._unread += data
        if not self._is_turn_due:
            self._read_on()

    def _read_on(self) -> None:
        """Take what was read, part by part; what takes longer than a turn waits for the next."""
        until = self._clients.timer() + TURN_MS
        try:
            while self._unread and not (self._shut or self._paused):
                # Line by line up to the end of the request: a client may send frames right after it, and those can
                # only be read when the request is answered.
                opening = self._protocol.state is State.CONNECTING
                end = self._unread.find(b"\n") + 1 or len(self._unread) if opening else PART_BYTES
                part = bytes(self._unread[:end])
                del self._unread[:end]
                self._take(part)
                if self._unread and self._clients.timer() >= until:
                    self._read_later()
                    return
        except Exception as error:
            self._broke(error)
        if self._shut:
            self._unread.clear()

    def _read_later(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            super().pause_reading()
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_turn_due = False
        if self._transport.is_closing():
            return
        self._read_on()
        self._count_kept()
        if not (self._unread or self._paused):
            super().resume_reading()

    def pause_reading(self) -> None:
        self._paused = True
        super().pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._unread:
            self._read_later()
        else:
            super().resume_reading()

    def _take(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        received = self._payload()
        self._flush()
        if received:
            self._session.received(received)

    @property
    def _kept_now(self) -> int:
        # The library keeps a WebSocket message until it is whole.
        return super()._kept_now + len(self._protocol.reader.buffer) + len(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread.clear()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:
        if not self._shut:
            self._protocol.receive_eof()
        return None

    def _payload(self) -> bytes:
        """What the messages of a part hold, end to end: many messages make one batch here too."""
        pieces: list[bytes] = []
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._protocol.send_response(self._answer_to(event))
            elif isinstance(event, Frame) and event.opcode in _DATA:
                if event.opcode is not Opcode.CONT:
                    self._binary = event.opcode is Opcode.BINARY
                pieces.append(bytes(event.data))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _answer_to(self, request: Request) -> Response:
        if self._refused or self._clients.is_full:
            return self._refusal()
        origin = request.headers.get_all("Origin")
        host = request.headers.get_all("Host")
        config = self._clients.config
        if len(origin) > 1 or not allows_origin(
            origin[0] if origin else None, host[0] if host else "", config.websocket_origins, config.tls is not None
        ):
            self._clients.audit.refused("origin refused", peer=self.peer, origin=", ".join(origin)[:200])
            text = "Pages from this origin may not connect; the setting websocket_origins lists those that may.\n"
            return self._protocol.reject(403, text)
        return self._protocol.accept(request)

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if self._stalled and data[:1] == _PONG:
                # A client that sends pings and reads nothing would make them pile up; RFC 6455 asks for the last only.
                continue
            if data:
                super().write(data)
            else:
                super().close()

    def write(self, data: bytes | memoryview) -> None:
        if self._protocol.state is not State.OPEN:
            return
        for piece in self._profile.pieces(bytes(data)):
            if self._binary or not _is_text(piece):
                self._protocol.send_binary(piece)
            else:
                self._protocol.send_text(piece)
        self._flush()

    def close(self) -> None:
        if self._shut:
            return
        if self._protocol.state is State.CONNECTING and not self._heard:
            # No client expects an answer before it has asked.
            self._refused = True
            self._abort_soon()
            return
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
        elif self._protocol.state is State.CONNECTING:
            self._protocol.send_response(self._refusal())
        self._flush()
        super().close()

    def _refusal(self) -> Response:
        text = "The broker cannot take this connection: it is full, it is stopping, or the request came too late.\n"
        return self._protocol.reject(503, text)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
