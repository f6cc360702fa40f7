"""`LinkConversation`: one connection to a neighbour, from the first byte to the last. `Neighbour`: what outlives it.

A driver only moves bytes: it writes what `begin`, `receive`, `send`, `control` and `tick` return, passes what it reads
to `receive`, calls `tick` when `due`, and closes the connection after an `error`. It calls `closed` when the other side
closes the connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroad.protocols.link.data import Data
from postroad.protocols.link.decoder import LinkDecoder
from postroad.protocols.link.errors import LinkError, Reason
from postroad.protocols.link.frames import (
    CUSTODY,
    HEART_BEAT,
    Bye,
    Control,
    HeartBeat,
    Progress,
    encode_bye,
    encode_control,
    encode_progress,
)
from postroad.protocols.link.handshake import Handshake, Identity, LinkStanding, refused
from postroad.protocols.link.limits import HANDSHAKE_TIMEOUT_MS
from postroad.protocols.link.pulse import Pulse

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from postroad.messages import Batch
    from postroad.protocols.link.data import Lines, Sets
    from postroad.protocols.link.decoder import Frame
    from postroad.protocols.link.frames import Hello
    from postroad.protocols.link.receiver import LinkReceiver
    from postroad.protocols.link.sender import LinkSender, Sent

__all__ = ["Heard", "LinkConversation", "Neighbour"]


@dataclass(slots=True)
class Neighbour:
    """What this process keeps for a neighbour as long as it runs.

    Attributes:
        sender: what goes there.
        receiver: what comes from there.
        current: the connection in use: the newest whose handshake is done.
    """

    sender: LinkSender
    receiver: LinkReceiver
    current: LinkConversation | None = None

    def standing(self) -> LinkStanding:
        """Return what a WELCOME to this neighbour says."""
        receiver = self.receiver
        return LinkStanding(receiver.epoch, receiver.received, receiver.settled, self.sender.first)


@dataclass(slots=True)
class Heard:
    """The result of a read or a tick.

    Attributes:
        frames: new DATA and CONTROL frames, in order. Settle DATA by its number and the receiver's present epoch.
        returned: DATA frames that a restarted neighbour has forgotten: mark them maybe-duplicate and route them again.
        output: what to write now, in order.
        opened: the handshake was done in this read.
        replaced: the connection that this one replaces: close it.
        error: the connection is over: write the output and close.
    """

    frames: list[Data | Control] = field(default_factory=list)
    returned: list[Data] = field(default_factory=list)
    output: list[bytes | memoryview] = field(default_factory=list)
    opened: bool = False
    replaced: LinkConversation | None = None
    error: LinkError | None = None


class LinkConversation:
    """One connection. After an error it cannot be used any more."""

    def __init__(
        self,
        identity: Identity,
        neighbours: Callable[[int], Neighbour],
        *,
        dialling: bool,
        nonce: bytes,
        now: int,
        expected: Container[int] | None = None,
        barred: Callable[[int], str] | None = None,
    ) -> None:
        """
        Args:
            identity: who this end is.
            neighbours: returns the neighbour of a number, always the same object. Called for allowed numbers only.
            dialling: whether this end opened the connection.
            nonce: 32 random bytes, for this connection alone.
            now: ms.
            expected: the numbers the peer may have; None for any except this broker's.
            barred: returns why the broker of a number is not accepted now; empty if it is.
        """
        self._identity = identity
        self._neighbours = neighbours
        self._decoder = LinkDecoder()
        self._handshake = Handshake(
            identity,
            lambda number: neighbours(number).standing(),
            dialling=dialling,
            nonce=nonce,
            expected=expected,
            barred=barred,
        )
        self._started = now
        self._pulse: Pulse | None = None
        self.neighbour: Neighbour | None = None

    @property
    def open(self) -> bool:
        """Whether this connection carries frames."""
        return self.neighbour is not None and self.neighbour.current is self

    @property
    def peer(self) -> Hello | None:
        """The HELLO of the peer; not proved before `open`."""
        return self._handshake.peer

    @property
    def due(self) -> int:
        """The latest time of the next `tick` (ms). Progress needs one every `PROGRESS_MS` as well."""
        return self._started + HANDSHAKE_TIMEOUT_MS if self._pulse is None else self._pulse.due

    def begin(self) -> bytes:
        """Return what to write first."""
        return self._handshake.begin()

    def receive(self, data: bytes | bytearray | memoryview, now: int) -> Heard:
        """Decode a read. Frames before an error are valid, so handle the frames first, and the error last."""
        heard = Heard()
        if self._pulse is not None:
            self._pulse.heard(now)
        try:
            for frame in self._decoder.frames(data):
                self._take(frame, heard, now)
            self._report(heard, now)
        except LinkError as error:
            self._end(error, heard)
        return heard

    def _end(self, error: LinkError, heard: Heard) -> None:
        heard.error = error
        if error.ours:
            heard.output.append(encode_bye(error.reason, str(error)))
        self.closed()

    def tick(self, now: int) -> Heard:
        """Send heart-beats and progress if they are due, and end a connection that is silent for too long."""
        heard = Heard()
        pulse = self._pulse
        try:
            if pulse is None:
                if now >= self.due:
                    raise LinkError(f"no handshake within {HANDSHAKE_TIMEOUT_MS:,} ms", Reason.SILENT)
                return heard
            self._opened()
            self._report(heard, now)
            if pulse.tick(now):
                heard.output.append(HEART_BEAT)
            if pulse.dead:
                raise LinkError(
                    f"the peer has been silent for {self._identity.missed_beats} heart-beats", Reason.SILENT
                )
        except LinkError as error:
            self._end(error, heard)
        return heard

    def send(
        self,
        batch: Batch,
        rows: Lines,
        sets: Sets,
        lines: Lines,
        epoch: int,
        now: int,
        *,
        mark: object = None,
        returned: bool = False,
    ) -> Sent:
        """Send rows of a batch; see `LinkSender.send`, which also works while there is no connection."""
        sent = self._opened().sender.send(batch, rows, sets, lines, epoch, mark=mark, returned=returned)
        if sent.frames and self._pulse is not None:
            self._pulse.sent(now)
        return sent

    def control(self, kind: int, payload: bytes, now: int) -> bytes:
        """Return a control frame to write."""
        self._opened()
        if self._pulse is not None:
            self._pulse.sent(now)
        return encode_control(kind, payload)

    def _opened(self) -> Neighbour:
        if self.neighbour is None:
            raise LinkError("this connection is not open yet")
        if not self.open:
            raise LinkError("this connection is closed, or a newer one has taken its place", Reason.REPLACED)
        return self.neighbour

    def bye(self, reason: Reason, text: str) -> bytes:
        """Return what to write before this end closes the connection. It counts as closed from now on."""
        self.closed()
        return encode_bye(reason, text)

    def closed(self) -> None:
        """Take note that the connection is gone. Frames that are not received wait for the next connection."""
        if self.neighbour is not None and self.neighbour.current is self:
            self.neighbour.current = None
            self.neighbour.sender.detach()

    def _take(self, frame: Frame, heard: Heard, now: int) -> None:
        neighbour = self.neighbour
        if neighbour is None:
            self._shake_hands(frame, heard, now)
            return
        self._opened()
        if isinstance(frame, Data):
            if neighbour.receiver.accept(frame.number):
                heard.frames.append(frame)
        elif isinstance(frame, Control):
            heard.frames.append(frame)
        elif isinstance(frame, Progress):
            neighbour.sender.progress(frame)
        elif isinstance(frame, Bye):
            raise refused(frame)
        elif not isinstance(frame, HeartBeat):
            raise LinkError(f"a {type(frame).__name__} frame came after the handshake was done")

    def _shake_hands(self, frame: Frame, heard: Heard, now: int) -> None:
        handshake = self._handshake
        answer = handshake.receive(frame)
        if answer:
            heard.output.append(answer)
        peer, theirs = handshake.peer, handshake.theirs
        if peer is None or theirs is None:
            return
        neighbour, identity = self._neighbours(peer.broker), self._identity
        attached = neighbour.sender.attach(peer.epoch, theirs, handshake.ours.first)
        neighbour.receiver.attach(peer.epoch, theirs.first, custody=bool(peer.capabilities & CUSTODY))
        heard.replaced, neighbour.current = neighbour.current, self
        self.neighbour = neighbour
        self._pulse = Pulse(identity.heart_beat, peer.heart_beat, now, identity.missed_beats)
        self._decoder.open()
        heard.opened = True
        heard.output += attached.resend
        heard.returned += attached.returned

    def _report(self, heard: Heard, now: int) -> None:
        if self.neighbour is not None and self.open:
            news = self.neighbour.receiver.progress(now)
            if news is not None:
                heard.output.append(encode_progress(news))
        if heard.output and self._pulse is not None:
            self._pulse.sent(now)
