"""Broker to broker without I/O (`docs/formats.md`, "Link frames")."""

from __future__ import annotations

from postroad.protocols.link.data import Data, decode_data, encode_data
from postroad.protocols.link.decoder import LinkDecoder
from postroad.protocols.link.errors import LinkError, Reason
from postroad.protocols.link.frames import (
    HEART_BEAT,
    Bye,
    Control,
    HeartBeat,
    Hello,
    Progress,
    Welcome,
    encode_bye,
    encode_control,
    encode_hello,
    encode_progress,
    encode_welcome,
)

__all__ = [
    "HEART_BEAT",
    "Bye",
    "Control",
    "Data",
    "HeartBeat",
    "Hello",
    "LinkDecoder",
    "LinkError",
    "Progress",
    "Reason",
    "Welcome",
    "decode_data",
    "encode_bye",
    "encode_control",
    "encode_data",
    "encode_hello",
    "encode_progress",
    "encode_welcome",
]
