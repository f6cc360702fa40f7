"""STOMP over TCP: the asyncio protocol that moves bytes between a socket and a conversation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from postroad.server.conversation import Conversation
    from postroad.server.service import Service

__all__ = ["StompConnection"]

# How much may wait in the transport before the core is told that the socket takes no more. A few socket buffers: with
# less, a fast subscriber is stopped and started all the time; with more, a stalled one holds more memory.
HIGH_WATER = 1024 * 1024
LOW_WATER = 256 * 1024


class StompConnection(asyncio.Protocol):
    """One TCP connection."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._transport: asyncio.Transport | None = None
        self._conversation: Conversation | None = None
        self._refilling = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)
        self._conversation = self._service.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._conversation is not None:
            self._service.closed(self._conversation)
            self._conversation.lost()

    def data_received(self, data: bytes) -> None:
        assert self._conversation is not None
        self._conversation.received(data)

    def pause_writing(self) -> None:
        assert self._conversation is not None
        self._conversation.writable(False)

    def resume_writing(self) -> None:
        self._refill()

    def _refill(self) -> None:
        """Hand out what waited, a turn at a time, so that other connections get theirs in between."""
        self._refilling = False
        conversation = self._conversation
        if conversation is None:
            return
        conversation.writable(True)
        if conversation.has_waiting:
            self._refilling = True
            asyncio.get_running_loop().call_soon(self._refill)

    # --- the line under the conversation ---------------------------------------------------------------------------

    def write(self, data: bytes | memoryview) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def pause_reading(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        assert self._transport is not None
        self._transport.resume_reading()

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()
