"""One target under the coverage-guided fuzzer: `python -m fuzz.engine TARGET [options of libFuzzer] [folder]`.

Only plain Python is instrumented. Modules with kernels are left alone, since numba compiles the very bytecode that the
fuzzer would change: kernels run compiled, with bounds checks on. The process ends with the fuzzer, by its exit code.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

__all__ = ["main"]

# Never instrumented: the fuzzing itself.
_OURS = "postroad"


def _kernel_modules(package: Path) -> list[str]:
    """Modules that define kernels."""
    found = []
    for path in package.rglob("*.py"):
        if "from postroad.kernels" in path.read_text("utf-8") or path.parent.name == "kernels":
            parts = path.relative_to(package.parent).with_suffix("").parts
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def main(arguments: list[str]) -> None:
    """Fuzz the target that the first argument names."""
    import atheris

    name, *options = arguments
    spec = importlib.util.find_spec(_OURS)
    assert spec is not None
    assert spec.origin is not None
    with atheris.instrument_imports(include=[_OURS], exclude=_kernel_modules(Path(spec.origin).parent)):
        from fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
