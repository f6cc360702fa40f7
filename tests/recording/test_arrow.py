"""Where the memory of pyarrow comes from in a broker's process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from postroad.recording.arrow import POOL_VARIABLE

PROGRAM = """
import os
from {module} import __name__ as loaded
import pyarrow
print(pyarrow.default_memory_pool().backend_name, os.environ.get({variable!r}))
"""


def told(module: str, environment: dict[str, str]) -> str:
    program = PROGRAM.format(module=module, variable=POOL_VARIABLE)
    clean = {name: value for name, value in os.environ.items() if name != POOL_VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean | environment, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_a_broker_takes_it_from_the_c_library_and_tells_no_other_program() -> None:
    assert told("postroad.recording.arrow", {}) == "system None"


def test_an_operator_may_choose_another() -> None:
    other = told("pyarrow", {}).split()[0]
    if other == "system":
        pytest.skip("this pyarrow has no memory of its own")
    assert told("postroad.recording.arrow", {POOL_VARIABLE: other}) == f"{other} {other}"
