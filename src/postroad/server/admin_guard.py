"""Checks that a request to the admin endpoint knows its token: sent, as curl and Prometheus do, or proved."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from postroad.protocols.admin_proof import PROOF_HEADER, ProofCheck, reply_proof
from postroad.sessions import wall_clock

if TYPE_CHECKING:
    from postroad.server.http import HttpResponse, Request
    from postroad.sessions import Audit

__all__ = ["AdminGuard"]


class AdminGuard:
    """Knows the token.

    Args:
        token: what a request has to know to see who is connected and where messages went; None shows it to all.
        audit: logs and counts refusals.
    """

    def __init__(self, token: str | None, audit: Audit) -> None:
        self.token = token
        self._audit = audit
        self._proofs = ProofCheck(wall_clock)

    def admit(self, request: Request) -> Request:
        """The request with what was found of its proof."""
        if self.token is None or not request.proof:
            return request
        is_proved = self._proofs.accepts(self.token, request.proof, request.address, request.method, request.target)
        return request._replace(is_proved=is_proved)

    def seal(self, request: Request, answer: HttpResponse) -> HttpResponse:
        """The answer, with a proof of its own if the request had one."""
        if self.token is None or not request.is_proved:
            return answer
        proof = reply_proof(self.token, request.proof, answer.status.value, answer.body)
        return answer._replace(headers={**answer.headers, PROOF_HEADER: proof})

    def may_see_people(self, request: Request) -> bool:
        """Whether a request knows the token, if one is needed; a wrong one goes to the audit."""
        if self.token is None or request.is_proved:
            return True
        if hmac.compare_digest(self.token.encode(), request.token.encode()):
            return True
        if request.token or request.proof:
            self._audit.refused("admin request refused", path=request.path[:100])
        return False
