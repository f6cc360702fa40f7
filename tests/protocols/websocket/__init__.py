"""Tests of WebSocket frames."""
