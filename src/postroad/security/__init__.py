"""Security: who may publish and subscribe, and the keys and certificates of brokers."""

from __future__ import annotations

from postroad.security.certificates import Authority, Certified, broker_uri, certified_number
from postroad.security.keys import BrokerKeys, KeyFault, new_key, public_key
from postroad.security.policy import AllowAll, Policy, Refusal

__all__ = [
    "AllowAll",
    "Authority",
    "BrokerKeys",
    "Certified",
    "KeyFault",
    "Policy",
    "Refusal",
    "broker_uri",
    "certified_number",
    "new_key",
    "public_key",
]
