"""Who may be at the other end of a link: the numbers that fit a connection, and the neighbours that are kept out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from postroad.config import is_distant
from postroad.security import certified_number
from postroad.server.counts import QuarantineStatus
from postroad.server.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from postroad.config import NetworkConfig

__all__ = ["LinkAdmission"]

log = logging.getLogger("postroad.links")

# What is refused of one neighbour is logged so often at most: all of it is counted.
LOGGED_MS = 5_000


class LinkAdmission:
    """Decides who may come in.

    Args:
        config: the network.
        timer: milliseconds that only go forward.
    """

    def __init__(self, config: NetworkConfig, timer: Callable[[], int]) -> None:
        self._name = config.name
        self._known = frozenset(neighbour.number for neighbour in config.neighbours)
        # The number of a broker is bound to its key; without keys to its certificate, except on one machine.
        self._certificates_name_brokers = config.tls is not None and config.key is None and bool(is_distant(config))
        self._timer = timer
        self._quarantine = Quarantine()
        # When a refusal of a neighbour was logged last.
        self._logged: dict[int, int] = {}

    def expected(self, dialled: int, certificate: Mapping[str, Any] | None) -> frozenset[int]:
        """The numbers that a peer may have: the one that was dialled, and the one that its certificate is for."""
        expected = frozenset({dialled}) if dialled else self._known
        if certificate is None:
            return expected
        certified = certified_number(certificate, self._name, self._known)
        if certified is None and not self._certificates_name_brokers:
            return expected
        return expected & {certified or 0}

    def barred(self, number: int) -> str:
        """Why a neighbour is kept out now; empty if it is not."""
        barred = self._quarantine.barred(number, self._timer())
        if barred is None:
            return ""
        return f"broker {number} is in quarantine for {barred.left_ms / 1_000:.0f} s more: {barred.reason}"

    def offended(self, number: int, reason: str) -> None:
        """A neighbour sent what no honest one would."""
        time = self._quarantine.offend(number, reason, self._timer())
        log.warning("neighbour in quarantine", extra={"neighbour": number, "reason": reason, "quarantine_ms": time})

    def refused(self, number: int, reason: str) -> None:
        """A neighbour sent what is not believed, and what it may have sent in good faith."""
        self._quarantine.count(number)
        now = self._timer()
        if number in self._logged and now - self._logged[number] < LOGGED_MS:
            return
        self._logged[number] = now
        log.info("record refused", extra={"neighbour": number, "reason": reason})

    def counts(self, number: int) -> tuple[int, int]:
        """How much was refused from a neighbour, and how often it was kept out."""
        return self._quarantine.counts(number)

    def quarantined(self) -> list[QuarantineStatus]:
        """The neighbours that are kept out, and why."""
        return [
            QuarantineStatus(neighbour=one.neighbour, seconds_left=round(one.left_ms / 1_000, 1), reason=one.reason)
            for one in self._quarantine.all_barred(self._timer())
        ]
