"""Libraries that a plain install does not have, and the extras that bring them."""

from __future__ import annotations

from importlib.util import find_spec

from postroad.errors import PostroadError

__all__ = ["EXTRAS", "need", "what_to_install"]

# Module -> the extra of pyproject.toml with its library.
EXTRAS = {
    "argon2": "argon2",
    "cryptography": "security",
    "matplotlib": "capacity",
    "pandas": "spark",
    "prometheus_client": "metrics",
    "pyiceberg": "tables",
    "pyspark": "spark",
    "scipy": "capacity",
    "uvloop": "fast",
    "websockets": "websocket",
}


def need(*modules: str) -> None:
    """Refuse at once what would end without a library, before anything is measured or computed.

    Raises:
        PostroadError: one of these modules is not installed.
    """
    for module in modules:
        if find_spec(module) is None:
            raise PostroadError(_advice(module))


def what_to_install(error: ModuleNotFoundError) -> str | None:
    """Return what to say about a module that is not there; None if no extra has it, which is a defect."""
    module = (error.name or "").partition(".")[0]
    return _advice(module) if module in EXTRAS else None


def _advice(module: str) -> str:
    return f"this needs the library {module}, which is not installed: pip install 'postroad[{EXTRAS[module]}]'"
