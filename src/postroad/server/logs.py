"""Logs on stderr, a line for each event: a JSON object for machines, or text for people."""

from __future__ import annotations

import datetime
import logging
import sys
from typing import TextIO

import msgspec

__all__ = ["JsonLogFormatter", "TextLogFormatter", "log_to_stderr"]

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


class TextLogFormatter(logging.Formatter):
    """`TIME LEVEL event name=value …`: values with blanks or quotes are written as JSON has them."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        fields = [f"{name}={_plain(value)}" for name, value in vars(record).items() if name not in _OWN]
        event = record.getMessage().replace("\n", " ")
        line = " ".join([time.replace("+00:00", "Z"), f"{record.levelname:<7}", event, *fields])
        # A traceback has lines of its own, each set in, so that a line which begins with a time is an event.
        trace = self.formatException(record.exc_info).replace("\n", "\n  ") if record.exc_info else ""
        return f"{line}\n  {trace}" if trace else line


def _plain(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    is_plain = text.isprintable() and not set(text) & {" ", '"', "="} and text
    return text if is_plain or not isinstance(value, str) else msgspec.json.encode(text).decode()


_FORMATTERS = {"json": JsonLogFormatter, "text": TextLogFormatter}


def log_to_stderr(level: str, stream: TextIO | None = None, form: str = "json") -> None:
    """Send what the broker logs, and what the event loop complains about, to stderr.

    Args:
        level: this and worse.
        stream: in place of stderr.
        form: `json` or `text`.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_FORMATTERS[form]())
    for name in ("postroad", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
    logging.getLogger("postroad").setLevel(level.upper())
