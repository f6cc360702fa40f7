"""Fuzz targets one after the other: `scripts/fuzz [TARGET ...] [--minutes N | --hours N] [--keep]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from fuzz.corpus import MAX_INPUT_BYTES, read_corpus, write_corpus
from fuzz.seeds import seeds
from fuzz.targets import TARGETS

# All targets together, by default: some half a minute each.
DEFAULT_MINUTES = 10.0
# One input may take so long, on a busy machine with bounds checks; what takes longer counts as a hang.
INPUT_SECONDS = 20
# One input may bring the process to so much memory.
MEMORY_MB = 3_072
WORK = Path(".cache/fuzz")


def fuzz(name: str, seconds: int, keep: bool) -> bool:
    """Fuzz one target; returns whether nothing was found."""
    folder, finds = WORK / name, WORK / "finds"
    for made in (folder, finds):
        made.mkdir(parents=True, exist_ok=True)
    for data in [*seeds(name), *read_corpus(name)]:
        (folder / sha256(data).hexdigest()[:40]).write_bytes(data)
    command = [
        *(sys.executable, "-m", "fuzz.engine", name),
        f"-max_total_time={seconds}",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-artifact_prefix={finds}/{name}-",
        "-print_final_stats=1",
        str(folder),
    ]
    print(f"{name}: {seconds} s", flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    lines = done.stderr.splitlines()
    for line in lines:
        if line.startswith("stat::number_of_executed_units"):
            print(f"{name}: {line.split()[-1]} inputs tried, {len(list(folder.iterdir()))} in its corpus", flush=True)
    if done.returncode:
        print("\n".join([*done.stdout.splitlines()[-30:], *lines[-30:]]), flush=True)
        print(f"{name}: FOUND something; the input is in {finds}, and `scripts/fuzz --replay FILE` runs it again")
    if keep:
        found = {path.read_bytes() for path in folder.iterdir()} - set(seeds(name))
        print(f"{name}: {write_corpus(name, found)} inputs kept in fuzz/corpus/{name}.txt", flush=True)
    return done.returncode == 0


def main() -> int:
    """Read the arguments, and fuzz; the exit code is 1 when something was found."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Coverage-guided fuzzing of Postroad.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of: {', '.join(TARGETS)}; all by default")
    parser.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, help="for all targets together")
    parser.add_argument("--hours", type=float, help="instead of minutes")
    parser.add_argument("--keep", action="store_true", help="write what was found to add coverage to fuzz/corpus")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input, named TARGET-..., and end")
    given = parser.parse_args()
    if given.replay is not None:
        name = max((name for name in TARGETS if given.replay.name.startswith(name)), key=len)
        TARGETS[name](given.replay.read_bytes())
        return 0
    if find_spec("atheris") is None:
        parser.error("the fuzzer atheris is not installed: use scripts/fuzz, which installs it")
    unknown = [name for name in given.targets if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    chosen = given.targets or list(TARGETS)
    minutes = given.minutes if given.hours is None else 60 * given.hours
    seconds = max(1, int(60 * minutes / len(chosen)))
    good = [fuzz(name, seconds, given.keep) for name in chosen]
    print(f"{sum(good)} of {len(good)} targets without a find")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
