"""The handshake of two brokers: each proves who it is, and says what it has received.

    dialler                                   listener
    HELLO    who I am, a nonce        ──►     checks it
    checks it                         ◄──     HELLO    who I am, a nonce
    WELCOME  proof, what I received   ──►     checks the proof: the link is open here
    checks the proof: open here too   ◄──     WELCOME  proof, what I received

Rule 1: the dialler proves first. So a stranger that connects gets nothing to try secrets against.
Rule 2: a proof covers both HELLOs, so nobody in between can change a version, a number or an epoch; and it names the
        side that made it, so it cannot be sent back.
Rule 3: nothing that the peer says is used before its proof is checked.
Rule 4: an error that this end found (`error.ours`) is sent to the peer as a BYE.

A secret proves that the peer belongs to the network; a signature that it is the broker whose number it claims. Both
prove who opened the connection, not who sends on it later: between machines use TLS, and pass what identifies the TLS
session as `binding`.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from postroad.protocols.link.errors import LinkError, Reason
from postroad.protocols.link.frames import (
    ED25519,
    HMAC_SHA256,
    LARGEST_COUNT,
    NO_PROOF,
    NO_SIGNATURE,
    NONCE_BYTES,
    PROVED_BYTES,
    SIGNED_VERSION,
    UNAUTHENTICATED,
    Bye,
    Hello,
    Welcome,
    encode_hello,
    encode_welcome,
)
from postroad.protocols.link.limits import (
    HEART_BEAT_MS,
    MAX_HEART_BEAT_MS,
    MAX_MISSED_BEATS,
    MAX_NETWORK_NAME_BYTES,
    MIN_SECRET_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from postroad.protocols.link.decoder import Frame

__all__ = ["HIGHEST_VERSION", "LOWEST_VERSION", "Handshake", "Identity", "LinkStanding"]

LOWEST_VERSION, HIGHEST_VERSION = 1, SIGNED_VERSION

_DIALLER, _LISTENER = b"postroad link, dialler", b"postroad link, listener"
_LARGEST_NUMBER = 2**32 - 1


class HandshakeSeals(Protocol):
    """Signs for this broker, and knows the keys of the others."""

    def sign(self, data: bytes) -> bytes:
        """Return the signature of this broker, 64 bytes."""

    def verify(self, broker: int, data: bytes, signature: bytes) -> bool:
        """Whether a broker has signed this."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this end is.

    Attributes:
        broker: its number.
        epoch: when this process started (ms).
        network: the name of the network.
        membership: the epoch of the network's membership.
        secret: shared by all brokers of the network; None for none, which is for loopback only.
        capabilities: bits, such as `CUSTODY`.
        heart_beat: this end sends something at least at this interval, in ms.
        missed_beats: a peer is dead after this many of its own intervals without a byte.
        binding: bytes that only the two ends of a TLS session know, such as the hash of its certificate.
        seals: the key of this broker and those of the others; None for none.
    """

    broker: int
    epoch: int
    network: str
    membership: int = 0
    secret: bytes | None = field(default=None, repr=False)
    capabilities: int = 0
    heart_beat: int = HEART_BEAT_MS
    missed_beats: int = MAX_MISSED_BEATS
    binding: bytes = b""
    seals: HandshakeSeals | None = field(default=None, repr=False)

    @property
    def authentication(self) -> int:
        """The authentication methods of this end, as bits."""
        by_secret = UNAUTHENTICATED if self.secret is None else HMAC_SHA256
        return by_secret if self.seals is None else by_secret | ED25519

    def __post_init__(self) -> None:
        if not 1 <= self.broker <= _LARGEST_NUMBER:
            raise LinkError(f"a broker's number is between 1 and {_LARGEST_NUMBER:,}, not {self.broker}")
        if not (1 <= self.epoch <= LARGEST_COUNT and 0 <= self.membership <= LARGEST_COUNT):
            raise LinkError(f"process epoch {self.epoch} or membership epoch {self.membership} is out of range")
        if not 1 <= len(self.network.encode()) <= MAX_NETWORK_NAME_BYTES:
            raise LinkError(f"the name of a network has 1 to {MAX_NETWORK_NAME_BYTES} bytes")
        if not 1 <= self.heart_beat <= MAX_HEART_BEAT_MS:
            raise LinkError(f"a heart-beat is every 1 to {MAX_HEART_BEAT_MS:,} ms, not {self.heart_beat}")
        if self.secret is not None and len(self.secret) < MIN_SECRET_BYTES:
            raise LinkError(
                f"the shared secret has {len(self.secret)} bytes; take {MIN_SECRET_BYTES} random ones or more"
            )


class LinkStanding(NamedTuple):
    """What one end has received from a neighbour; see `Welcome`."""

    epoch: int = 0
    received: int = 0
    settled: int = 0
    first: int = 1


class Handshake:
    """One end of one handshake. Send what `begin` and `receive` return; the link is open when `done`.

    Attributes:
        peer: the peer's HELLO; not proved before `done`.
        theirs: what the peer has received, when `done`.
        ours: what this end said that it has received.
    """

    def __init__(
        self,
        identity: Identity,
        standing: Callable[[int], LinkStanding],
        *,
        dialling: bool,
        nonce: bytes,
        expected: Container[int] | None = None,
        barred: Callable[[int], str] | None = None,
    ) -> None:
        """
        Args:
            identity: who this end is.
            standing: returns what this end has received from the neighbour of a number; called at most once.
            dialling: whether this end opened the connection.
            nonce: 32 bytes from a cryptographic source of randomness, for this handshake only.
            expected: the numbers the peer may have; None for any except this broker's.
            barred: returns why the broker of a number is not accepted now; empty if it is.
        """
        if len(nonce) != NONCE_BYTES:
            raise LinkError(f"a nonce has {NONCE_BYTES} random bytes, not {len(nonce)}")
        self._identity = identity
        self._standing = standing
        self._dialling = dialling
        self._expected = expected
        self._barred = barred
        self._hello = Hello(
            LOWEST_VERSION,
            HIGHEST_VERSION,
            identity.broker,
            identity.epoch,
            identity.membership,
            identity.network,
            nonce,
            identity.authentication,
            identity.capabilities,
            identity.heart_beat,
        )
        self.peer: Hello | None = None
        self.theirs: LinkStanding | None = None
        self.ours = LinkStanding()
        self.version = 0

    @property
    def done(self) -> bool:
        """Whether both ends have proved who they are."""
        return self.theirs is not None

    def begin(self) -> bytes:
        """Return what to send first."""
        return encode_hello(self._hello) if self._dialling else b""

    def receive(self, frame: Frame) -> bytes:
        """Return what to send in reply to a frame.

        Raises:
            LinkError: the handshake failed; the reason says why.
        """
        if isinstance(frame, Bye):
            raise refused(frame)
        if isinstance(frame, Hello) and self.peer is None:
            self._check(frame)
            self.peer = frame
            return self._welcome(frame) if self._dialling else encode_hello(self._hello)
        if isinstance(frame, Welcome) and self.peer is not None and not self.done:
            self._verify(frame, self.peer)
            answer = b"" if self._dialling else self._welcome(self.peer)
            self.theirs = LinkStanding(frame.epoch, frame.received, frame.settled, frame.first)
            return answer
        wanted = "HELLO" if self.peer is None else "WELCOME"
        raise LinkError(f"a {type(frame).__name__} frame came where the handshake wants {wanted}")

    def _check(self, peer: Hello) -> None:
        own = self._hello
        if peer.network != own.network:
            raise LinkError(f"broker {peer.broker} is of another network, {peer.network!r}", Reason.NETWORK)
        self.version = min(peer.highest, own.highest)
        if self.version < max(peer.lowest, own.lowest):
            raise LinkError(
                f"broker {peer.broker} speaks versions {peer.lowest} to {peer.highest} of the link protocol, this one "
                f"{own.lowest} to {own.highest}; update the older of the two",
                Reason.VERSION,
            )
        if peer.broker == own.broker:
            raise LinkError(
                f"both ends are broker {own.broker}; numbers are unique, and no broker links to itself",
                Reason.OWN_NUMBER,
            )
        if self._expected is not None and peer.broker not in self._expected:
            raise LinkError(f"broker {peer.broker} is not expected on this link", Reason.UNEXPECTED_NUMBER)
        if peer.authentication != own.authentication:
            raise LinkError(
                "one end has a secret or a key and the other has none; give both the secret of the network, and both "
                "or neither a key",
                Reason.AUTHENTICATION,
            )
        if self._identity.seals is not None and self.version < SIGNED_VERSION:
            raise LinkError(
                f"broker {peer.broker} speaks no version of the link protocol that has signatures; update it",
                Reason.VERSION,
            )
        if self._barred is not None and (reason := self._barred(peer.broker)):
            raise LinkError(reason, Reason.QUARANTINED)

    def _welcome(self, peer: Hello) -> bytes:
        self.ours = self._standing(peer.broker)
        welcome = Welcome(self.version, *self.ours)
        said = self._said(welcome, peer, dialler=self._dialling)
        secret, seals = self._identity.secret, self._identity.seals
        if secret is not None:
            welcome = replace(welcome, proof=hmac.digest(secret, said, "sha256"))
        if seals is not None:
            welcome = replace(welcome, signature=seals.sign(said))
        return encode_welcome(welcome)

    def _verify(self, welcome: Welcome, peer: Hello) -> None:
        said = self._said(welcome, peer, dialler=not self._dialling)
        secret, seals = self._identity.secret, self._identity.seals
        proof = NO_PROOF if secret is None else hmac.digest(secret, said, "sha256")
        if not hmac.compare_digest(proof, welcome.proof):
            raise LinkError(
                f"broker {peer.broker} does not know the secret of network {peer.network!r}; give both the same",
                Reason.SECRET,
            )
        if welcome.version != self.version:
            raise LinkError(
                f"broker {peer.broker} chose version {welcome.version}; it is {self.version}", Reason.VERSION
            )
        if not (
            welcome.signature == NO_SIGNATURE if seals is None else seals.verify(peer.broker, said, welcome.signature)
        ):
            raise LinkError(
                f"the peer does not have the key that the network lists for broker {peer.broker}", Reason.KEY
            )

    def _said(self, welcome: Welcome, peer: Hello, *, dialler: bool) -> bytes:
        """Return what proof and signature cover: which end makes them, both HELLOs, and what that end has received."""
        first, second = (self._hello, peer) if self._dialling else (peer, self._hello)
        binding = self._identity.binding
        parts = (
            _DIALLER if dialler else _LISTENER,
            struct.pack("<I", len(binding)),
            binding,
            encode_hello(first),
            encode_hello(second),
            encode_welcome(welcome)[:PROVED_BYTES],
        )
        return b"".join(parts)


def refused(bye: Bye) -> LinkError:
    """Return the error for a BYE of the peer."""
    known = bye.reason in tuple(Reason)
    return LinkError(
        f"the peer ended the link: {bye.text}", Reason(bye.reason) if known else Reason.REFUSED, ours=False
    )
