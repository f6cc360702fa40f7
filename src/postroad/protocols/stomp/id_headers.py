"""Headers for clients that give ids to their messages themselves.

CONNECT    postroad-ids:client                     asks for it; without it, the broker gives ids and sends none of these
           postroad-publisher, postroad-token      when it reconnects: what it was given before
CONNECTED  postroad-publisher, postroad-broker     the first two parts of all its ids
           postroad-token                          what to send when it reconnects
           server-time, postroad-tolerance         the broker's clock, and how far from it an id may be, in ms
           postroad-last                           the last accepted id, if it has its number from before
SEND       message-id                              the id
RECEIPT    receipt-id:postroad-clock               without a request: an id was out of tolerance
           server-time, message-id                 the broker's clock when it accepted that message
ERROR      postroad-again:true                     not the client's fault: the broker stops, and the client can send
                                                   again later what was not confirmed; or it cannot accept it now
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
