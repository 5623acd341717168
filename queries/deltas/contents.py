"""The running operators, and the contents of their relations for queries that begin between two steps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

import polars as pl

from ...core.rows.exact_integers import LOWEST
from .lowering import Part
from .operator import Operator
from .state import State
from .zsets import TIME, WEIGHT, Span, columns_of, consolidated, empty_delta

__all__ = ["Contents", "Running"]


@dataclass
class Running:
    """An operator that runs, and its users."""

    part: Part
    operator: Operator
    state: State
    users: set[str]  # The queries that need it.
    points: set[str]  # Those of them that need its result at all change points.
    begun: bool  # It has made a step.
    whole_from: int | None  # The time from which its relation lacks no rows; None if that is never certain.
    described: str | None = None  # Cached JSON of :meth:`describe`; each step resets it.

    def describe(self) -> str:
        """Return as JSON the state's metadata, without the rows."""
        if self.described is None:
            self.described = json.dumps({"state": self.state.to_json(), "whole_from": self.whole_from})
        return self.described


class Contents:
    """The contents of relations between two steps, for the operators that begin there."""

    def __init__(self, running: Mapping[str, Running], span: Span) -> None:
        self._running = running
        self._span = span
        self._found: dict[str, pl.DataFrame] = {}
        self._lacking: set[str] = set()

    def find(self, part: Part) -> None:
        """Find the contents of a new operator's inputs, of those that already run."""
        for key in part.inputs:
            if self.has(key):
                self.of(key)

    def has(self, key: str) -> bool:
        each = self._running[key]
        return each.begun and not each.part.is_stream

    def of(self, key: str) -> pl.DataFrame:
        if key not in self._found:
            self._found[key] = self._contents(self._running[key])
        return self._found[key]

    def lacks(self, key: str) -> bool:
        """Return whether the contents found lack rows, as no state retains those of an unbounded window."""
        return key in self._lacking

    def _contents(self, each: Running) -> pl.DataFrame:
        found = each.operator.contents()
        if found is None:
            if each.operator.forgets:
                self._lacking.add(each.part.key)
                return each.operator.nothing
            again = each.part.make(State.in_memory())
            found = again.step(self._inputs(each), self._span._replace(before=LOWEST))
        found = found.select(each.operator.nothing.columns)
        return consolidated(self._placed(found)) if found.height else empty_delta(each.operator.schema)

    def _inputs(self, each: Running) -> list[pl.DataFrame]:
        """Return the contents of an operator's inputs, from its own state where possible."""
        found: list[pl.DataFrame] = []
        for key, kept in zip_longest(each.part.inputs, each.operator.kept()):
            found.append(self.of(key) if kept is None else self._placed(kept))
            if kept is None and key in self._lacking:
                self._lacking.add(each.part.key)
        return found

    def _placed(self, rows: pl.DataFrame) -> pl.DataFrame:
        columns = columns_of(rows)
        return rows.with_columns(pl.lit(self._span.start, pl.Int64).alias(TIME)).select(*columns, TIME, WEIGHT)
