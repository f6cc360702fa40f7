"""Who gets in, who does not, and what each end is told."""

from __future__ import annotations

import base64
import hmac
import operator
import struct
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from postroad.protocols.link import (
    CUSTODY,
    Bye,
    Data,
    Handshake,
    HeartBeat,
    Hello,
    Identity,
    LinkDecoder,
    LinkError,
    LinkStanding,
    Reason,
    Welcome,
    encode_bye,
    encode_hello,
    encode_welcome,
)
from postroad.protocols.link.frames import NO_PROOF
from postroad.security import BrokerKeys, new_key, public_key
from tests.messages.strategies import mutations

SECRET = b"sixteen bytes or more"
ONE = Identity(1, 1_000, "net", 5, SECRET, CUSTODY, 250)
TWO = Identity(2, 2_000, "net", 6, SECRET)
HERE, THERE = LinkStanding(2_000, 9, 7, 4), LinkStanding(1_000, 3, 1, 10)


PRIVATE = {number: new_key() for number in (1, 2, 3)}
PUBLIC = {number: public_key(private) for number, private in PRIVATE.items()}
KEYS = {number: BrokerKeys("net", number, PRIVATE[number], PUBLIC) for number in PRIVATE}


def keyed(identity: Identity) -> Identity:
    return replace(identity, seals=KEYS[identity.broker])


def handshake(identity: Identity, standing: LinkStanding = HERE, **more: Any) -> Handshake:
    settings: dict[str, Any] = {"dialling": identity.broker == 1, "nonce": bytes([identity.broker]) * 32} | more
    return Handshake(identity, lambda number: standing, **settings)


def frame(data: bytes) -> Any:
    (found,) = LinkDecoder().receive(data)
    return found


def shake(dialler: Handshake, listener: Handshake) -> None:
    """Exchange bytes until nobody has any to send."""
    ends = [listener, dialler]
    data = dialler.begin()
    while data:
        end = ends.pop(0)
        ends.append(end)
        data = end.receive(frame(data))


def test_both_ends_learn_who_and_where_the_other_is() -> None:
    dialler, listener = handshake(ONE, HERE), handshake(TWO, THERE)
    shake(dialler, listener)
    assert dialler.done
    assert listener.done
    assert (dialler.theirs, listener.theirs) == (THERE, HERE)
    assert (dialler.ours, listener.ours) == (HERE, THERE)
    assert dialler.peer == Hello(1, 2, 2, 2_000, 6, "net", bytes([2]) * 32, 1, 0, 1_000)
    assert listener.peer == Hello(1, 2, 1, 1_000, 5, "net", bytes([1]) * 32, 1, CUSTODY, 250)
    assert dialler.version == listener.version == 2


def test_proof_is_what_the_document_says() -> None:
    dialler, listener = handshake(replace(ONE, binding=b"tls")), handshake(TWO)
    first = dialler.begin()
    second = listener.receive(frame(first))
    third = dialler.receive(frame(second))
    covered = b"postroad link, dialler" + struct.pack("<I", 3) + b"tls" + first + second + third[:48]
    assert third[48:] == hmac.digest(SECRET, covered, "sha256") + bytes(64)
    keyed = [replace(one, binding=b"tls", seals=KEYS[one.broker]) for one in (ONE, TWO)]
    dialler, listener = map(handshake, keyed)
    first = dialler.begin()
    second = listener.receive(frame(first))
    third = dialler.receive(frame(second))
    covered = b"postroad link, dialler" + struct.pack("<I", 3) + b"tls" + first + second + third[:48]
    assert third[48:80] == hmac.digest(SECRET, covered, "sha256")
    raw = base64.b64decode(public_key(PRIVATE[1]))
    Ed25519PublicKey.from_public_bytes(raw).verify(third[80:], b"postroad\0\x03\0net" + covered)


def test_ends_with_keys_open_with_a_secret_and_without() -> None:
    for secret in (SECRET, None):
        dialler, listener = (handshake(replace(keyed(one), secret=secret)) for one in (ONE, TWO))
        shake(dialler, listener)
        assert dialler.done
        assert listener.done


def test_end_with_a_key_refuses_a_version_without_signatures() -> None:
    with pytest.raises(LinkError, match="has signatures; update it") as caught:
        handshake(keyed(TWO)).receive(Hello(1, 1, 1, 1, 1, "net", bytes(32), 3, 0, 1))
    assert caught.value.reason == Reason.VERSION


def test_end_that_is_barred_is_told_why() -> None:
    with pytest.raises(LinkError, match="not before noon") as caught:
        shake(handshake(ONE), handshake(TWO, barred=lambda number: "not before noon" if number == 1 else ""))
    assert caught.value.reason == Reason.QUARANTINED


def test_ends_without_a_secret_do_without_proof() -> None:
    dialler, listener = handshake(replace(ONE, secret=None)), handshake(replace(TWO, secret=None))
    shake(dialler, listener)
    assert dialler.done
    assert listener.done


@pytest.mark.parametrize(
    ("one", "two", "expected", "reason"),
    [
        (ONE, replace(TWO, secret=b"another secret, as long"), None, Reason.SECRET),
        (ONE, replace(TWO, binding=b"another session"), None, Reason.SECRET),
        (ONE, replace(TWO, secret=None), None, Reason.AUTHENTICATION),
        (replace(ONE, secret=None), TWO, None, Reason.AUTHENTICATION),
        (ONE, replace(TWO, network="Net"), None, Reason.NETWORK),
        (ONE, TWO, {3, 4}, Reason.UNEXPECTED_NUMBER),
        (ONE, replace(TWO, broker=1), None, Reason.OWN_NUMBER),
        (ONE, replace(TWO, seals=KEYS[2]), None, Reason.AUTHENTICATION),
        (keyed(ONE), replace(keyed(TWO), binding=b"another session", secret=SECRET), None, Reason.SECRET),
        (replace(keyed(ONE), secret=None), replace(keyed(TWO), secret=None, binding=b"other"), None, Reason.KEY),
        # Broker 3 knows the secret and has a key, and claims to be broker 1.
        (replace(ONE, seals=KEYS[3]), keyed(TWO), None, Reason.KEY),
    ],
)
def test_end_that_finds_a_fault_says_which(one: Identity, two: Identity, expected: Any, reason: Reason) -> None:
    dialler = handshake(one)
    listener = handshake(two, dialling=False, expected=expected)
    with pytest.raises(LinkError) as caught:
        shake(dialler, listener)
    error = caught.value
    assert (error.reason, error.ours) == (reason, True)
    assert not dialler.done
    assert not listener.done
    with pytest.raises(LinkError) as told:
        dialler.receive(frame(encode_bye(error.reason, str(error))))
    assert (told.value.reason, told.value.ours) == (reason, False)
    assert str(error) in str(told.value)


def test_dialler_refuses_a_number_it_did_not_dial() -> None:
    with pytest.raises(LinkError) as caught:
        shake(handshake(ONE, expected={3}), handshake(TWO))
    assert caught.value.reason == Reason.UNEXPECTED_NUMBER


def test_dialler_refuses_a_listener_without_the_secret() -> None:
    """A listener that takes any proof still has to make its own."""
    dialler, listener = handshake(ONE), handshake(TWO)
    welcome = dialler.receive(frame(listener.receive(frame(dialler.begin()))))
    answer = frame(listener.receive(frame(welcome)))
    for proof in (NO_PROOF, frame(welcome).proof, bytes(31) + b"\1"):
        with pytest.raises(LinkError) as caught:
            dialler.receive(replace(answer, proof=proof))
        assert caught.value.reason == Reason.SECRET
        assert not dialler.done
    dialler.receive(answer)
    assert dialler.done


@pytest.mark.parametrize(("lowest", "highest", "agreed"), [(1, 1, 1), (1, 7, 2), (2, 2, 2), (3, 3, 0), (3, 9, 0)])
def test_ends_speak_the_newest_version_both_know(lowest: int, highest: int, agreed: int) -> None:
    listener = handshake(replace(TWO, secret=None))
    hello = Hello(lowest, highest, 1, 1, 1, "net", bytes(32), 0, 0, 1)
    if agreed:
        listener.receive(hello)
        assert listener.version == agreed
        return
    with pytest.raises(LinkError, match="update the older") as caught:
        listener.receive(hello)
    assert caught.value.reason == Reason.VERSION


def test_version_of_a_welcome_is_the_agreed_one() -> None:
    listener = handshake(replace(TWO, secret=None))
    listener.receive(Hello(1, 2, 1, 1, 1, "net", bytes(32), 0, 0, 1))
    with pytest.raises(LinkError, match="chose version 1"):
        listener.receive(Welcome(1, 0, 0, 0, 1))
    assert not listener.done


@given(st.data())
def test_nothing_changed_on_the_way_gets_through(data: st.DataObject) -> None:
    """Change any byte of any of the four frames: at least one end does not open."""
    changed = data.draw(st.integers(0, 3))
    with_keys = data.draw(st.booleans())
    dialler, listener = (handshake(keyed(one) if with_keys else one) for one in (ONE, TWO))
    ends, sent = [listener, dialler], dialler.begin()
    try:
        for step in range(4):
            if step == changed:
                sent = data.draw(mutations(sent).filter(partial(operator.ne, sent)))
            end = ends[step % 2]
            sent = end.receive(frame(sent))
    except (LinkError, ValueError):  # ValueError: no whole frame is left
        pass
    assert not (dialler.done and listener.done)


@pytest.mark.parametrize("out_of_turn", [Welcome(1, 0, 0, 0, 1), HeartBeat(), Data(1, 1, None, None, None)])  # type: ignore[arg-type]
def test_handshake_begins_with_hello(out_of_turn: Any) -> None:
    with pytest.raises(LinkError, match="wants HELLO"):
        handshake(TWO).receive(out_of_turn)


def test_hello_comes_once() -> None:
    listener = handshake(TWO)
    hello = frame(handshake(ONE).begin())
    listener.receive(hello)
    with pytest.raises(LinkError, match="wants WELCOME"):
        listener.receive(hello)


def test_unknown_reason_of_a_bye_is_a_refusal() -> None:
    with pytest.raises(LinkError, match="later") as caught:
        handshake(ONE).receive(Bye(999, "later"))
    assert caught.value.reason == Reason.REFUSED


@pytest.mark.parametrize(
    "wrong",
    [
        {"broker": 0},
        {"broker": 2**32},
        {"epoch": 0},
        {"membership": -1},
        {"network": ""},
        {"network": "é" * 128},
        {"heart_beat": 0},
        {"heart_beat": 600_001},
        {"secret": b"too short"},
    ],
)
def test_identity_is_refused_when_no_hello_could_say_it(wrong: dict[str, Any]) -> None:
    with pytest.raises(LinkError):
        replace(ONE, **wrong)


def test_secret_does_not_show() -> None:
    assert "sixteen" not in repr(ONE)


def test_nonce_has_its_size() -> None:
    with pytest.raises(LinkError, match="32 random bytes"):
        handshake(ONE, nonce=bytes(31))


@pytest.mark.parametrize(
    ("wrong", "because"),
    [
        ({"lowest": 0}, "not a range"),
        ({"lowest": 3, "highest": 2}, "not a range"),
        ({"broker": 0}, "out of range"),
        ({"epoch": 0}, "out of range"),
        ({"epoch": 2**63}, "out of range"),
        ({"membership": 2**63}, "out of range"),
        ({"heart_beat": 0}, "heart-beat of 0"),
        ({"heart_beat": 600_001}, "heart-beat of 600001"),
        ({"network": ""}, "not a link of Postroad"),
        ({"network": "x" * 256}, "256 bytes"),
    ],
)
def test_hello_is_refused_when_a_field_is_out_of_range(wrong: dict[str, Any], because: str) -> None:
    hello = Hello(1, 1, 1, 1, 1, "net", bytes(32), 0, 0, 1)
    with pytest.raises(LinkError, match=because):
        frame(encode_hello(replace(hello, **wrong)))


@pytest.mark.parametrize("wrong", [{"first": 0}, {"settled": 5}, {"epoch": 2**63}, {"received": 2**63}])
def test_welcome_is_refused_when_its_numbers_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(LinkError, match="cannot be"):
        frame(encode_welcome(replace(Welcome(1, 1, 4, 4, 1), **wrong)))
