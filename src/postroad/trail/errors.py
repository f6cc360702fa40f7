"""What the trail refuses, and what it cannot do."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["TrailConflictError", "TrailDamageError", "TrailError", "TrailVersionError", "TrailWriteError"]


class TrailError(PostroadError):
    """A request to the trail that cannot be fulfilled."""


class TrailWriteError(TrailError):
    """The record could not be put on disk: the disk is full, the directory is read-only, or it is gone."""

    def __init__(self, path: object, problem: object) -> None:
        self.path = str(path)
        super().__init__(f"{path}: cannot be written ({problem}); make room, or make the directory writable")


class TrailConflictError(TrailError):
    """Another process changed the trail again and again while this one tried to."""


class TrailDamageError(TrailError):
    """A file of the trail is not what its manifest or its name says: damaged, cut off, or foreign."""

    def __init__(self, path: object, problem: object) -> None:
        self.path = str(path)
        self.problem = str(problem)
        super().__init__(f"{path}: {problem}")


class TrailVersionError(TrailDamageError):
    """A file of the trail is of another version than this Postroad reads."""
