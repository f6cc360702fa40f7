"""How long to wait after failed logins: by address, and by name. No clock here: each call gets the time in ms.

*By address*, the first failures are free, as people mistype; then each doubles the time in which no further attempt
from the address is looked at, up to ADDRESS_MOST_MS. Attempts before that are refused and do not make it longer.

*By name*, attempts are never refused, or anyone who knows a name could lock its owner out. They only wait before they
are looked at, NAME_MOST_MS at most: that is all a stranger can do to the owner of a name.

Failures are forgotten after FORGET_MS without another.
"""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["ADDRESS_MOST_MS", "FORGET_MS", "MAX_REMEMBERED", "NAME_MOST_MS", "LoginDelays"]

FREE_FAILURES = 3
ADDRESS_FIRST_MS, ADDRESS_MOST_MS = 1_000, 32_000
NAME_FIRST_MS, NAME_MOST_MS = 250, 2_000
FORGET_MS = 10 * 60_000
# Addresses, and names, remembered at once; those whose last failure is oldest are forgotten first. Some 200 bytes each.
MAX_REMEMBERED = 10_000


class _Failures:
    """Failures by key: how many, and when the last was."""

    def __init__(self, first: int, most: int) -> None:
        self._first, self._most = first, most
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def delay(self, key: str, now: int) -> tuple[int, int]:
        """(the delay that the failures so far earn, when it began)."""
        count, last = self._known.get(key, (0, 0))
        if count < FREE_FAILURES or now - last >= FORGET_MS:
            return 0, 0
        # Beyond 30 doublings it is the most in any case.
        return min(self._most, self._first << min(30, count - FREE_FAILURES)), last

    def add(self, key: str, now: int) -> None:
        count, last = self._known.pop(key, (0, now))
        self._known[key] = (1 if now - last >= FORGET_MS else count + 1, now)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)


class LoginDelays:
    """The failed logins of one broker."""

    def __init__(self) -> None:
        self._addresses = _Failures(ADDRESS_FIRST_MS, ADDRESS_MOST_MS)
        self._names = _Failures(NAME_FIRST_MS, NAME_MOST_MS)

    def failed(self, address: str, login: str, now: int) -> None:
        """A login was wrong."""
        self._addresses.add(address, now)
        self._names.add(login, now)

    def refused_for(self, address: str, now: int) -> int:
        """For how many ms attempts from an address are refused from now on; 0 if they are not."""
        delay, began = self._addresses.delay(address, now)
        return max(0, began + delay - now)

    def wait_for(self, login: str, now: int) -> int:
        """How many ms an attempt for a name waits before it is looked at."""
        return self._names.delay(login, now)[0]

    @property
    def remembered(self) -> int:
        """How many addresses and names are remembered."""
        return len(self._addresses) + len(self._names)
