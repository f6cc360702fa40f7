"""How every test runs: the same examples each time, unless someone asks for more.

`POSTROAD_THOROUGH=1` draws new examples on each run, and `THOROUGH_FACTOR` times as many as each test names. A failure
then prints the `@reproduce_failure` line that replays it.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import pytest

# A shell starts what it puts into the background with SIGINT ignored, and ignored signals are inherited: the programs
# that tests start would not hear Ctrl-C. A signal with a handler is set back to its default in them.
signal.signal(signal.SIGINT, signal.default_int_handler)

THOROUGH_FACTOR = 20
DEFAULT_EXAMPLES = 100

# No deadline and no check for slow generation: both measure time, and time on a busy machine says nothing about us. No
# database: examples remembered from an earlier run would make two runs differ.
COMMON: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("same-every-time", derandomize=True, max_examples=DEFAULT_EXAMPLES, **COMMON)
settings.register_profile("thorough", derandomize=False, max_examples=DEFAULT_EXAMPLES, **COMMON)

THOROUGH = os.environ.get("POSTROAD_THOROUGH", "0") != "0"
settings.load_profile("thorough" if THOROUGH else "same-every-time")


def pytest_report_header() -> str:
    if THOROUGH:
        return f"hypothesis: new examples, {THOROUGH_FACTOR} times as many (POSTROAD_THOROUGH)"
    return "hypothesis: the same examples every time (POSTROAD_THOROUGH=1 draws new ones, and more)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Multiply the examples of each property test, also of those that name a number of their own."""
    if not THOROUGH:
        return
    # A parametrized test is one function in several items, and a state machine one class: multiply each once.
    for function in {getattr(item, "function", None) for item in items}:
        if getattr(function, "is_hypothesis_test", False):
            # hypothesis offers no public way to change the settings of a test that already carries some.
            own = getattr(function, "_hypothesis_internal_use_settings", settings.default)
            function._hypothesis_internal_use_settings = multiplied(own)  # type: ignore[arg-type, union-attr]
    for machine in {getattr(item, "cls", None) for item in items}:
        own = getattr(machine, "settings", None)
        if isinstance(own, settings):
            machine.settings = multiplied(own)  # type: ignore[union-attr]


def multiplied(own: settings) -> settings:
    return settings(own, max_examples=own.max_examples * THOROUGH_FACTOR)
