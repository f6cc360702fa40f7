"""What the topology room refuses."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["PlanError", "TopologyError"]


class TopologyError(PostroadError):
    """A graph, or the wish for one, does not hold together."""


class PlanError(PostroadError):
    """A plan is not one; the text begins with the path of the field at fault."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}" if path else problem)
