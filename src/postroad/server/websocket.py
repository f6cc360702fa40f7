"""A client over WebSocket: the opening handshake, and frames around the same session as over TCP.

The `websockets` library answers the request, and writes frames. Those of the client are decoded a read at a time by
`postroad.protocols.websocket`; the library gets only the PING and the CLOSE to answer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from websockets.exceptions import NegotiationError
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from postroad.protocols.websocket import WebSocketDecoder
from postroad.server.origins import allows_origin
from postroad.server.tcp import TcpConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroad.server.clients import Clients
    from postroad.server.listeners import MakeSession
    from postroad.sessions import SharedBytes, WebSocketProfile

__all__ = ["WebSocketConnection"]

# What a client may send until its CONNECT is answered: the request with a browser's cookies, and a CONNECT frame with
# the frames around it. The library would take a request of 1 MiB, and keep what is not a whole WebSocket message yet.
MAX_STRANGER_BYTES = 32 * 1024

# The library logs every connection; ours does that already, with more to say.
_library_log = logging.getLogger("postroad.server.websocket")
_library_log.setLevel(logging.ERROR)


class WebSocketConnection(TcpConnection):
    """One WebSocket connection, with or without TLS.

    Args:
        clients, make: as for a plain connection.
        profile: how the protocol travels in WebSocket messages.
    """

    # A WebSocket ends with CLOSE in both directions; without it, the connection was lost.
    answers_ended = False

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
        self._decoder = WebSocketDecoder(profile.max_message_bytes)
        # The last PING that came while the socket took nothing.
        self._unanswered = b""
        self._heard = False
        self._refused = False
        self._early_bytes = 0

    def _choose(self, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        """The newest that both know; a client that names none may speak the protocol anyway."""
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
        try:
            rest = memoryview(data)
            if self._protocol.state is State.CONNECTING:
                rest = self._shake_hands(rest)
            if rest and self._protocol.state is State.OPEN:
                self._take(rest)
        except Exception as error:
            self._broke(error)

    def _shake_hands(self, data: memoryview) -> memoryview:
        """Read and answer the request; return what the client sent right after it.

        Line by line up to the end of the request: frames after it can only be decoded when it is answered.
        """
        lines, at = bytes(data), 0
        while at < len(lines) and self._protocol.state is State.CONNECTING and not self._shut:
            start, at = at, lines.find(b"\n", at) + 1 or len(lines)
            self._protocol.receive_data(lines[start:at])
            for event in self._protocol.events_received():
                if isinstance(event, Request):
                    self._protocol.send_response(self._answer_to(event))
            self._flush()
        return data[at:]

    def _take(self, data: memoryview) -> None:
        """Pass on what the frames of a read carry: many messages make one batch here too."""
        found = self._decoder.receive(data)
        if found.ping and self._stalled:
            # A client that sends pings and reads nothing would make the answers pile up; RFC 6455 asks for the last
            # only. That one is answered later: many clients take a slow connection without a PONG for a dead one.
            self._unanswered = found.ping
        elif found.ping:
            self._answer(found.ping)
        if len(found.payload):
            self._session.received(found.payload.data)
        if self._protocol.state is not State.OPEN:
            # The session has closed the connection.
            return
        if found.close:
            self._answer(found.close)
        elif found.fault is not None:
            self._protocol.fail(*found.fault)
            self._flush()

    def _answer(self, frame: bytes) -> None:
        """Have the library answer a whole control frame."""
        self._protocol.receive_data(frame)
        self._protocol.events_received()
        self._flush()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unanswered and not self._stalled:
            ping, self._unanswered = self._unanswered, b""
            if self._protocol.state is State.OPEN:
                self._answer(ping)

    @property
    def _kept_now(self) -> int:
        # The library keeps a line of the request until it is whole.
        return super()._kept_now + len(self._protocol.reader.buffer) + self._decoder.pending

    def eof_received(self) -> bool | None:
        if not self._shut:
            self._protocol.receive_eof()
        return super().eof_received()

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
            if data:
                super().write(data)
            else:
                # At once: the client may take seconds to close its side, and gets nothing that comes until then.
                self._session.lost("the WebSocket was closed")
                super().close()

    @property
    def shares(self) -> bool:
        # A WebSocket message holds whole frames.
        return False

    def write(self, data: bytes | memoryview, shared: SharedBytes | None = None) -> None:
        if self._protocol.state is not State.OPEN:
            return
        for piece in self._profile.pieces(bytes(data)):
            if self._decoder.is_binary or not _is_text(piece):
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
