"""Numbers that the scanning kernel and the decoder share: commands, the protocol's headers, slots of small arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Numbers: TypeAlias = "NDArray[np.int64]"
Columns: TypeAlias = "NDArray[np.int32]"

# Commands of clients, by number.
COMMANDS = (
    b"SEND",
    b"SUBSCRIBE",
    b"UNSUBSCRIBE",
    b"ACK",
    b"NACK",
    b"BEGIN",
    b"COMMIT",
    b"ABORT",
    b"CONNECT",
    b"STOMP",
    b"DISCONNECT",
)
SEND, SUBSCRIBE, UNSUBSCRIBE, ACK, NACK, BEGIN, COMMIT, ABORT, CONNECT, STOMP, DISCONNECT = range(len(COMMANDS))

# Headers of a SEND that have a meaning in the protocol ("own headers"). Their first letters differ, so a table of 256
# gives the only one that a line could be. Those from `FIRST_KEPT` on are read, and are attributes of the message too.
OWN_HEADERS = (
    b"destination",
    b"content-length",
    b"receipt",
    b"transaction",
    b"message-id",
    b"subscription",
    b"ack",
    b"priority",
    b"expires",
)
(
    OWN_DESTINATION,
    OWN_CONTENT_LENGTH,
    OWN_RECEIPT,
    OWN_TRANSACTION,
    OWN_MESSAGE_ID,
    OWN_SUBSCRIPTION,
    OWN_ACK,
    OWN_PRIORITY,
    OWN_EXPIRES,
) = range(len(OWN_HEADERS))
FIRST_KEPT = OWN_PRIORITY

DESTINATION_PREFIX = b"/topic/"
# As long as the prefix of topics, so that kernels only compare the byte in which they differ.
QUEUE_PREFIX = b"/queue/"

# How header lines are read before a version is agreed on: CONNECT frames have no escapes in any version. It is below
# 1.0, so that "from 1.1 on" is one comparison.
UNESCAPED = 9

# Slots of the settings.
MODE, COMMAND_LIMIT, HEADER_LIMIT, COUNT_LIMIT, BODY_LIMIT, TAKES_SENDS, TAKES_TRANSACTIONS = range(7)
SETTINGS = 7

# Slots of the state: the input of a scan, and its results.
#   AT          the next byte; at the end, the start of the first frame that is not finished
#   FILLED      the bytes written to the batch's buffer
#   ROWS        the rows written
#   CONTROLS    the control frames written
#   LINE_ENDS   the line ends between frames
#   FAULT       why it stopped (`faults`)
#   START       where the frame with the fault starts
#   REACHED     how far that frame was read
#   NEEDED      how many bytes from AT on there must be for a further scan to get further
#   AWAITED     the byte with which a scan gets further even before, or NOTHING
#   RECEIPTS    the rows that ask for a receipt
#   NAMED       the rows that have a message-id
#   LAST        where in the data the destination of the last row begins
#   LAST_END    its end; 0 if there is none, or it must not be used
#   QUEUES      the rows whose destination is a queue
AT, FILLED, ROWS, CONTROLS, LINE_ENDS, FAULT, START, REACHED, NEEDED, AWAITED, RECEIPTS = range(11)
NAMED, LAST, LAST_END, QUEUES = range(11, 15)
STATE = 15
NOTHING = -1

# Slots of the frame being read. From `FOUND` on: (start, end) of the value of each own header, -1 without.
F_COMMAND, F_HEADERS, F_HEADERS_END, F_BODY, F_BODY_END, F_END, F_PUT, FOUND = range(8)
FRAME = FOUND + 2 * len(OWN_HEADERS)

# Columns of the control frames: command, start, headers (start, end), end of the frame, rows before it.
C_COMMAND, C_START, C_HEADERS, C_HEADERS_END, C_END, C_ROW = range(6)
CONTROL_COLUMNS = 6

# Extra columns of the rows: receipt (start, end) and message-id (start, end) in the batch's buffer, -1 without.
RECEIPT, MESSAGE_ID = 0, 2
EXTRA_COLUMNS = 4

# Results of a scan: all is read; a control frame must be handled first; there is a fault.
DONE, PAUSED, FAULTY = 0, 1, 2
