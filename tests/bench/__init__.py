"""Tests of the benchmarks' own bookkeeping: a wrong count there would be a wrong claim elsewhere."""
