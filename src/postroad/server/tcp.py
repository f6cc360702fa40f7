"""A client over TCP: the asyncio protocol that moves bytes between a socket and a session."""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, cast

from postroad.server.write_backlog import PIECE_BYTES, WriteBacklog
from postroad.sessions import address_of

if TYPE_CHECKING:
    from postroad.server.clients import Clients
    from postroad.server.listeners import MakeSession
    from postroad.sessions import ClientSession, SharedBytes

__all__ = ["CLOSE_SECONDS", "READ_BYTES", "STRANGER_READ_BYTES", "TcpConnection"]

# The most that one read takes: with more, a batch and what is made of it leave the second-level cache of a processor.
READ_BYTES = 256 * 1024

# The same before the answer to CONNECT: a CONNECT and some frames after it. The rest stays in the socket.
STRANGER_READ_BYTES = 16 * 1024

# How much may wait in the transport before the core treats the session as congested. A few socket buffers: with less,
# a fast subscriber is stopped and started all the time; with more, a stalled one holds more memory.
HIGH_WATER = 1024 * 1024
LOW_WATER = 256 * 1024

# How long a closing connection may take to send what is written, and to see the other side close too.
CLOSE_SECONDS = 5.0

# A connection that rests for a turn, or until a login is checked, is read again by itself after less.
PAUSED_SECONDS = 1.0

# After this time without a write, look whether the socket has taken the last of a large message: no loop reports it.
COUNT_SECONDS = 1.0

_CLOSED_BY_CLIENT = "the client closed the connection"

# Systems without it tell only of connections that were reset.
_HUNG_UP = getattr(select, "POLLRDHUP", 0)


class TcpConnection(asyncio.BufferedProtocol):
    """One TCP connection, with or without TLS.

    All connections read into one buffer of the broker: the loop fills it and reports that in one step, and the session
    keeps none of it.

    Args:
        clients: admits connections and counts what they hold.
        make: makes its session.

    Attributes:
        handshake: the TLS handshake that comes first; None without TLS.
        answers_ended: whether a client may end its sending side and still get receipts.
    """

    answers_ended = True

    def __init__(self, clients: Clients, make: MakeSession) -> None:
        self._clients = clients
        self._make = make
        self._timing = clients.timing
        self._loop = asyncio.get_running_loop()
        self._wake_handle: asyncio.TimerHandle | None = None
        self._close_handle: asyncio.TimerHandle | None = None
        self._count_handle: asyncio.TimerHandle | None = None
        self._stalled = False
        # When it was last paused; None while it is read.
        self._paused_since: float | None = None
        self._refilling = False
        self._shut = False
        # The client has closed its side.
        self._has_ended = False
        self._is_stranger = True
        self._is_made = False
        self.handshake: asyncio.Task[None] | None = None
        self._backlog = WriteBacklog()
        # Bytes held for this connection, as reported to the service: read and kept, written and not yet sent.
        self._kept = self._unsent = 0

    # --- what the event loop reports -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._is_made = True
        self._transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)
        peer = transport.get_extra_info("peername")
        self._peer = _address(peer)
        self._read_buffer = self._clients.stranger_buffer
        self._address = address_of(peer)
        self._session: ClientSession = self._clients.opened(self, self._make)

    def connection_lost(self, exc: Exception | None) -> None:
        for handle in (self._wake_handle, self._close_handle, self._count_handle):
            if handle is not None:
                handle.cancel()
        try:
            self._session.lost(_CLOSED_BY_CLIENT if exc is None else f"connection lost: {exc}")
        finally:
            self._clients.closed(self, self._session)
            self._clients.holds(-self._kept - self._unsent - self._backlog.clear())
            self._kept = self._unsent = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        self._timing.begin()
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._clients.received_bytes += nbytes
        self.data_received(self._read_buffer[:nbytes])
        self._timing.end(id(self))
        # As in `_count_kept`: with small reads, each call is noticeable.
        kept = self._kept_now
        if kept != self._kept:
            change, self._kept = kept - self._kept, kept
            self._clients.holds(change)

    def data_received(self, data: bytes | memoryview) -> None:
        try:
            self._session.received(data)
        except Exception as error:
            self._broke(error)

    @property
    def _kept_now(self) -> int:
        return self._session.kept_bytes

    def _count_kept(self) -> None:
        kept = self._kept_now
        if kept != self._kept:
            change, self._kept = kept - self._kept, kept
            self._clients.holds(change)

    def _count_unsent(self) -> None:
        if self._transport.is_closing():
            return
        unsent = self._transport.get_write_buffer_size()
        change = unsent - self._unsent - self._backlog.let_go(unsent)
        self._unsent = unsent
        if change:
            self._clients.holds(change)
        if self._backlog.is_lent and not self._stalled and self._count_handle is None:
            self._count_handle = self._loop.call_later(COUNT_SECONDS, self._count_later)

    def _count_later(self) -> None:
        self._count_handle = None
        self._count_unsent()

    def pause_writing(self) -> None:
        self._stalled = True
        self._session.writable(False)

    def resume_writing(self) -> None:
        self._stalled = False
        if self._backlog.parts:
            self._pump()
        elif self._backlog.is_lent:
            self._count_unsent()
        if not self._stalled:
            self._refill_soon()

    def _pump(self) -> None:
        """Give the transport what waits, as long as it takes it."""
        transport = self._transport
        while self._backlog.parts and not self._stalled and not transport.is_closing():
            transport.write(self._backlog.take())
        self._count_unsent()
        if self._shut and not self._backlog.parts and not transport.is_closing():
            self._end_writing()

    def eof_received(self) -> bool | None:
        """End the session of a client that sends no more, and keep the connection until it has its receipts.

        Not for longer than CLOSE_SECONDS, and not over TLS, which asyncio cannot half-close.
        """
        self._has_ended = True
        # A client that reads nothing, and whose socket still answers, would keep the connection for ever.
        self._abort_soon()
        # At once: its subscriptions get nothing more, and it is no publisher that could be paused.
        if self.answers_ended and self._transport.can_write_eof():
            try:
                self._session.ended(_CLOSED_BY_CLIENT)
            except Exception as error:
                self._broke(error)
            return not self._shut or bool(self._backlog.parts)
        self._session.lost(_CLOSED_BY_CLIENT)
        self._shut = True
        return bool(self._backlog.parts) and self._transport.can_write_eof()

    def _refill_soon(self) -> None:
        if not self._refilling:
            self._refilling = True
            self._loop.call_soon(self._refill)

    def _refill(self) -> None:
        """Deliver what waited, one turn at a time, so that other connections get theirs in between."""
        self._refilling = False
        # What others sent to it since may have filled the socket again; the next drain tries once more.
        if self._stalled or self._transport.is_closing():
            return
        try:
            self._session.writable(True)
            if self._session.has_waiting:
                self._refill_soon()
        except Exception as error:
            self._broke(error)

    def _tick(self) -> None:
        self._wake_handle = None
        try:
            self._session.tick(self._clients.timer())
        except Exception as error:
            self._broke(error)

    def _broke(self, error: Exception) -> None:
        """A defect of ours ends this connection and nothing else."""
        self._clients.count_internal_error()
        try:
            self._session.broke(error)
        except Exception:
            self._transport.abort()

    # --- the transport under the session ------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def address(self) -> str:
        return self._address

    @property
    def shares(self) -> bool:
        return True

    def connected(self) -> str:
        refusal = self._clients.connected(self)
        if not refusal:
            self._is_stranger = False
            self._read_buffer = self._clients.read_buffer
        return refusal

    def write(self, data: bytes | memoryview, shared: SharedBytes | None = None) -> None:
        transport = self._transport
        # A socket that failed in this turn is closing, but the loop has not reported the loss yet.
        if transport.is_closing():
            return
        self._clients.sent_bytes += len(data)
        if self._backlog.parts or shared is not None or len(data) > PIECE_BYTES:
            if more := self._backlog.append(memoryview(data), shared):
                self._clients.holds(more)
            self._pump()
            return
        transport.write(data)
        self._backlog.given += len(data)
        if self._backlog.is_lent:
            self._count_unsent()
            return
        # As in `_count_unsent`: with small writes, each call is noticeable.
        unsent = transport.get_write_buffer_size()
        if unsent != self._unsent:
            change, self._unsent = unsent - self._unsent, unsent
            self._clients.holds(change)

    def pause_reading(self) -> None:
        self._paused_since = self._loop.time()
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused_since = None
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def end_if_gone(self) -> bool:
        """Read to its end a connection that is not read from and whose client has hung up; return whether it is one.

        What the client sent before is handled as if it had come in time.
        """
        since, transport = self._paused_since, self._transport
        if since is None or self._loop.time() < since + PAUSED_SECONDS:
            return False
        if transport.is_closing() or not _has_hung_up(transport):
            return False
        self.resume_reading()
        return True

    def wake_at(self, when: int) -> None:
        if self._wake_handle is not None:
            self._wake_handle.cancel()
        self._wake_handle = self._loop.call_later(max(0, when - self._clients.timer()) / 1_000, self._tick)

    def close(self) -> None:
        """Close our side, and keep reading until the client closes its own.

        Closing a socket with unread data makes the kernel reset the connection; the client might then never see the
        last frame, which says why.
        """
        transport = self._transport
        if self._shut or transport.is_closing():
            return
        self._shut = True
        self._abort_soon()
        if transport.can_write_eof() and not self._has_ended:
            transport.resume_reading()
        if not self._backlog.parts:
            self._end_writing()

    def _end_writing(self) -> None:
        transport = self._transport
        if self._has_ended:
            # Not at once: asyncio reports the loss of a transport that is closed within `resume_writing` twice.
            self._loop.call_soon(transport.close)
            return
        if not transport.can_write_eof():
            transport.close()
            return
        try:
            transport.write_eof()
        except OSError:
            # The other side is gone; the loop would notice only at the next read or write.
            transport.abort()

    def _abort_soon(self) -> None:
        if self._close_handle is None:
            self._close_handle = self._loop.call_later(CLOSE_SECONDS, self._transport.abort)

    def abort(self) -> None:
        """Close at once and drop what is not sent yet."""
        self._transport.abort()

    def cut_off(self, reason: str, again: bool = False) -> None:
        """Tell the client why if its socket takes that at once, and close; with `again`, that it may come back."""
        if not self._is_made:
            # Before the TLS handshake there is no way to send a reason.
            if self.handshake is not None:
                self.handshake.cancel()
            return
        self._session.refuse(reason, again)
        self._count_unsent()
        if self._backlog.parts or self._unsent > LOW_WATER:
            self._transport.abort()
        else:
            self._transport.close()

    @property
    def held_bytes(self) -> int:
        """Bytes held for this connection now."""
        self._count_kept()
        self._count_unsent()
        return self._kept + self._unsent + self._backlog.share + self._session.waiting_bytes


def _has_hung_up(transport: asyncio.Transport) -> bool:
    socket = transport.get_extra_info("socket")
    if socket is None:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), _HUNG_UP)
    return bool(poll.poll(0))


def _address(peer: object) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else "unknown"
