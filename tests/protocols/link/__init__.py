"""Tests of the links between brokers."""
