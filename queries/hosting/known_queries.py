"""Which queries a stage has begun and which have failed there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .host_plan import Hosted, HostPlan, Piece

__all__ = ["KnownQueries"]


class KnownQueries:
    """The queries of a stage in one shard.

    The queries that begin in one batch are a *generation*, named by the version of the registry that is then in force.
    What the first stage gives to the second begins anew with each, because a later query needs what is there by then
    as changes, and an earlier one has had it.

    Parameters
    ----------
    saved
        What :meth:`to_json` gave; empty at first.
    """

    def __init__(self, saved: Any) -> None:
        self._generations: dict[int, int] = {int(number): each for number, each in saved.get("begun", {}).items()}
        self.failed: dict[int, str] = {int(number): reason for number, reason in saved.get("failed", {}).items()}
        """Queries that failed in this shard, and why, until the registry has them inactive."""
        self.clears = False
        """Whether a query leaves in this batch that has failed, here or in another shard.

        What only queries had that leave is not for those that begin then: where one has failed it is gone, and what
        begins would have other rows in each shard.
        """

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return {"begun": self._generations, "failed": self.failed}

    def follow(self, plan: HostPlan) -> None:
        """Begin the queries that are new in a plan, and forget those that it no longer has."""
        self.clears = not plan.failed.isdisjoint(self._generations)
        self._generations = {number: self._generations.get(number, plan.version) for number in plan.queries}
        refused = {number: reason for number, (_, reason) in plan.refused.items()}
        kept = {number: reason for number, reason in self.failed.items() if number in plan.queries}
        self.failed = {**kept, **refused}

    def generation(self, query: int) -> int:
        """Return the generation of a query."""
        return self._generations[query]

    def job_name(self, query: Hosted, piece: Piece) -> str:
        """Return the name of a piece's work: of the query alone if it is finished there, else of its generation."""
        if piece.fragment.onward is None:
            return f"{query.id}/{piece.name}"
        return f"{piece.name}@{self.generation(query.id)}"

    def fail(self, queries: Iterable[int], reason: str) -> None:
        """Let queries fail, if they have not."""
        for number in queries:
            self.failed.setdefault(number, reason)

    def running(self, plan: HostPlan) -> list[Hosted]:
        """Return the queries that have not failed."""
        return [each for number, each in plan.queries.items() if number not in self.failed]
