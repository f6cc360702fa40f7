"""Keys of brokers: what they sign, whom they belong to, and files that are not keys."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from postroad.security import Authority, BrokerKeys, KeyFault, new_key, public_key

ONE, TWO = new_key(), new_key()
AUTHORITY = Authority.new("net")
PUBLIC = {1: public_key(ONE), 2: public_key(TWO)}
# PKCS #8 with an algorithm (object identifier 1.2.3.4) that no library knows.
UNKNOWN_ALGORITHM = bytes.fromhex("300f020100300506032a03040403040178")


def pem(data: bytes) -> bytes:
    return b"-----BEGIN PRIVATE KEY-----\n" + base64.encodebytes(data) + b"-----END PRIVATE KEY-----\n"


def encrypted(key: bytes) -> bytes:
    return load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )


def test_a_signature_counts_for_its_broker_its_data_and_its_network_alone() -> None:
    one, two = BrokerKeys("net", 1, ONE, PUBLIC), BrokerKeys("net", 2, TWO, PUBLIC)
    signature = one.sign(b"data")
    assert two.verify(1, b"data", signature)
    assert not two.verify(2, b"data", signature)
    assert not two.verify(1, b"date", signature)
    assert not two.verify(1, b"data", signature[:-1])
    assert not two.verify(1, b"data", b"")
    assert not two.verify(3, b"data", signature)
    assert not BrokerKeys("other", 2, TWO, PUBLIC).verify(1, b"data", signature)
    assert (two.knows(1), two.knows(3)) == (True, False)


def test_the_name_of_a_network_cannot_run_into_what_is_signed() -> None:
    short, long = BrokerKeys("a", 1, ONE, PUBLIC), BrokerKeys("ab", 1, ONE, PUBLIC)
    assert not long.verify(1, b"c", short.sign(b"bc"))


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n",
        pem(b"\x30\x03\x02\x01\x00"),
        pem(UNKNOWN_ALGORITHM),
        encrypted(ONE),
        generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    ],
)
def test_a_file_that_is_not_a_private_key_of_a_broker_is_refused(file: bytes) -> None:
    with pytest.raises(KeyFault, match="private key"):
        BrokerKeys("net", 1, file, PUBLIC)


@pytest.mark.parametrize("text", ["", "AAAA", PUBLIC[2][:-1], PUBLIC[2] + "\n", "é" * 44, PUBLIC[2] * 2])
def test_a_public_key_that_is_not_one_is_refused_with_its_broker(text: str) -> None:
    with pytest.raises(KeyFault, match="the key of broker 2 is not 32 bytes in base64"):
        BrokerKeys("net", 1, ONE, {**PUBLIC, 2: text})


def test_a_private_key_of_another_broker_is_refused() -> None:
    with pytest.raises(KeyFault, match="not that of broker 1"):
        BrokerKeys("net", 1, TWO, PUBLIC)
    with pytest.raises(KeyFault, match="list none for this broker, 3"):
        BrokerKeys("net", 3, ONE, PUBLIC)


@pytest.mark.parametrize("key", [b"", pem(UNKNOWN_ALGORITHM), encrypted(AUTHORITY.key), ONE])
def test_a_file_that_is_not_the_key_of_an_authority_is_refused(key: bytes) -> None:
    with pytest.raises(KeyFault, match=r"not the (certificate|key) of an authority"):
        Authority(AUTHORITY.certificate, key)


def test_a_file_that_is_not_the_certificate_of_an_authority_is_refused() -> None:
    with pytest.raises(KeyFault, match="not the certificate of an authority"):
        Authority(b"nonsense", AUTHORITY.key)
    assert Authority(AUTHORITY.certificate, AUTHORITY.key).issue("net", 1, "127.0.0.1").certificate
