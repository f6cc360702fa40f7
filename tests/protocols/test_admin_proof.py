"""Proofs of an admin endpoint's token: good once, for one request, at one address, for a minute."""

from __future__ import annotations

import pytest

from postroad.protocols import admin_proof
from postroad.protocols.admin_proof import WINDOW_MS, ProofCheck, reply_proof, request_proof

TOKEN = "0123456789abcdef"
HERE = "127.0.0.1 8161"
NOW = 1_800_000_000_000


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def proof(time: int = NOW, nonce: str = "ab" * 16, token: str = TOKEN, target: str = "/status") -> str:
    return request_proof(token, HERE, "GET", target, time, nonce)


def test_proof_counts_once() -> None:
    check = ProofCheck(SetClock())
    assert check.accepts(TOKEN, proof(), HERE, "GET", "/status")
    assert not check.accepts(TOKEN, proof(), HERE, "GET", "/status")
    assert check.accepts(TOKEN, proof(nonce="cd" * 16), HERE, "GET", "/status")


@pytest.mark.parametrize(
    ("shown", "address", "method", "target"),
    [
        (proof(), "127.0.0.1 8162", "GET", "/status"),
        (proof(), HERE, "DELETE", "/status"),
        (proof(), HERE, "GET", "/status?x=1"),
        (proof(token="0123456789abcdeg"), HERE, "GET", "/status"),
        (proof(time=NOW - WINDOW_MS - 1), HERE, "GET", "/status"),
        (proof(time=NOW + WINDOW_MS + 1), HERE, "GET", "/status"),
        (proof()[:-1], HERE, "GET", "/status"),
        (proof().replace(str(NOW), str(NOW + 1)), HERE, "GET", "/status"),
        ("", HERE, "GET", "/status"),
        (f"{NOW}..", HERE, "GET", "/status"),
        (f"{NOW}.ab", HERE, "GET", "/status"),
        ("9" * 5_000, HERE, "GET", "/status"),
        (f"\u0661.{'ab' * 16}.x", HERE, "GET", "/status"),
        (f"{NOW}.\xe9.\xe9", HERE, "GET", "/status"),
    ],
)
def test_proof_of_anything_else_is_refused(shown: str, address: str, method: str, target: str) -> None:
    assert not ProofCheck(SetClock()).accepts(TOKEN, shown, address, method, target)


def test_proofs_are_forgotten_when_nobody_could_show_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_proof, "MOST_NONCES", 3)
    clock = SetClock()
    check = ProofCheck(clock)

    def shown(number: int) -> bool:
        return check.accepts(TOKEN, proof(clock.now + WINDOW_MS, f"{number:032x}"), HERE, "GET", "/status")

    assert [shown(number) for number in range(4)] == [True, True, True, False]
    # As late as their proofs could be shown, all are remembered.
    clock.now += 2 * WINDOW_MS
    assert not shown(5)
    clock.now += 1
    assert shown(6)


def test_reply_is_to_one_request_with_one_body() -> None:
    proofs = {
        reply_proof(TOKEN, proof(), 200, b"body"),
        reply_proof(TOKEN, proof(), 404, b"body"),
        reply_proof(TOKEN, proof(), 200, b"other"),
        reply_proof(TOKEN, proof(nonce="cd" * 16), 200, b"body"),
        reply_proof("0123456789abcdeg", proof(), 200, b"body"),
    }
    assert len(proofs) == 5
