"""The names of messages in other systems: which of them brokers record, and so which one can search for."""

from __future__ import annotations

from postroad.messages.errors import MessageError
from postroad.messages.limits import MAX_FOREIGN_ID_BYTES

__all__ = ["AliasError", "check_alias"]

# A byte that is not valid UTF-8 is recorded as this character, which has three.
_REPLACEMENT = "\ufffd"


class AliasError(MessageError):
    """No message is recorded under such a name, so a search for it says nothing."""


def check_alias(alias: str) -> None:
    """Refuse a name that brokers never record: that it is nowhere does not mean that no message had it.

    Raises:
        AliasError: it is empty, or longer than `MAX_FOREIGN_ID_BYTES` however its sender has written it.
    """
    advice = "search by the message id, which the RECEIPT of the message and the message itself have"
    if not alias:
        raise AliasError(f"an empty alias is never recorded; {advice}")
    size = len(alias.replace(_REPLACEMENT, "?").encode(errors="replace"))
    if size > MAX_FOREIGN_ID_BYTES:
        raise AliasError(
            f"an alias of {size:,} bytes is never recorded (the limit is {MAX_FOREIGN_ID_BYTES:,}), so messages may "
            f"have it nevertheless; {advice}"
        )
