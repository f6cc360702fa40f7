"""Names of messages in other systems: which of them one can search for."""

from __future__ import annotations

import pytest

from postroad.messages import AliasError, check_alias
from postroad.messages.limits import MAX_FOREIGN_ID_BYTES


@pytest.mark.parametrize("alias", ["x", "x" * 1_024, "\u00e9" * 512, "\ufffd" * 1_024, "\udc80"])
def test_names_that_may_be_recorded_can_be_searched_for(alias: str) -> None:
    check_alias(alias)


@pytest.mark.parametrize("alias", ["", "x" * 1_025, "\u00e9" * 513, "\ufffd" * 1_025])
def test_names_that_are_never_recorded_are_refused(alias: str) -> None:
    with pytest.raises(AliasError, match="never recorded"):
        check_alias(alias)


def test_longest_bytes_that_are_no_text_are_recorded_as_a_name_that_can_be_searched_for() -> None:
    check_alias((b"\xff" * MAX_FOREIGN_ID_BYTES).decode("utf-8", "replace"))
