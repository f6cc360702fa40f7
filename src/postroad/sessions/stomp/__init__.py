"""STOMP sessions: one conversation per connection, without sockets."""

from __future__ import annotations

from postroad.sessions.stomp.conversation import StompConversation
from postroad.sessions.stomp.renderers import WEBSOCKET

__all__ = ["WEBSOCKET", "StompConversation"]
