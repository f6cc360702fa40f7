"""Proofs that both ends of a request to an admin endpoint know its token, without sending the token.

A port number outlives its broker: another program may listen there by the time of a request. With the token, that
program could close sessions and delete queues wherever the token is valid. So without TLS, our clients send

    Authorization: Postroad-Proof TIME.NONCE.MAC        and get        Postroad-Proof: MAC

Rule 1: the client's MAC covers the address that it is connected to. A program that listens there and passes the
        request on connects to another address, and the broker refuses it.
Rule 2: it covers a time and a nonce. A broker accepts it once, and for a minute.
Rule 3: it covers method and target: it is valid for this request only.
Rule 4: the broker's MAC covers the client's MAC, the status and the body: the reply comes from the broker, and belongs
        to this request.

Both MACs are HMAC-SHA256 with the token as key, in hexadecimal. Somebody who gets one can try tokens against it, so a
token has to be random.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PROOF_HEADER", "PROOF_SCHEME", "ProofCheck", "reply_proof", "request_proof"]

PROOF_SCHEME = "Postroad-Proof"
PROOF_HEADER = "Postroad-Proof"
# Both ends are on one machine and use one clock; even a busy broker replies within seconds.
WINDOW_MS = 60_000
# Nonces of two windows, which have to be remembered: 80 requests per second. Only clients that know the token add to
# them.
MOST_NONCES = 10_000
# Three numbers in a line; a longer text is not a proof.
MOST_PROOF_CHARACTERS = 200


def request_proof(token: str, address: str, method: str, target: str, time: int, nonce: str) -> str:
    """Return the proof of a request, which follows the scheme in the header.

    Args:
        token: of the admin endpoint.
        address: where the endpoint is, as the connection has it: host and port.
        method: GET or DELETE.
        target: path and query, as the request line has them.
        time: in ms since 1970.
        nonce: at least 128 random bits, in hexadecimal.
    """
    mac = _mac(token, "request", address, str(time), nonce, method, target)
    return f"{time}.{nonce}.{mac}"


def reply_proof(token: str, proof: str, status: int, body: bytes) -> str:
    """Return the proof of a broker's reply to a request with this proof."""
    return _mac(token, "reply", proof, str(status), hashlib.sha256(body).hexdigest())


class ProofCheck:
    """Checks proofs of requests; each is accepted once.

    Args:
        clock: ms since 1970.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        # Accepted nonces, in their order, each with the time until which its proof could be sent again.
        self._nonces: dict[str, int] = {}

    def accepts(self, token: str, proof: str, address: str, method: str, target: str) -> bool:
        """Whether the proof shows that the client knows the token, and is for this request, here and now."""
        time, nonce = _parts(proof)
        now = self._clock()
        if abs(now - time) > WINDOW_MS:
            return False
        if not hmac.compare_digest(request_proof(token, address, method, target, time, nonce), proof):
            return False
        for known, until in list(self._nonces.items()):
            if until > now:
                break
            del self._nonces[known]
        if nonce in self._nonces or len(self._nonces) >= MOST_NONCES:
            return False
        self._nonces[nonce] = now + 2 * WINDOW_MS + 1
        return True


def _parts(proof: str) -> tuple[int, str]:
    """Return time and nonce; a time long ago if this is not a proof."""
    time, _, rest = proof.partition(".")
    nonce = rest.partition(".")[0]
    if len(proof) > MOST_PROOF_CHARACTERS or not (proof.isascii() and time.isdigit() and nonce):
        return 0, ""
    return int(time), nonce


def _mac(token: str, *parts: str) -> str:
    # No part contains a line end: each is a number, a word, an address or a part of a request line.
    text = "\n".join(("postroad admin 1", *parts))
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()
