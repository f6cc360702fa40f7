"""Logs for machines that people can read too: one JSON object per line on stderr."""

from __future__ import annotations

import datetime
import logging
import sys
from typing import TextIO

import msgspec

__all__ = ["JsonLogFormatter", "log_to_stderr"]

# What a log record has of its own; everything else in it was given with `extra` and is part of the line.
_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLogFormatter(logging.Formatter):
    """`{"time": ..., "level": ..., "event": ..., ...}`: the fields of `extra` follow the event."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _OWN)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def log_to_stderr(level: str, stream: TextIO | None = None) -> None:
    """Send what the broker logs, and what the event loop complains about, to stderr as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLogFormatter())
    for name in ("postroad", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
    logging.getLogger("postroad").setLevel(level.upper())
