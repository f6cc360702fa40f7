"""Benchmarks; `scripts/bench` lists and runs them."""
