"""The quota counts what a scan of all queues would find."""

from __future__ import annotations

import random

import pytest

from postroad.broker import BrokerError, queue_quota
from postroad.broker.named_queues import QueueTerms
from postroad.broker.queue_quota import QueueQuota


def test_quota_counts_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_quota, "MAX_QUEUES", 8)
    monkeypatch.setattr(queue_quota, "MAX_QUEUES_PER_PRINCIPAL", 3)
    random_ = random.Random(5)
    quota = QueueQuota()
    there: list[QueueTerms] = []
    refused = {"8 queues": 0, "3 queues": 0}
    for number in range(2_000):
        if there and random_.random() < 0.45:
            quota.remove(there.pop(random_.randrange(len(there))))
            continue
        own, principal = random_.random() < 0.3, random_.choice("abcd")
        others = sum(each.own == own for each in there)
        mine = sum(each.principal == principal and not each.own for each in there)
        reason = "8 queues" if others >= 8 else "3 queues" if not own and mine >= 3 else ""
        if reason:
            with pytest.raises(BrokerError, match=reason):
                quota.check(principal, own)
            refused[reason] += 1
        else:
            quota.check(principal, own)
            there.append(QueueTerms(queue=str(number), principal=principal, created=0, own=own))
            quota.add(there[-1])
    assert all(count > 10 for count in refused.values())
