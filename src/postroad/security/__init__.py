"""Security: who may publish and subscribe. For now one contract, and the policy that allows everything."""

from __future__ import annotations

from postroad.security.policy import AllowAll, Policy, Refusal

__all__ = ["AllowAll", "Policy", "Refusal"]
