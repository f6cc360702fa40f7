"""Protocols: codecs without I/O, one package each. They decode bytes to batches and events, and encode the reverse."""

from __future__ import annotations

__all__: list[str] = []
