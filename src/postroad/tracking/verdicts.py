"""The verdicts of a trace, from best known to least."""

from __future__ import annotations

from enum import Enum

__all__ = ["OPEN", "Verdict"]


class Verdict(Enum):
    """The answer in a word. Where several hold, the one that an operator must hear of comes first."""

    LOST_AFTER_HOP = "lost after hop"  # a broker relayed it to a neighbour, and the neighbour never had it
    DROPPED = "dropped on the way"  # a full link, an unreachable broker, or too many hops; recorded exactly
    SHED = "shed at the queue"  # a subscription's queue was full, or it expired or ended there; recorded exactly
    RECORDED_IN_PART = "recorded in part"  # known to have passed, but a broker on its way kept no complete record
    # Matched a subscription that had not taken it, or a broker to which there was no way, when the record ends.
    WAITING = "waiting in a queue"
    ACKNOWLEDGED = "acknowledged"  # every subscription that got it acknowledged it
    DELIVERED = "delivered"
    MATCHED_NOBODY = "matched nobody"
    NEVER_ACCEPTED = "never accepted"  # its origin has a complete record of that time, and it is not in it
    OUTSIDE_RETENTION = "outside retention"  # older than the records that are kept
    NOT_RECORDED = "not recorded"  # its origin kept no complete record at that time, and nothing is known about it
    UNANSWERED = "unanswered"  # its origin did not answer, or is not known


# Verdicts that leave open what became of the message: nothing is claimed, so nothing is certain.
OPEN = frozenset({Verdict.RECORDED_IN_PART, Verdict.NOT_RECORDED, Verdict.UNANSWERED})
