"""Topics as people write them who come from other brokers: put right, or explained."""

from __future__ import annotations

import typer

from postroad.errors import PostroadError

__all__ = ["check_written"]

# What this command writes before every topic, and what other brokers have there.
PREFIX = "/topic/"
# Wildcards of MQTT and AMQP, which are ordinary characters here, and what does the same.
FOREIGN = {"#": ">", "+": "*"}


def check_written(topic: str, *, pattern: bool) -> None:
    """Refuse a destination where a topic is wanted, and point out wildcards of other brokers.

    Args:
        topic: as it was given.
        pattern: whether it may have wildcards.

    Raises:
        PostroadError: it begins with `/topic/`, which the command adds.
    """
    if topic.startswith(PREFIX):
        rest = topic.removeprefix(PREFIX)
        raise PostroadError(f"{topic}: the command adds {PREFIX} itself; write {rest or 'the topic'} alone")
    levels = topic.replace("/", ".").split(".")
    for wildcard, ours in FOREIGN.items():
        if pattern and wildcard in levels:
            meant = ".".join(ours if level == wildcard else level for level in topic.replace("/", ".").split("."))
            typer.echo(
                f"postroad: {wildcard} is an ordinary character in topics here; {ours} is the wildcard, "
                f"so perhaps you mean {meant}",
                err=True,
            )
