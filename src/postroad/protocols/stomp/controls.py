"""Turns control frames into events. The kernel has found the header lines and checked their form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from postroad.errors import PostroadError
from postroad.messages import MessageId
from postroad.messages.characters import first_invisible, shown
from postroad.protocols.stomp import columns as c
from postroad.protocols.stomp.ack_header import parse_ack
from postroad.protocols.stomp.events import (
    Abort,
    Ack,
    Begin,
    Commit,
    Connect,
    Disconnect,
    Nack,
    Subscribe,
    TransactionSend,
    Unsubscribe,
)
from postroad.protocols.stomp.header_escapes import read_lines
from postroad.protocols.stomp.limits import MAX_SUBSCRIPTION_ID_BYTES
from postroad.protocols.stomp.versions import SUPPORTED, Version, negotiate

if TYPE_CHECKING:
    from postroad.protocols.stomp.events import Event

__all__ = ["Refused", "event_of", "receipt_of"]

ACK_MODES = ("auto", "client", "client-individual")

_PREFIX, _QUEUE_PREFIX = c.DESTINATION_PREFIX.decode(), c.QUEUE_PREFIX.decode()
_HEART_BEAT = re.compile(r"\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*")


class Refused(PostroadError):
    """A control frame is not valid; `versions` lists ours if there is no common version."""

    def __init__(self, text: str, versions: str | None = None) -> None:
        super().__init__(text)
        self.versions = versions


def receipt_of(lines: bytes, version: Version | None) -> bytes | None:
    """Return the first `receipt` header of a block of lines, still escaped."""
    for line in lines.split(b"\n")[:-1]:
        if line.startswith(b"receipt:"):
            value = line[len(b"receipt:") :]
            if version is Version.V1_0:
                value = value.lstrip(b" ")
            return value if version is Version.V1_1 else value.removesuffix(b"\r")
    return None


def event_of(command: int, lines: bytes, frame: bytes, row: int, version: Version | None) -> Event:
    """Return the event of a frame, which is not a SEND outside transactions.

    Args:
        command: its number.
        lines: its header lines, each with its line end.
        frame: the whole frame, of a SEND.
        row: how many rows are before it.
        version: the version agreed on; None before.

    Raises:
        Refused: a header is missing or not valid.
    """
    try:
        headers = read_lines(lines, version)
    except ValueError:
        # The kernel has checked everything else.
        raise Refused("a header line is not UTF-8") from None
    if version is None:
        return _connect(headers, row)
    receipt = receipt_of(lines, version)
    if command == c.SEND:
        return TransactionSend(row=row, receipt=receipt, transaction=_needed(headers, "transaction"), frame=frame)
    if command == c.SUBSCRIBE:
        return _subscribe(headers, row, receipt, version)
    if command == c.UNSUBSCRIBE:
        return _unsubscribe(headers, row, receipt, version)
    if command in (c.ACK, c.NACK):
        return _acknowledgement(command, headers, row, receipt, version)
    if command in _TRANSACTIONS:
        return _TRANSACTIONS[command](row=row, receipt=receipt, transaction=_needed(headers, "transaction"))
    return Disconnect(row=row, receipt=receipt)


_TRANSACTIONS: dict[int, type[Begin | Commit | Abort]] = {c.BEGIN: Begin, c.COMMIT: Commit, c.ABORT: Abort}


def _needed(headers: dict[str, str], name: str) -> str:
    value = headers.get(name)
    if value is None:
        raise Refused(f"the header {name} is missing")
    return value


def _visible(headers: dict[str, str], name: str) -> str | None:
    """Return a header that people will read in logs, on status pages and in traces; refuse invisible characters."""
    value = headers.get(name)
    if value is not None and (at := first_invisible(value, blanks=True)) is not None:
        raise Refused(
            f"the header {name} has an invisible control or format character ({shown(value[at])}, "
            f"character {at}); leave it out"
        )
    return value


def _connect(headers: dict[str, str], row: int) -> Connect:
    accepted = headers.get("accept-version")
    version = negotiate(accepted)
    if version is None:
        text = f"there is no common version: accept-version is {accepted!r:.80}, spoken here are {SUPPORTED}"
        raise Refused(text, SUPPORTED)
    if version is Version.V1_0:
        headers = {name: value.lstrip(" ") for name, value in headers.items()}
    passcode = headers.pop("passcode", None)
    return Connect(
        row=row,
        version=version,
        host=headers.get("host"),
        login=_visible(headers, "login"),
        passcode=passcode,
        heart_beat=(0, 0) if version is Version.V1_0 else _heart_beat(headers.get("heart-beat", "0,0")),
        headers=headers,
    )


def _heart_beat(text: str) -> tuple[int, int]:
    found = _HEART_BEAT.fullmatch(text)
    if found is None:
        raise Refused(f"heart-beat is {text!r:.80}; write two numbers of milliseconds, such as heart-beat:5000,5000")
    return int(found[1]), int(found[2])


def _named_in(destination: str) -> tuple[str, bool]:
    """Return the topic or queue of a destination, and whether it is a queue."""
    for prefix in (_PREFIX, _QUEUE_PREFIX):
        if destination.startswith(prefix) and destination != prefix:
            return destination.removeprefix(prefix), prefix == _QUEUE_PREFIX
    raise Refused(
        f"the destination {destination!r:.80} is not served here; destinations start with {_PREFIX} or "
        f"{_QUEUE_PREFIX}, such as {_PREFIX}news.sport or {_PREFIX}news.*"
    )


def _subscribe(headers: dict[str, str], row: int, receipt: bytes | None, version: Version) -> Subscribe:
    named = _visible(headers, "id")
    if named is not None and (size := len(named.encode())) > MAX_SUBSCRIPTION_ID_BYTES:
        raise Refused(
            f"the header id has {size:,} bytes; {MAX_SUBSCRIPTION_ID_BYTES:,} are allowed, for every message of the "
            "subscription repeats it (limit MAX_SUBSCRIPTION_ID_BYTES)"
        )
    ack = headers.get("ack", "auto")
    if ack not in ACK_MODES:
        raise Refused(f"the header ack is {ack!r:.80}; it can be {', '.join(ACK_MODES)}")
    topic, is_queue = _named_in(_needed(headers, "destination"))
    return Subscribe(
        row=row,
        receipt=receipt,
        id=headers.get("id") if version is Version.V1_0 else _needed(headers, "id"),
        topic=topic,
        ack=ack,
        selector=headers.get("selector"),
        headers=headers,
        queue=is_queue,
    )


def _unsubscribe(headers: dict[str, str], row: int, receipt: bytes | None, version: Version) -> Unsubscribe:
    destination = None
    if version is Version.V1_0 and "id" not in headers:
        destination = _needed(headers, "destination")
        _named_in(destination)
    name = None if destination is not None else _needed(headers, "id")
    return Unsubscribe(row=row, receipt=receipt, id=name, destination=destination, headers=headers)


def _acknowledgement(
    command: int, headers: dict[str, str], row: int, receipt: bytes | None, version: Version
) -> Ack | Nack:
    if command == c.NACK and version is Version.V1_0:
        raise Refused("NACK came with STOMP 1.1, and this connection speaks 1.0")
    subscription, number = headers.get("subscription"), None
    try:
        if version is Version.V1_2:
            message_id, number = parse_ack(_needed(headers, "id"))
        else:
            message_id = MessageId.parse(_needed(headers, "message-id"))
    except PostroadError as error:
        raise Refused(str(error)) from None
    if version is Version.V1_1:
        subscription = _needed(headers, "subscription")
    transaction = headers.get("transaction")
    if command == c.ACK:
        return Ack(
            row=row,
            receipt=receipt,
            message_id=message_id,
            number=number,
            subscription=subscription,
            transaction=transaction,
        )
    return Nack(
        row=row,
        receipt=receipt,
        message_id=message_id,
        number=number,
        subscription=subscription,
        transaction=transaction,
        # The header of RabbitMQ.
        requeues=headers.get("requeue", "true") != "false",
    )
