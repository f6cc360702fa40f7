"""The command line: `postroad broker`, `publish`, `subscribe`, `match`, `network` (`docs/cli.md`)."""

from __future__ import annotations

from postroad.cli.application import main

__all__ = ["main"]
