"""One connection to a neighbour: bytes between a socket and the conversation of a link."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from postroad.protocols import link
    from postroad.server.links import Links

__all__ = ["LinkConnection"]

log = logging.getLogger("postroad.links")

# A neighbour that does not read what it is sent is not waited for: the connection is cut after this.
CLOSE_SECONDS = 2.0


class LinkConnection(asyncio.Protocol):
    """One connection, dialled or accepted.

    Attributes:
        gone: set when the connection is over.
        was_open: whether its handshake was ever done.
    """

    def __init__(self, links: Links, *, dialling: bool) -> None:
        self._links = links
        self._dialling = dialling
        self._transport: asyncio.Transport | None = None
        self._conversation: link.LinkConversation | None = None
        self.gone = asyncio.Event()
        self.was_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._links.stopping:
            self._transport.abort()
            return
        self._conversation = self._links.conversation(self, self._dialling, self._binding())
        self.write(self._conversation.begin())

    def _binding(self) -> bytes:
        """What both ends know of this TLS session and nobody in between could have: who listens."""
        assert self._transport is not None
        session = self._transport.get_extra_info("ssl_object")
        if session is None:
            return b""
        certificate = session.getpeercert(binary_form=True) if self._dialling else self._links.certificate
        return hashlib.sha256(certificate).digest()

    def data_received(self, data: bytes) -> None:
        conversation = self._conversation
        assert conversation is not None
        try:
            heard = conversation.receive(data, self._links.timer())
            self.was_open = self.was_open or heard.opened
            self._links.heard(conversation, heard)
        except Exception:
            # A defect of ours: this connection ends, nobody else is touched.
            log.exception("internal error")
            self._links.count_internal_error()
            conversation.closed()
            self.close(at_once=True)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._conversation is not None:
            self._links.lost(self._conversation)
        self.gone.set()

    def write(self, data: bytes | memoryview) -> None:
        """Hand bytes to the socket."""
        assert self._transport is not None
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def close(self, *, at_once: bool = False) -> None:
        """Send what is written and close; in any case soon, because a peer that does not read would take for ever."""
        assert self._transport is not None
        if at_once:
            self._transport.abort()
        else:
            self._transport.close()
            asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._transport.abort)
