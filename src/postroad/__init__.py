"""Postroad: a content-based messaging network that can tell you where every message went."""

__version__ = "0.2.0"
