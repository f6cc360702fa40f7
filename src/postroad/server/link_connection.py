"""One connection to a neighbour: bytes between a socket and the conversation of a link."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import TYPE_CHECKING, cast

from postroad.protocols.link import Reason
from postroad.protocols.link.limits import HANDSHAKE_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from postroad.protocols import link
    from postroad.server.link_listener import Accepted
    from postroad.server.links import Links

__all__ = ["MAX_UNREAD_BYTES", "TLS_SECONDS", "LinkConnection"]

log = logging.getLogger("postroad.links")

# How long a closing connection may take to send what is written; a neighbour that does not read is cut off.
CLOSE_SECONDS = 2.0
# How long a TLS handshake may take: as long as the link's own handshake after it.
TLS_SECONDS = HANDSHAKE_TIMEOUT_MS / 1_000
# Bytes of control frames that may wait for a neighbour to read them: all records of a large network twice over. Frames
# of messages have their own bound. A neighbour that asks for more and does not read is cut off.
MAX_UNREAD_BYTES = 256 * 1024 * 1024


class LinkConnection(asyncio.Protocol):
    """One connection, dialled or accepted.

    Args:
        links: all links of the broker.
        dialled: the neighbour that was dialled; 0 for a connection that was accepted.
        stranger: the entry of an accepted connection among those that have not proved who they are.

    Attributes:
        gone: set when the connection is closed.
        was_open: whether its handshake was ever finished.
        received_bytes, sent_bytes: so far, without what TLS adds.
    """

    def __init__(self, links: Links, *, dialled: int = 0, stranger: Accepted | None = None) -> None:
        self._links = links
        self._dialled = dialled
        self._stranger = stranger
        self._transport: asyncio.Transport | None = None
        self._conversation: link.LinkConversation | None = None
        self.gone = asyncio.Event()
        self.was_open = False
        self.received_bytes = self.sent_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._links.stopping:
            self._transport.abort()
            return
        if self._stranger is not None:
            self._stranger.connection = self
        self._conversation = self._links.conversation(self, self._dialled, self._binding(), self._certificate())
        self.write(self._conversation.begin())

    def _binding(self) -> bytes:
        """What binds the handshake to this TLS session: the digest of the listener's certificate."""
        assert self._transport is not None
        session = self._transport.get_extra_info("ssl_object")
        if session is None:
            return b""
        shown = b"" if self._stranger is None else self._stranger.certificate
        certificate = session.getpeercert(binary_form=True) if self._dialled else shown
        return hashlib.sha256(certificate).digest()

    def _certificate(self) -> Mapping[str, Any] | None:
        """The peer's verified certificate; None without TLS."""
        assert self._transport is not None
        session = self._transport.get_extra_info("ssl_object")
        return None if session is None else session.getpeercert() or {}

    def data_received(self, data: bytes) -> None:
        conversation = self._conversation
        assert conversation is not None
        timing = self._links.timing
        self.received_bytes += len(data)
        try:
            if timing is not None:
                timing.begin()
            heard = conversation.receive(data, self._links.timer())
            if heard.opened:
                self.was_open = True
                self._leave_the_door(known=True)
            self._links.heard(conversation, heard)
            if timing is not None:
                timing.end(id(self))
        except Exception:
            # A defect of ours ends this connection and no other.
            log.exception("internal error")
            self._links.count_internal_error()
            conversation.closed()
            self.close(at_once=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_the_door(known=False)
        if self._conversation is not None:
            self._links.lost(self._conversation)
        self.gone.set()

    def _leave_the_door(self, *, known: bool) -> None:
        if self._stranger is not None:
            stranger, self._stranger = self._stranger, None
            self._links.strangers.leave(stranger)
            if known:
                self._links.strangers.reserve(stranger.address)

    def turn_away(self) -> None:
        """Close this connection, which has not proved who it is, to make room for another."""
        if self._conversation is not None:
            self.write(self._conversation.bye(Reason.REFUSED, "too many connections wait for their handshakes; later"))
        self.close()

    def write(self, data: bytes | memoryview) -> None:
        """Write bytes to the socket."""
        assert self._transport is not None
        if data and not self._transport.is_closing():
            self._transport.write(data)
            self.sent_bytes += len(data)

    @property
    def unread(self) -> int:
        """Bytes that wait here because the peer does not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self, *, at_once: bool = False) -> None:
        """Send what is written and close, within `CLOSE_SECONDS` even if the peer does not read."""
        assert self._transport is not None
        if at_once:
            self._transport.abort()
        else:
            self._transport.close()
            asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._transport.abort)
