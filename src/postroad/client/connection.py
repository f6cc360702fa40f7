"""One connection to a server, from CONNECT to its end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroad.client.clock import ClientClock, wall_clock
from postroad.client.errors import ClientError, ConnectionLost
from postroad.client.publisher import Grant
from postroad.errors import PostroadError
from postroad.protocols.stomp import HEART_BEAT, FrameReader, Version, encode_frame
from postroad.protocols.stomp.id_headers import (
    AGAIN_HEADER,
    IDS_BY_CLIENT,
    IDS_HEADER,
    PUBLISHER_HEADER,
    SERVER_TIME_HEADER,
    TOKEN_HEADER,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroad.client.address import Address
    from postroad.client.mailboxes import Intake
    from postroad.client.publisher import Publisher
    from postroad.protocols.stomp import Frame

__all__ = ["ClientConnection", "ClientHello"]

# OpenSSL's codes for a certificate that nobody trusted has signed: self-signed, self-signed in the chain, no issuer.
_UNKNOWN_AUTHORITY = frozenset((18, 19, 20))
# What OpenSSL says, by its version, of an answer that is no TLS.
_NO_TLS_ADVICE = "; if it does not speak TLS, write stomp://"
_NOT_TLS = frozenset(("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"))

# One read: a few hundred small messages, so that the loop turns often and little goes past a full mailbox.
READ_BYTES = 64 * 1024
# How long a closing client waits for the server to confirm that it has got everything.
CLOSE_SECONDS = 5.0
# How long a failed write waits for the reason to be read.
EXPLAIN_SECONDS = 1.0
# A server is given up when this many of its heart-beats are missing: one may be late.
HEART_BEAT_GRACE = 2
# Beating a little early keeps the promise also when the loop is busy.
_EARLY = 0.8

_HEART_BEAT = re.compile(r"([0-9]{1,9}),([0-9]{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHello:
    """How a client introduces itself.

    Attributes:
        login: who it is; None to say nothing.
        passcode: the proof of it.
        heart_beat: milliseconds: how often it can beat, and how often the server should; 0 for never.
        tls: how to check the server's certificate; None for the system's authorities.
        timeout: seconds that the server may take to answer.
        gives_ids: whether it gives its messages ids itself, where the server lets it.
        now: this machine's time in ms.
    """

    login: str | None = None
    passcode: str | None = None
    heart_beat: tuple[int, int] = (10_000, 10_000)
    tls: ssl.SSLContext | None = None
    timeout: float = 30.0
    gives_ids: bool = True
    now: Callable[[], int] = wall_clock

    def frame(self, host: str, was: Grant | None = None) -> bytes:
        """The CONNECT frame; `was` is what the client was granted over an earlier connection."""
        pairs = [("accept-version", str(Version.V1_2)), ("host", host)]
        pairs.append(("heart-beat", f"{self.heart_beat[0]},{self.heart_beat[1]}"))
        pairs += [(name, text) for name, text in (("login", self.login), ("passcode", self.passcode)) if text]
        if self.gives_ids:
            pairs.append((IDS_HEADER, IDS_BY_CLIENT))
            if was is not None:
                pairs += [(PUBLISHER_HEADER, str(was.publisher)), (TOKEN_HEADER, was.token)]
        return encode_frame("CONNECT", pairs)


class ClientConnection:
    """A connection that is up; `ClientConnection.open` makes it.

    Attributes:
        number: which of the client's connections this is.
        failure: why it ended, if it has.
        reported: whether the failure was raised to a caller.
        ended: set when it has.
        clock: how the server's clock compares with ours.
        server: what the server calls itself.
        grant: what the server granted to a client that gives its own ids; None when it does not know about this.
        publisher: gives the ids of what is published over this connection; None when the server does.
    """

    def __init__(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        number: int,
        intake: Intake,
        deliver: Callable[[Frame, int], None],
        timeout: float,
    ) -> None:
        self._reader, self._writer = streams
        self.number = number
        self.failure: PostroadError | None = None
        self.reported = False
        self.ended = asyncio.Event()
        self.clock = ClientClock()
        self.server = ""
        self.grant: Grant | None = None
        self.publisher: Publisher | None = None
        self._intake = intake
        self._deliver = deliver
        self._timeout = timeout
        self._frames = FrameReader()
        self._receipts = itertools.count(1)
        self._pending: dict[str, asyncio.Future[Frame]] = {}
        self._silence: float | None = None
        self._sent = 0.0
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls,
        address: Address,
        hello: ClientHello,
        number: int,
        intake: Intake,
        deliver: Callable[[Frame, int], None],
        was: Grant | None = None,
    ) -> ClientConnection:
        """Connect and introduce oneself.

        Raises:
            ConnectionLost: the address does not accept connections, or did not reply.
            ClientError: the server refused.
        """
        tls = (hello.tls or ssl.create_default_context()) if address.tls else None
        try:
            async with asyncio.timeout(hello.timeout):
                streams = await asyncio.open_connection(address.host, address.port, ssl=tls)
                connection = cls(streams, number, intake, deliver, hello.timeout)
                try:
                    await connection._greet(address, hello, was)
                except BaseException:
                    connection._writer.transport.abort()
                    raise
        except TimeoutError:
            raise ConnectionLost(f"{address}: no answer within {hello.timeout:g} s") from None
        except OSError as error:
            broken = "the connection ended during the TLS handshake" if address.tls else "the connection ended"
            advice = _advice(error) or ("" if str(error) or not address.tls else _NO_TLS_ADVICE)
            raise ConnectionLost(f"{address}: cannot connect ({_reason(error) or broken}){advice}") from error
        return connection

    async def _greet(self, address: Address, hello: ClientHello, was: Grant | None) -> None:
        asked = hello.now()
        self._write(hello.frame(address.host, was))
        frames: list[Frame] = []
        while not frames:
            data = await self._reader.read(READ_BYTES)
            if not data:
                perhaps = "" if address.tls else "; if it speaks TLS, write stomps://"
                raise ConnectionLost(
                    f"{address}: the server closed the connection instead of answering CONNECT{perhaps}"
                )
            frames = self._frames.receive(data)
        first = frames[0]
        if first.command == "ERROR":
            raise _refusal(first)
        if first.command != "CONNECTED":
            raise ClientError(f"{address}: the server answered CONNECT with {first.command[:20]!r}")
        if self._frames.version is not Version.V1_2:
            raise ClientError(f"{address}: the server speaks STOMP {self._frames.version}, this client only 1.2")
        self.clock = ClientClock.from_exchange(asked, hello.now(), first.headers.get(SERVER_TIME_HEADER))
        self.grant = Grant.of(first.headers) if hello.gives_ids else None
        self.server = first.headers.get("server", "")
        beats = self._agree(hello.heart_beat, first.headers.get("heart-beat", "0,0"))
        self._tasks = [asyncio.create_task(self._listen(frames[1:]))]
        if beats:
            self._tasks.append(asyncio.create_task(self._beat(beats)))

    def _agree(self, ours: tuple[int, int], theirs: str) -> float:
        """Agree on heart-beats: set how long the server may be silent; returns the seconds between ours."""
        found = _HEART_BEAT.fullmatch(theirs)
        can, wants = (int(found[1]), int(found[2])) if found else (0, 0)
        if can and ours[1]:
            self._silence = HEART_BEAT_GRACE * max(can, ours[1]) / 1000
        return max(ours[0], wants) / 1000 if ours[0] and wants else 0.0

    # --- sending ---------------------------------------------------------------------------------------------------

    async def write(self, data: bytes) -> None:
        """Pass bytes to the socket, and wait while it takes no more.

        Raises:
            ClientError: the connection has ended.
        """
        self.check()
        self._write(data)
        try:
            await self._writer.drain()
        except OSError as lost:
            # The listener may know more than the socket, such as an ERROR that came before; but a full mailbox may
            # keep it from reading on.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXPLAIN_SECONDS):
                    await self.ended.wait()
            self._end(ConnectionLost(f"the connection is lost ({_reason(lost)})"))
        self.check()

    def post(self, command: str, pairs: Sequence[tuple[str, str]]) -> None:
        """Send a small frame without waiting for anything; after the end, do nothing."""
        if self.failure is None and not self._closing:
            self._write(encode_frame(command, pairs))

    def expect(self) -> tuple[str, asyncio.Future[Frame]]:
        """A receipt to ask for, and where it will come."""
        self.check()
        receipt = str(next(self._receipts))
        self._pending[receipt] = future = asyncio.get_running_loop().create_future()
        return receipt, future

    async def answers(self, expected: Sequence[tuple[str, asyncio.Future[Frame]]]) -> list[Frame]:
        """Wait for receipts.

        Raises:
            ClientError: the server refused, the connection ended, or the time is over.
        """
        self._intake.await_receipts(1)
        try:
            async with asyncio.timeout(self._timeout):
                return [await future for _, future in expected]
        except TimeoutError:
            raise ClientError(self._unanswered()) from None
        finally:
            self._intake.await_receipts(-1)
            self.forget(expected)

    async def request(self, command: str, pairs: Sequence[tuple[str, str]], before: bytes = b"") -> Frame:
        """Send a frame, with others before it, and wait until the server has done what it says."""
        expected = self.expect()
        try:
            await self.write(before + encode_frame(command, [*pairs, ("receipt", expected[0])]))
        except BaseException:
            self.forget([expected])
            raise
        return (await self.answers([expected]))[0]

    def forget(self, expected: Sequence[tuple[str, asyncio.Future[Frame]]]) -> None:
        """Do not wait for these any more."""
        for receipt, future in expected:
            self._pending.pop(receipt, None)
            if not future.cancel() and not future.cancelled():
                future.exception()  # asked for, so that asyncio does not report it as overlooked

    def _unanswered(self) -> str:
        text = f"no receipt within {self._timeout:g} s; whether the server did it is not known"
        full = None if self._intake.is_open else self._intake.fullest()
        if full is None:
            return text
        return (
            f"{text}. {full.waiting:,} messages of subscription {full.name} wait to be taken and hold up this"
            " connection: take them, or subscribe on a connection of its own"
        )

    def check(self) -> None:
        """Raise what ended the connection, if it has ended."""
        if self.failure is not None:
            self.reported = True
            raise self.failure.with_traceback(None)
        if self._closing:
            raise ClientError("the client is closed; make a new one")

    def _write(self, data: bytes) -> None:
        self._writer.write(data)
        self._sent = asyncio.get_running_loop().time()

    async def _beat(self, every: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = self._sent + _EARLY * every
            await asyncio.sleep(max(0.0, due - loop.time()))
            if loop.time() >= self._sent + _EARLY * every:
                self._write(HEART_BEAT)

    # --- receiving -------------------------------------------------------------------------------------------------

    async def _listen(self, frames: list[Frame]) -> None:
        error: PostroadError
        try:
            while True:
                for frame in frames:
                    self._take(frame)
                await self._intake.room()
                # Only while it reads: a client that does not listen cannot call the server silent.
                async with asyncio.timeout(self._silence):
                    data = await self._reader.read(READ_BYTES)
                if not data:
                    raise ConnectionLost("the server closed the connection")
                frames = self._frames.receive(data)
        except TimeoutError:
            error = ConnectionLost(f"nothing heard from the server for {self._silence:g} s, not even a heart-beat")
        except OSError as lost:
            error = ConnectionLost(f"the connection is lost ({_reason(lost)})")
        except PostroadError as caught:
            error = caught
        self._end(error)

    def _take(self, frame: Frame) -> None:
        if frame.command == "MESSAGE":
            if not self._closing:
                self._deliver(frame, self.number)
        elif frame.command == "RECEIPT":
            if self.publisher is not None:
                self.publisher.heard(frame.headers)
            future = self._pending.pop(frame.headers.get("receipt-id", ""), None)
            if future is not None and not future.done():
                future.set_result(frame)
        elif frame.command == "ERROR":
            raise _refusal(frame)

    def _end(self, error: PostroadError) -> None:
        if self.ended.is_set():
            return
        self.failure = error
        self.reported = bool(self._pending)
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)
        # Not `close`, which first sends what is written: a server that takes nothing would keep writers waiting.
        self._writer.transport.abort()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self.ended.set()

    # --- the end ---------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Disconnect: wait until the server has everything, for at most CLOSE_SECONDS.

        Raises:
            ClientError: the server refused something in the meantime.
        """
        try:
            await self._take_leave()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self.failure is None:
                self._end(ClientError("the client is closed; make a new one"))
            self._writer.transport.abort()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._writer.wait_closed()

    async def _take_leave(self) -> None:
        if self.failure is not None or self._closing:
            return
        receipt, future = self.expect()
        self._closing = True
        self._intake.close()
        self._write(encode_frame("DISCONNECT", [("receipt", receipt)]))
        try:
            with contextlib.suppress(ConnectionLost, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await future
        finally:
            self.forget([(receipt, future)])


def _reason(error: OSError) -> str:
    # asyncio puts its own text in place of the system's; errors of name resolution have numbers below 0.
    known = error.errno is not None and error.errno > 0 and not isinstance(error, ssl.SSLError)
    return os.strerror(error.errno or 0) if known else str(error)


def _advice(error: OSError) -> str:
    """What to do about it, as far as the error says; the options are those of the command."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if "mismatch" in error.verify_message:
            return "; connect by a name that its certificate has"
        if error.verify_code in _UNKNOWN_AUTHORITY:
            return "; if it is the right server, trust its authority: --ca FILE, or tls="
    elif isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return _NO_TLS_ADVICE
    return "; is a broker running there?" if isinstance(error, ConnectionRefusedError) else ""


def _refusal(frame: Frame) -> ClientError:
    details = frame.body.decode("utf-8", "replace").strip("\n")
    text = frame.headers.get("message") or "the server reported an error without a text"
    # A stop of the broker is not a refusal: a client that may reconnect does, and resends what is not confirmed.
    return ConnectionLost(text) if AGAIN_HEADER in frame.headers else ClientError(text, details)
