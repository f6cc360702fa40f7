"""STOMP 1.0, 1.1 and 1.2 without I/O (`docs/stomp.md`)."""

from __future__ import annotations

from postroad.protocols.stomp.ack_header import parse_ack
from postroad.protocols.stomp.client import Frame, FrameReader, StompError, encode_frame
from postroad.protocols.stomp.decoder import Received, StompDecoder, decode_frames
from postroad.protocols.stomp.events import (
    Abort,
    Ack,
    Begin,
    Commit,
    Connect,
    Disconnect,
    Event,
    Nack,
    ProtocolError,
    Subscribe,
    TransactionSend,
    Unsubscribe,
)
from postroad.protocols.stomp.foreign_ids import foreign_ids
from postroad.protocols.stomp.given_ids import given_id_text, read_ids
from postroad.protocols.stomp.limits import StompLimits
from postroad.protocols.stomp.rendered_rows import Rendered, render_messages, render_receipts, render_rows
from postroad.protocols.stomp.replies import HEART_BEAT, connected_frame, error_frame, message_prefix, receipt_frame
from postroad.protocols.stomp.states import State
from postroad.protocols.stomp.versions import SUPPORTED, Version

__all__ = [
    "HEART_BEAT",
    "SUPPORTED",
    "Abort",
    "Ack",
    "Begin",
    "Commit",
    "Connect",
    "Disconnect",
    "Event",
    "Frame",
    "FrameReader",
    "Nack",
    "ProtocolError",
    "Received",
    "Rendered",
    "State",
    "StompDecoder",
    "StompError",
    "StompLimits",
    "Subscribe",
    "TransactionSend",
    "Unsubscribe",
    "Version",
    "connected_frame",
    "decode_frames",
    "encode_frame",
    "error_frame",
    "foreign_ids",
    "given_id_text",
    "message_prefix",
    "parse_ack",
    "read_ids",
    "receipt_frame",
    "render_messages",
    "render_receipts",
    "render_rows",
]
