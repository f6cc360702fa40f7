"""Keys of brokers: each signs what it says about itself, and all know the public keys of all (Ed25519)."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from postroad.errors import PostroadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["PUBLIC_KEY_BYTES", "BrokerKeys", "KeyFault", "new_key", "public_key"]

PUBLIC_KEY_BYTES = 32


class KeyFault(PostroadError):
    """A key is not one, or does not belong to its broker."""


class BrokerKeys:
    """The key of one broker of a network, and the public keys of all its brokers.

    A signature covers the name of the network, so that two networks may have the same keys and believe nothing of each
    other.

    Args:
        network: its name.
        number: this broker.
        private: its private key, as a PEM file holds it.
        public: the public keys of all brokers, base64.

    Raises:
        KeyFault: a key is not one, or the private key does not belong to this broker.
    """

    def __init__(self, network: str, number: int, private: bytes, public: Mapping[int, str]) -> None:
        name = network.encode()
        self._context = b"postroad\0" + len(name).to_bytes(2, "little") + name
        self._key = _private(private)
        self._public = {broker: _public(text, broker) for broker, text in public.items()}
        if number not in self._public:
            raise KeyFault(f"the keys of the network list none for this broker, {number}")
        if public_key(private) != public[number]:
            raise KeyFault(f"the private key is not that of broker {number}: the network lists another one for it")

    def sign(self, data: bytes) -> bytes:
        """The signature of this broker."""
        return self._key.sign(self._context + data)

    def knows(self, broker: int) -> bool:
        """Whether the broker belongs to the network."""
        return broker in self._public

    def verify(self, broker: int, data: bytes, signature: bytes) -> bool:
        """Whether a broker has signed this."""
        from cryptography.exceptions import InvalidSignature

        key = self._public.get(broker)
        if key is None:
            return False
        try:
            key.verify(signature, self._context + data)
        except InvalidSignature:
            return False
        return True


def new_key() -> bytes:
    """A new private key, as a PEM file holds it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_key(private: bytes) -> str:
    """The public key of a private one, base64.

    Raises:
        KeyFault: it is none.
    """
    return base64.b64encode(_private(private).public_key().public_bytes_raw()).decode()


def _private(pem: bytes) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyFault(f"not a PEM file with a private key without a password: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFault("the private key is of another kind than Ed25519; `postroad network plan --keys` makes one")
    return key


def _public(text: str, broker: int) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = base64.b64decode(text, validate=True)
        if len(raw) != PUBLIC_KEY_BYTES:
            raise ValueError(f"{len(raw)} bytes")
        return Ed25519PublicKey.from_public_bytes(raw)
    except (ValueError, binascii.Error) as error:
        raise KeyFault(f"the key of broker {broker} is not {PUBLIC_KEY_BYTES} bytes in base64: {error}") from None
