"""What a client's connection means, without I/O: the contract of sessions, their dispatch, one folder per protocol."""

from __future__ import annotations

from postroad.sessions.audit import Audit
from postroad.sessions.client_memory import Holding, Holdings, who_goes
from postroad.sessions.contract import ClientSession, LoginVerdict, Terms, Transport, WebSocketProfile
from postroad.sessions.dispatch import Dispatcher, steady_clock, wall_clock
from postroad.sessions.entrance import Entrance, address_of
from postroad.sessions.shared_bytes import SharedBytes

__all__ = [
    "Audit",
    "ClientSession",
    "Dispatcher",
    "Entrance",
    "Holding",
    "Holdings",
    "LoginVerdict",
    "SharedBytes",
    "Terms",
    "Transport",
    "WebSocketProfile",
    "address_of",
    "steady_clock",
    "wall_clock",
    "who_goes",
]
