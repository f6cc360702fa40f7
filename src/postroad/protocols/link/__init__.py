"""Broker to broker without I/O (`docs/formats.md`, "Link frames")."""

from __future__ import annotations

from postroad.protocols.link.conversation import Heard, LinkConversation, Neighbour
from postroad.protocols.link.data import Data, decode_data, encode_data
from postroad.protocols.link.decoder import LinkDecoder
from postroad.protocols.link.errors import LinkError, Reason
from postroad.protocols.link.frames import (
    CUSTODY,
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
from postroad.protocols.link.handshake import Handshake, Identity, LinkStanding
from postroad.protocols.link.joined_frames import group_frames, join_frames
from postroad.protocols.link.pulse import Pulse, redial_delay
from postroad.protocols.link.receiver import LinkReceiver, ReceiverStatistics
from postroad.protocols.link.sender import Attached, LinkSender, Room, SenderLimits, SenderStatistics, Sent

__all__ = [
    "CUSTODY",
    "HEART_BEAT",
    "Attached",
    "Bye",
    "Control",
    "Data",
    "Handshake",
    "Heard",
    "HeartBeat",
    "Hello",
    "Identity",
    "LinkConversation",
    "LinkDecoder",
    "LinkError",
    "LinkReceiver",
    "LinkSender",
    "LinkStanding",
    "Neighbour",
    "Progress",
    "Pulse",
    "Reason",
    "ReceiverStatistics",
    "Room",
    "SenderLimits",
    "SenderStatistics",
    "Sent",
    "Welcome",
    "decode_data",
    "encode_bye",
    "encode_control",
    "encode_data",
    "encode_hello",
    "encode_progress",
    "encode_welcome",
    "group_frames",
    "join_frames",
    "redial_delay",
]
