"""Fuzzing: every decoder, the selector parser, the index and the link state (`docs/testing.md`, "Fuzzing")."""
