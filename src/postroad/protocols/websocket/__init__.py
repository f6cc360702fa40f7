"""WebSocket frames of a client without I/O (RFC 6455): what they carry, joined to one stream of bytes per read."""

from __future__ import annotations

from postroad.protocols.websocket.decoder import Decoded, WebSocketDecoder, WebSocketFault

__all__ = ["Decoded", "WebSocketDecoder", "WebSocketFault"]
