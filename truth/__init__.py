"""A machine that looks for lies in the record: answers about messages, held against what clients saw.

`scripts/truth` runs it; docs/testing.md says how to read what it prints.
"""
