"""Errors that stop a job; each says what to do."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["DamagedFileError", "EmptyRangeError", "JavaMissingError", "MissingTableError", "PipelineError"]


class PipelineError(PostroadError):
    """A job cannot run on what it was given.

    Attributes:
        details: further lines to show below the message.
    """

    details: str = ""


class JavaMissingError(PipelineError):
    """Spark needs Java, and there is none that it can use."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"Spark needs Java 17 or newer, and {found}. On Debian or Ubuntu run as root: "
            "apt-get update && apt-get install openjdk-17-jre-headless; elsewhere install one and name it in JAVA_HOME"
        )


class MissingTableError(PipelineError):
    """The trail has no rows of a table that the job needs."""

    def __init__(self, trail: object, table: str, needed_for: str) -> None:
        super().__init__(f"{trail}: the trail has no table {table!r}, which {needed_for}")


class EmptyRangeError(PipelineError):
    """The trail has nothing in the requested time range."""


class DamagedFileError(PipelineError):
    """A file of the trail cannot be read."""

    def __init__(self, path: object, problem: object) -> None:
        self.path = str(path)
        super().__init__(f"{path}: {problem}; restore the file, or leave it out and be told so with --skip-damaged")
