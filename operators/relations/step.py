"""One step of an evaluation: each operator once, after its inputs."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import polars as pl

from ...core.feedback.reports import faded
from ...core.rows.exact_integers import LOWEST
from .arrangement import OperatorState
from .newest import NewestByArrival
from .operator import FAILURES, Operator, attributed
from .physical_plan import OperatorBuild
from .stateless import InputRelation
from .streams import SEQUENCE, SampleOperator, StreamSource
from .zsets import BEGINNING, TIME, WEIGHT, Span, collapsed, columns_of, consolidated, empty_delta


@dataclass
class OperatorRun:
    """An operator that runs, and its users."""

    part: OperatorBuild
    operator: Operator
    state: OperatorState
    users: set[str]  # The queries that need it.
    points: set[str]  # Those of them that need its result at all change points.
    begun: bool  # It has made a step.
    complete_from: int | None  # The time from which its relation lacks no rows; None if that is never certain.
    described: str | None = None  # Cached JSON of :meth:`describe`; each step resets it.
    spent_s: float = 0.0  # Time of the evaluation's last step that this operator took.
    average_s: float = 0.0  # Average time of a step with work; older ones fade.
    rows: int = 0  # Changes of the last step with work.
    size: int = 0  # Bytes of the state; :meth:`describe` sets it.

    def describe(self) -> str:
        """Return as JSON the state's metadata, without the rows."""
        if self.described is None:
            self.described = json.dumps({"state": self.state.to_json(), "complete_from": self.complete_from})
            self.size = self.state.bytes
        return self.described

    @property
    def bytes(self) -> int:
        """The bytes of the state in the store."""
        self.describe()
        return self.size

    def took(self, seconds: float, rows: int) -> None:
        """Count a step with work."""
        self.spent_s, self.rows = seconds, rows
        self.average_s = faded(self.average_s or None, seconds)


class RelationContents:
    """The contents of relations between two steps, for the operators that begin there."""

    def __init__(self, running: Mapping[str, OperatorRun], span: Span) -> None:
        self._running = running
        self._span = span
        self._found: dict[str, pl.DataFrame] = {}
        self._lacking: set[str] = set()

    def find(self, part: OperatorBuild) -> None:
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

    def _contents(self, each: OperatorRun) -> pl.DataFrame:
        found = each.operator.contents()
        if each.operator.forgets:
            self._lacking.add(each.part.key)
            if found is None:
                return each.operator.nothing
        if found is None:
            again = each.part.make(OperatorState.in_memory())
            found = again.step(self._inputs(each), self._span._replace(before=LOWEST))
        found = found.select(each.operator.nothing.columns)
        return consolidated(self._placed(found)) if found.height else empty_delta(each.operator.schema)

    def _inputs(self, each: OperatorRun) -> list[pl.DataFrame]:
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


class StepRun:
    """One step of all operators, each after its inputs.

    An operator computes all change points if a query needs them, and otherwise only the net change of the step. Queries
    of both kinds share it: its change points are collapsed for the others.
    """

    def __init__(self, running: Mapping[str, OperatorRun], span: Span, *, begins: bool) -> None:
        self._running = running
        self._span = span
        self._begins = begins
        self._there = RelationContents(running, span)
        self._results: dict[str, pl.DataFrame] = {}
        self._collapsed: dict[str, pl.DataFrame] = {}
        self._late: dict[str, list[pl.DataFrame]] = {}
        self._newest: dict[str, int] = {}
        self.failed: dict[str, BaseException] = {}
        self.stepped = False

    def find(self, tops: Iterable[str]) -> None:
        """Find the initial contents of new operators, and of new queries with these tops, before any operator steps."""
        new = False
        for each in self._running.values():
            if not each.begun:
                self._there.find(each.part)
                new = True
        if new:
            operators = {key: each.operator for key, each in self._running.items()}
            self._newest = {key: each.newest for key, each in operators.items() if isinstance(each, StreamSource)}
        for key in tops:
            if self._there.has(key):
                self._there.of(key)

    def run(self, streams: Mapping[str, pl.DataFrame], given: Mapping[str, pl.DataFrame]) -> None:
        """Step all operators. One that fails ends its queries and stops the operators above it."""
        broken: set[str] = set()
        for key, each in self._running.items():
            if broken and not broken.isdisjoint(each.part.inputs):
                broken.add(key)
                continue
            if each.begun and self._rests(key, each, streams, given):
                each.spent_s = 0.0
                continue
            each.described = None
            self.stepped = True
            began = time.perf_counter()
            try:
                found = self._stepped(each, streams, given)
                each.took(time.perf_counter() - began, found.height)
                if found.height:
                    self._results[key] = found
            except FAILURES as error:
                broken.add(key)
                cause = attributed(error)
                self.failed.update((name, cause) for name in each.users if name not in self.failed)
                continue
            if isinstance(each.operator, StreamSource | NewestByArrival) and each.operator.late().height:
                self._late.setdefault(self._stream_of(each), []).append(each.operator.late())

    def changes(self, key: str, *, net: bool, new: bool) -> pl.DataFrame:
        """Return an operator's changes, with its prior contents first if ``new``. Streams ignore ``net``."""
        if not new and key not in self._results:
            return self._running[key].operator.nothing
        found = self._results.get(key, self._running[key].operator.nothing)
        stream = self._running[key].part.is_stream
        if new and self._there.has(key):
            found = pl.concat([self._there.of(key), found])
            return found if stream or not net else collapsed(found, self._span.until - 1)
        if stream or not net or found.height == 0:
            return found
        if key not in self._collapsed:
            self._collapsed[key] = collapsed(found, self._span.until - 1)
        return self._collapsed[key]

    def results(self, keys: Collection[str]) -> dict[str, pl.DataFrame]:
        """Return the changes of some operators that have any, without those that are computed elsewhere."""
        found = {key: self._results[key] for key in keys if key in self._results}
        return {key: rows for key, rows in found.items() if not isinstance(self._running[key].operator, InputRelation)}

    def lacks(self, key: str) -> bool:
        return self._there.lacks(key)

    def late(self) -> dict[str, pl.DataFrame]:
        found: dict[str, pl.DataFrame] = {}
        for stream, some in self._late.items():
            rows = some[0] if len(some) == 1 else pl.concat(some).unique(maintain_order=True)
            found[stream] = rows.drop(SEQUENCE, TIME, WEIGHT)
        return found

    def _rests(
        self, key: str, each: OperatorRun, streams: Mapping[str, pl.DataFrame], given: Mapping[str, pl.DataFrame]
    ) -> bool:
        part = each.part
        if part.inputs:
            return self._results.keys().isdisjoint(part.inputs) and not each.operator.acts(self._span)
        came = streams.get(part.stream) if part.stream else given.get(key)
        return (came is None or came.height == 0) and not each.operator.acts(self._span)

    def _stepped(
        self, each: OperatorRun, streams: Mapping[str, pl.DataFrame], given: Mapping[str, pl.DataFrame]
    ) -> pl.DataFrame:
        part, net = each.part, not each.points
        if part.stream:
            inputs = [streams.get(part.stream, each.operator.nothing)]
        elif not part.inputs:
            inputs = [given.get(part.key, each.operator.nothing)]
        else:
            inputs = [self.changes(key, net=net, new=not each.begun) for key in part.inputs]
        if not each.begun:
            each.complete_from = self._complete_from(each)
        return each.operator.step(inputs, self._span._replace(net=net))

    def _complete_from(self, each: OperatorRun) -> int | None:
        if self._begins:
            return BEGINNING
        since = [self._span.before] if not each.part.inputs else []
        for key in each.part.inputs:
            below = self._running[key]
            if below.begun and (below.part.is_stream or below.operator.forgets):
                if not below.part.is_stream:
                    return None
                since.append(max(self._span.before, self._seen(key) + 1))
            elif below.complete_from is None or self._there.lacks(key):
                return None
            else:
                since.append(below.complete_from)
        return each.operator.complete_from(max(since))

    def _seen(self, key: str) -> int:
        """Return the greatest time of a stream's rows before this step."""
        while isinstance((each := self._running[key]).operator, SampleOperator):
            key = each.part.inputs[0]
        return self._newest.get(key, LOWEST)

    def _stream_of(self, each: OperatorRun) -> str:
        while not each.part.stream:
            each = self._running[each.part.inputs[0]]
        return each.part.stream
