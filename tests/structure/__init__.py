"""Tests of the house rules: what lives where, how large it may grow, and that the documents tell the truth."""
