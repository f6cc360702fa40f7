"""Security: who may log in, publish and subscribe, and the keys and certificates of brokers."""

from __future__ import annotations

from postroad.security.certificates import Authority, Certified, broker_uri, certified_number
from postroad.security.delays import LoginDelays
from postroad.security.errors import SecurityError
from postroad.security.keys import BrokerKeys, KeyFault, new_key, public_key
from postroad.security.passcodes import SALT_BYTES, best_method, hash_passcode, is_passcode
from postroad.security.policy import AllowAll, Policy, Refusal
from postroad.security.users import MAX_LOGIN_BYTES, UNVERIFIED, check_login, principal_of, read_users, users_text

__all__ = [
    "MAX_LOGIN_BYTES",
    "SALT_BYTES",
    "UNVERIFIED",
    "AllowAll",
    "Authority",
    "BrokerKeys",
    "Certified",
    "KeyFault",
    "LoginDelays",
    "Policy",
    "Refusal",
    "SecurityError",
    "best_method",
    "broker_uri",
    "certified_number",
    "check_login",
    "hash_passcode",
    "is_passcode",
    "new_key",
    "principal_of",
    "public_key",
    "read_users",
    "users_text",
]
