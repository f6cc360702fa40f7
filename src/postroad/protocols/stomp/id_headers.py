"""The words with which a client that gives its messages ids itself and the broker understand each other.

CONNECT    postroad-ids:client                     asks for it; without, the broker gives ids, and says none of this
           postroad-publisher, postroad-token      when it comes back: what it was given before
CONNECTED  postroad-publisher, postroad-broker     the first two parts of all its ids
           postroad-token                          what to show when it comes back
           server-time, postroad-tolerance         the broker's clock, and how far from it an id may be, in ms
           postroad-last                           the last id that entered, when it is the publisher it was
SEND       message-id                              the id
RECEIPT    receipt-id:postroad-clock               unasked: an id was out of tolerance
           server-time, message-id                 the broker's clock when it took that message
ERROR      postroad-again:true                     nothing was wrong: the broker stops, and what it has not confirmed
                                                   can be sent again when it is back; or it cannot take the client now
"""

from __future__ import annotations

__all__ = [
    "AGAIN_HEADER",
    "BROKER_HEADER",
    "CLOCK_RECEIPT",
    "IDS_BY_BROKER",
    "IDS_BY_CLIENT",
    "IDS_HEADER",
    "LAST_HEADER",
    "MESSAGE_ID_HEADER",
    "PUBLISHER_HEADER",
    "SERVER_TIME_HEADER",
    "TOKEN_HEADER",
    "TOLERANCE_HEADER",
]

AGAIN_HEADER = "postroad-again"
IDS_HEADER = "postroad-ids"
IDS_BY_CLIENT = "client"
IDS_BY_BROKER = "broker"
PUBLISHER_HEADER = "postroad-publisher"
BROKER_HEADER = "postroad-broker"
TOKEN_HEADER = "postroad-token"
TOLERANCE_HEADER = "postroad-tolerance"
LAST_HEADER = "postroad-last"
SERVER_TIME_HEADER = "server-time"
MESSAGE_ID_HEADER = "message-id"
CLOCK_RECEIPT = "postroad-clock"
