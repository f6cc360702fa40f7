"""How each broker is asked to keep messages: durable subscriptions, confirmed publications, acknowledgements.

STOMP for Postroad, ActiveMQ and RabbitMQ, each in the headers it knows; NATS' own protocol for JetStream.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from bench.dialects import Nats
from postroad.lab.load_frames import Stomp, wait_for

if TYPE_CHECKING:
    import socket

__all__ = ["DURABLE_DIALECTS", "DurableDialect"]


class DurableDialect(Protocol):
    """One way to ask for durability, over blocking sockets.

    Attributes:
        confirmation: stands once in every confirmation of a publication, and in nothing else a publisher gets.
        token: stands before what names a message to acknowledge, in every message.
    """

    confirmation: bytes
    token: bytes

    def greet(self, line: socket.socket, name: str) -> None:
        """Open the session of a client with a name."""

    def declare(self, line: socket.socket, topic: str) -> None:
        """Make what has to be there before anybody subscribes."""

    def subscribe(self, line: socket.socket, topic: str, name: str, window: int) -> None:
        """Take a durable subscription; at most so many messages are under way without an acknowledgement."""

    def listen(self, line: socket.socket, topic: str) -> None:
        """Subscribe as anybody does, with nothing durable."""

    def ready(self, line: socket.socket) -> None:
        """Get ready to publish: confirmations come over this connection."""

    def publication(self, topic: str, headers: bytes, body: bytes, confirmed: bool) -> bytes:
        """A message, ready to send."""

    def acknowledgement(self, token: bytes) -> bytes:
        """Acknowledge the message with this token, and all before it."""


class DurableStomp(Stomp):
    """STOMP 1.2 in the spelling that Postroad shares with RabbitMQ."""

    confirmation = b"RECEIPT\n"
    token = b"\nack:"

    def greet(self, line: socket.socket, name: str = "") -> None:
        line.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n" + self._who(name) + b"\n\0\n")
        self._answer(line)

    def _who(self, name: str) -> bytes:
        return b""

    def declare(self, line: socket.socket, topic: str) -> None:
        pass

    def ready(self, line: socket.socket) -> None:
        pass

    def listen(self, line: socket.socket, topic: str) -> None:
        line.sendall(f"SUBSCRIBE\nid:0\ndestination:/topic/{topic}\nreceipt:ready\n\n\0\n".encode())
        self._answer(line)

    def subscribe(self, line: socket.socket, topic: str, name: str, window: int) -> None:  # type: ignore[override]
        head = f"SUBSCRIBE\nid:{name}\ndestination:/topic/{topic}\nack:client\n"
        # No receipt: what waits comes at once, perhaps before it.
        line.sendall(head.encode() + self._terms(name, window) + b"\n\0\n")

    def _terms(self, name: str, window: int) -> bytes:
        return b"durable:true\nauto-delete:false\nprefetch-count:%d\n" % window

    def publication(self, topic: str, headers: bytes, body: bytes, confirmed: bool = True) -> bytes:
        head = b"SEND\ndestination:/topic/%b\ncontent-length:%d\n" % (topic.encode(), len(body))
        return head + (b"persistent:true\nreceipt:r\n" if confirmed else b"") + headers + b"\n" + body + b"\0\n"

    def acknowledgement(self, token: bytes) -> bytes:
        return b"ACK\nid:" + token.partition(b"\n")[0] + b"\n\n\0\n"


class RabbitStomp(DurableStomp):
    """RabbitMQ wants a login."""

    def _who(self, name: str) -> bytes:
        return b"login:guest\npasscode:guest\n"


class ActiveStomp(DurableStomp):
    """ActiveMQ names a durable subscription by the client's name and one of its own."""

    def _who(self, name: str) -> bytes:
        return f"client-id:{name}\n".encode() if name else b""

    def _terms(self, name: str, window: int) -> bytes:
        return f"activemq.subscriptionName:{name}\nactivemq.prefetchSize:{window}\n".encode()


class JetStream(Nats):
    """NATS with a stream in files and push consumers that acknowledge all up to a message."""

    confirmation = b'"seq":'
    token = b"$JS.ACK."

    def greet(self, line: socket.socket, name: str = "") -> None:
        super().greet(line)

    def declare(self, line: socket.socket, topic: str) -> None:
        # Kept until a limit, which costs JetStream less than to keep track of who has acknowledged.
        stream: dict[str, object] = {
            "name": _stream(topic),
            "subjects": [topic],
            "storage": "file",
            "retention": "limits",
        }
        stream |= {"discard": "old", "num_replicas": 1, "max_consumers": -1, "max_msgs": -1, "max_bytes": -1}
        self._ask(line, f"STREAM.CREATE.{_stream(topic)}", stream)

    def subscribe(self, line: socket.socket, topic: str, name: str, window: int) -> None:  # type: ignore[override]
        stream = _stream(topic)
        config: dict[str, object] = {"durable_name": name, "deliver_subject": f"to.{name}", "ack_policy": "all"}
        config |= {"max_ack_pending": window, "ack_wait": 600_000_000_000, "deliver_policy": "all"}
        self._ask(
            line, f"CONSUMER.DURABLE.CREATE.{stream}.{name}", {"stream_name": stream, "config": config}, "already"
        )
        line.sendall(b"SUB to.%b 2\r\n" % name.encode())

    def listen(self, line: socket.socket, topic: str) -> None:
        line.sendall(b"SUB %b 2\r\n" % topic.encode())
        self._answer(line)

    def ready(self, line: socket.socket) -> None:
        line.sendall(b"SUB confirmed 3\r\n")
        self._answer(line)

    def publication(self, topic: str, headers: bytes, body: bytes, confirmed: bool = True) -> bytes:
        reply = b" confirmed" if confirmed else b""
        return b"PUB %b%b %d\r\n%b%b\r\n" % (topic.encode(), reply, len(headers) + len(body), headers, body)

    def acknowledgement(self, token: bytes) -> bytes:
        return b"PUB $JS.ACK.%b 0\r\n\r\n" % token.split(b" ", 1)[0]

    def _ask(self, line: socket.socket, call: str, question: dict[str, object], unless: str = "") -> None:
        data = json.dumps(question).encode()
        line.sendall(
            b"SUB answers 1\r\nUNSUB 1 1\r\nPUB $JS.API.%b answers %d\r\n%b\r\n" % (call.encode(), len(data), data)
        )
        answer = wait_for(line, b"}", b"-ERR")
        if b'"error"' in answer and (not unless or unless.encode() not in answer):
            raise ConnectionError(f"JetStream refused {call}: {answer[:500]!r}")


def _stream(topic: str) -> str:
    return topic.replace(".", "_")


DURABLE_DIALECTS: dict[str, DurableDialect] = {
    "postroad": DurableStomp(),
    "rabbitmq": RabbitStomp(),
    "activemq": ActiveStomp(),
    "jetstream": JetStream(),
}
