"""Matching: the index of subscriptions, and encoded predicates (`matching.encoding`)."""

from __future__ import annotations

from postroad.matching.index import NO_BUDGET, IndexStatistics, MatchingError, SubscriptionIndex, WorkError

__all__ = ["NO_BUDGET", "IndexStatistics", "MatchingError", "SubscriptionIndex", "WorkError"]
