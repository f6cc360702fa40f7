"""A process of ours keeps pandas out of pyarrow's way."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import postroad

# Loaded by its path: the room around it would bring numba along.
MODULE = Path(postroad.__file__).parent / "trail" / "arrow_setup.py"

WITHOUT_PANDAS = """
import runpy, sys
without = runpy.run_path({path!r})["keep_pandas_out"]
import pyarrow as pa
{call}
print(pa.array([1, 2, 3]).to_pylist(), "pandas" in sys.modules)
import pandas
print(pandas.Series([1]).sum())
"""


@pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed")
def test_pyarrow_does_not_load_pandas_after_the_call_and_others_still_can() -> None:
    def said(call: str) -> list[str]:
        program = WITHOUT_PANDAS.format(path=str(MODULE), call=call)
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
        return run.stdout.splitlines()

    assert said("without()") == ["[1, 2, 3] False", "1"]
    assert said("") == ["[1, 2, 3] True", "1"]
    assert said("import pandas; without()") == ["[1, 2, 3] True", "1"]
