"""Topics written in the style of other brokers: refused, or explained."""

from __future__ import annotations

import typer

from postroad.errors import PostroadError

__all__ = ["check_written"]

# STOMP needs this prefix before every topic; here it is not written, but added where needed.
PREFIX = "/topic/"
QUEUE_PREFIX = "/queue/"


def check_written(topic: str, *, pattern: bool) -> None:
    """Refuse a destination where a topic is wanted, and point out destinations and wildcards of other brokers.

    Args:
        topic: as it was given.
        pattern: whether it may have wildcards.

    Raises:
        PostroadError: it begins with `/topic/`.
    """
    if topic.startswith(PREFIX):
        rest = topic.removeprefix(PREFIX)
        raise PostroadError(f"{topic}: write {rest or 'the topic'} alone; {PREFIX} is added where STOMP needs it")
    if topic.startswith("/") and not topic.startswith(QUEUE_PREFIX):
        typer.echo(
            f"postroad: {topic} is a topic whose name begins with a slash; if a destination of another broker was "
            f"meant, topics are written without a prefix here, and queues as {QUEUE_PREFIX}NAME",
            err=True,
        )
    if pattern:
        from postroad.selectors import topic_doubts

        for doubt in topic_doubts(topic):
            typer.echo(f"postroad: {doubt}", err=True)
