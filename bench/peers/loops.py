"""The event loop for everything here that is written in Python: uvloop where it is installed, for all or for none."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["run"]


def run(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`."""
    try:
        runner = importlib.import_module("uvloop").run
    except ModuleNotFoundError:
        runner = asyncio.run
    runner(main)
