"""One module for each job."""

from __future__ import annotations

__all__: list[str] = []
