"""Help is shown without the libraries that it does not use."""

from __future__ import annotations

import subprocess
import sys

# Help, then what is loaded of the libraries that typer would load for it, then whether they are there for others.
PROGRAM = """
import sys
from postroad.cli.application import program
try:
    program()(["network", "--help"], prog_name="postroad")
except SystemExit:
    pass
print([name for name in sys.modules if name.split(".")[0] in ("markdown_it", "pygments")])
from rich.markdown import Markdown
from rich.traceback import Traceback
print(Markdown("*a*").markup, Traceback.__module__)
"""


def test_help_loads_no_parser_and_no_highlighter() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    *shown, loaded, others = done.stdout.splitlines()
    assert "Networks of brokers." in "".join(shown)
    assert loaded == "[]"
    assert others == "*a* rich.traceback"
