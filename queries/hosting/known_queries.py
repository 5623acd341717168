"""The queries that have begun or failed in a stage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .host_plan import Hosted, HostPlan, Piece

__all__ = ["KnownQueries"]


class KnownQueries:
    """The queries of a stage in one shard.

    The queries that begin in one batch are a *generation*, named by the registry's version at that batch. Each
    generation gets its own changes from the first stage. A later query needs the existing rows as changes, which an
    earlier one has already had.
    """

    def __init__(self, saved: Any) -> None:
        self._generations: dict[int, int] = {int(number): each for number, each in saved.get("begun", {}).items()}
        self.failed: dict[int, str] = {int(number): reason for number, reason in saved.get("failed", {}).items()}
        """Reasons of the queries that failed in this shard, until the registry deactivates them."""
        self.clears = False
        """True if a query that failed in any shard is removed in this batch.

        Then queries that begin must not take over the state that only removed queries used. A shard in which one failed
        has lost that state, so the new queries would begin with different rows in each shard.
        """

    def to_json(self) -> dict[str, Any]:
        return {"begun": self._generations, "failed": self.failed}

    def follow(self, plan: HostPlan) -> None:
        """Begin the queries that are new in a plan, and forget those that it no longer has."""
        self.clears = not plan.failed.isdisjoint(self._generations)
        self._generations = {number: self._generations.get(number, plan.version) for number in plan.queries}
        refused = {number: reason for number, (_, reason) in plan.refused.items()}
        kept = {number: reason for number, reason in self.failed.items() if number in plan.queries}
        self.failed = {**kept, **refused}

    def generation(self, query: int) -> int:
        return self._generations[query]

    def job_name(self, query: Hosted, piece: Piece) -> str:
        """Return the name of a piece's job: per query if the first stage finishes it, else per generation."""
        if piece.fragment.onward is None:
            return f"{query.id}/{piece.name}"
        return f"{piece.name}@{self.generation(query.id)}"

    def fail(self, queries: Iterable[int], reason: str) -> None:
        """Record a failure; the first reason stays."""
        for number in queries:
            self.failed.setdefault(number, reason)

    def running(self, plan: HostPlan) -> list[Hosted]:
        return [each for number, each in plan.queries.items() if number not in self.failed]
