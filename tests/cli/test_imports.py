"""What commands load: nothing that they do not use, since loading is most of what a command takes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from postroad.cli.application import program
from postroad.cli.plain_values import PlainCommand, PlainValue
from tests.cli.programs import SECONDS, here, line, run, started

if TYPE_CHECKING:
    from collections.abc import Iterator

# Libraries that a command may do without, and that take longer to load than it runs.
HEAVY = ("llvmlite", "msgspec", "numba", "numpy", "pandas", "pyarrow", "pydantic", "scipy")
PROGRAM = """
import sys
from postroad.cli import main
try:
    main()
finally:
    print(sorted(set({heavy}) & set(sys.modules)), file=sys.stderr)
"""


class Broker:
    """A broker in a process, with a message on record."""

    def __init__(self, folder: Path) -> None:
        self.trail = folder / "data" / "trail"
        self.admin = ""
        self.message = ""


def loaded(*arguments: str) -> str:
    """The heavy libraries that a command has loaded when it ends."""
    code = PROGRAM.format(heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("broker")
    found = Broker(folder)
    config = folder / "broker.toml"
    config.write_text(f'port = 0\nadmin_port = 0\ndata = "{folder}/data"\n[tracking]\npersist_seconds = 0.1\n')
    with started("broker", "--config", str(config), "--json") as process:
        ready = json.loads(line(process.stdout))
        found.admin = ready["admin"]
        sent = run("publish", "a.topic", "x", "--receipt", "--server", ready["stomp"])
        found.message = sent.out.strip()
        while not list(found.trail.rglob("*.parquet")):
            time.sleep(0.05)
        maps = Path("/proc", str(process.pid), "maps").read_text()
        # It has written, which is when pyarrow would import pandas.
        assert ("pyarrow" in maps, "pandas" in maps) == (True, False)
        yield found
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)


def test_a_question_to_a_broker_loads_no_arrays(broker: Broker) -> None:
    assert loaded("trace", broker.message, "--network", broker.admin) == "[]"


def test_a_question_to_a_trail_loads_what_reads_it(broker: Broker) -> None:
    assert loaded("trace", broker.message, "--trail", str(broker.trail)) == "['msgspec', 'numpy', 'pyarrow']"


def test_the_version_and_help_load_nothing() -> None:
    assert loaded("--version") == "[]"
    assert loaded("trace", "--help") == "[]"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["top", "--interval", "nonsense"], "--interval"),
        (["network", "up", "plan.toml", "--directory-port", "70000"], "--directory-port"),
        (["network", "up", "plan.toml", "--log-level", "loud"], "debug"),
        (["trace"], "Missing argument"),
        (["publish", "a", "--count", "many"], "'--count': 'many' should be a valid integer "),
        (["publish", "a", "--count", "0"], "'--count': '0' should be greater than or equal to 1 "),
        (["network", "plan", "triangle"], "'SHAPE': 'triangle' is not one of 'tree', "),
        (["trace", "a", "--explore", "all"], "relayed"),
    ],
)
def test_mistakes_are_explained_as_typer_does(
    arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    outcome = here(monkeypatch, *arguments)
    assert outcome.code == 2
    assert expected in outcome.err


def test_every_plain_value_is_what_typer_makes_of_it(tmp_path: Path) -> None:
    """Both ways of converting agree, for every parameter of every command."""
    import typer

    words = ["", "0", "1", "-1", "7", "65535", "1e3", "0.5", "12.50", "1_000", " 3", "a", "json", "exact", "relayed"]
    words += [str(tmp_path), "no/such/file", "debug", "٣", "99999999999999999999"]
    plain = PlainValue()
    compared = 0

    def walk(command: object) -> Iterator[PlainCommand]:
        for inner in getattr(command, "commands", {}).values():
            yield from walk(inner)
        if isinstance(command, PlainCommand):
            yield command

    for command in walk(typer.main.get_command(program())):
        context = command.make_context("test", [], resilient_parsing=True)
        for parameter in command.params:
            for word in words:
                given = [word] if parameter.multiple else word
                compared += _agree(plain, parameter, given, context)
    assert compared > 1_000


def _agree(plain: PlainValue, parameter: object, word: object, context: object) -> bool:
    results: list[object] = []
    for convert in (plain, None):
        parameter._runtime_param = convert  # type: ignore[attr-defined]
        try:
            found = parameter.get_runtime_param().coerce(word, param=parameter, ctx=context)  # type: ignore[attr-defined]
        # The words of a mistake differ on purpose.
        except Exception as error:
            found = type(error)
        results.append((type(found), found))
    parameter._runtime_param = None  # type: ignore[attr-defined]
    assert results[0] == results[1], (parameter, word)
    return True
