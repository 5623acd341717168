"""The relational algebra of continuous queries.

A node is a *stream* (rows with a time, each for ever) or a *relation* (rows that are there at a time and may leave).
:class:`Windowed` turns the one into the other, :class:`Changes` turns it back. Nodes are immutable and hashable; each
has a ``schema`` with distinct names and its ``inputs``, and its expressions name columns of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import pyarrow as pa

from ..expressions.nodes import Expression
from .stored import StoredTable

__all__ = [
    "Aggregate",
    "Aggregation",
    "Changes",
    "Copies",
    "Distinct",
    "Hop",
    "Join",
    "JoinKind",
    "Latest",
    "Node",
    "Now",
    "Order",
    "Project",
    "Range",
    "Relation",
    "Rows",
    "Sample",
    "SetOperation",
    "Stream",
    "StreamNode",
    "Top",
    "Unbounded",
    "Where",
    "Window",
    "Windowed",
    "walk",
]


@dataclass(frozen=True)
class Range:
    """The rows of the last while: at τ those with a time in (τ − range, τ].

    With a slide the relation changes only at multiples of the slide since the epoch: at any τ it is what it was at the
    last multiple. A row of time t enters at t and leaves at t + range, both raised to the next multiple.
    """

    range_us: int
    slide_us: int | None = None


@dataclass(frozen=True)
class Hop:
    """``HOP`` and ``TUMBLE``: the last whole window [end − size, end), with ``end`` a multiple of the slide.

    The relation is that of ``Range(size, slide)`` but for the windows' ends: a row at a window's start belongs to it,
    a row at its end does not. So a row of time t enters and leaves as a row of time t + 1 µs would under ``Range``.
    With ``columns``, each row has two more columns at the end, ``window_start`` and ``window_end`` (timestamps in µs,
    UTC), so it leaves at each multiple and enters again under the next window's until it leaves for good.
    """

    size_us: int
    slide_us: int
    columns: bool = False


@dataclass(frozen=True)
class Now:
    """The rows of this very time: each leaves 1 µs after it came."""


@dataclass(frozen=True)
class Unbounded:
    """All rows up to now: none leaves."""


@dataclass(frozen=True)
class Rows:
    """The newest n rows of each partition by time, of those that fulfil ``where``: no partition means one for all."""

    n: int
    partition: tuple[str, ...] = ()
    where: Expression | None = None


@dataclass(frozen=True)
class Latest:
    """The newest row of each update key by event time; a tombstone removes it.

    Only over a stream with a key. Every other window leaves tombstones out: they are no rows of the history.
    """


Window: TypeAlias = Range | Hop | Now | Unbounded | Rows | Latest


@dataclass(frozen=True)
class Stream:
    """A stream of the catalogue.

    Parameters
    ----------
    name : str
        Its name, as the catalogue spells it.
    schema : pyarrow.Schema
        Its columns, among them those of the key and the event time.
    key : tuple of str
        The update key's columns; none for a history of rows that do not replace each other.
    event_time : str
        The column of the time; "" only for a static relation.
    updates : bool
        Whether a later row of a key replaces the former, and tombstones delete.
    static : bool
        Whether this is a stored relation: all its rows are there before the first time, none changes. It is only read
        through :class:`Unbounded`, and its columns carry no time.
    table : StoredTable, optional
        Where the rows of a stored relation are read.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    event_time: str = ""
    updates: bool = False
    static: bool = False
    table: StoredTable | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True)
class Sample:
    """Each row of a stream with the probability ``percent`` / 100, by itself, a function of the row and the seed."""

    source: StreamNode
    percent: float
    seed: int = 0

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema


@dataclass(frozen=True)
class Windowed:
    """A stream's rows as a relation. Over :class:`Changes` a row's time is that of its change."""

    stream: StreamNode
    window: Window

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.stream,)

    @property
    def origin(self) -> Stream | Changes:
        """The stream before samples of it are taken."""
        found = self.stream
        while isinstance(found, Sample):
            found = found.source
        return found

    @cached_property
    def schema(self) -> pa.Schema:
        if isinstance(self.window, Hop) and self.window.columns:
            moment = pa.timestamp("us", "UTC")
            return self.stream.schema.append(pa.field("window_start", moment)).append(pa.field("window_end", moment))
        return self.stream.schema


@dataclass(frozen=True)
class Where:
    """The rows for which the condition is true: neither false nor null."""

    source: Relation
    condition: Expression

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema


@dataclass(frozen=True)
class Project:
    """Columns computed from each row, by name; equal rows stay as many as they were."""

    source: Relation
    columns: tuple[tuple[str, Expression], ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, expression.type) for name, expression in self.columns])


JoinKind: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti", "null_aware_anti"]


@dataclass(frozen=True)
class Join:
    """Pairs of rows, or the left rows that have a partner or none.

    ``on`` are pairs of expressions, the first over the left, the second over the right, that must be equal (null equals
    nothing); ``condition`` is over the columns of both. Names of both sides are distinct, also for the kinds that
    return the left columns only.

    ``null_aware_anti`` is ``x NOT IN (SELECT y ...)``: ``on[0]`` is (x, y); further pairs and the condition correlate
    the subquery. Of the right rows that fulfil those, a left row stays if there are none, or if x is not null and
    none of their y is null or equal to x.
    """

    left: Relation
    right: Relation
    how: JoinKind
    on: tuple[tuple[Expression, Expression], ...] = ()
    condition: Expression | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @cached_property
    def schema(self) -> pa.Schema:
        if self.how in {"semi", "anti", "null_aware_anti"}:
            return self.left.schema
        return pa.schema([*self.left.schema, *self.right.schema])


@dataclass(frozen=True)
class Aggregation:
    """One aggregate: ``function`` is Spark's name in lower case (``count``, ``sum``, ``max_by``, ...).

    ``count`` without arguments counts rows. ``type`` is the result's; ``where`` is ``FILTER (WHERE ...)``.
    """

    name: str
    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType
    distinct: bool = False
    where: Expression | None = None


@dataclass(frozen=True)
class Aggregate:
    """Aggregates of groups of equal ``by`` (null is equal to null there).

    Without ``by`` there is one group, which is there also when it has no rows.
    """

    source: Relation
    by: tuple[tuple[str, Expression], ...]
    aggregates: tuple[Aggregation, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    @cached_property
    def schema(self) -> pa.Schema:
        by = [pa.field(name, expression.type) for name, expression in self.by]
        return pa.schema(by + [pa.field(each.name, each.type) for each in self.aggregates])


@dataclass(frozen=True)
class Distinct:
    """Each row once; null is equal to null."""

    source: Relation

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema


@dataclass(frozen=True)
class Copies:
    """Each row by itself: the copies of equal rows have the numbers from 0 on, in a column at the end.

    No two rows are equal then, and the columns of all of them identify each. When one of n equal rows leaves, the one
    with the number n − 1 does.
    """

    source: Relation
    name: str = "copy"

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.source.schema.append(pa.field(self.name, pa.int64()))


@dataclass(frozen=True)
class SetOperation:
    """UNION, EXCEPT or INTERSECT of rows with the same types by position; the names are the left's.

    With ``all`` the multiplicities are added, subtracted (never below none), or the smaller is taken; without, each
    row is there once.
    """

    left: Relation
    right: Relation
    kind: Literal["union", "except", "intersect"]
    all: bool

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def schema(self) -> pa.Schema:
        return self.left.schema


@dataclass(frozen=True)
class Order:
    """One key of an order. Spark's default: nulls first when ascending, last when descending."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Top:
    """The first n rows of each group of equal ``by`` in the order; rows that tie are taken in the order of all columns.

    Without ``by`` there is one group. ``order`` may be empty: then the order of all columns decides alone.
    """

    source: Relation
    order: tuple[Order, ...]
    n: int
    by: tuple[Expression, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema


@dataclass(frozen=True)
class Changes:
    """A stream of a relation's rows: those that came (istream), that left (dstream), or all of them (rstream).

    ``istream`` at τ is R(τ) − R(τ − 1), ``dstream`` the reverse, with multiplicities. ``rstream`` is all of R(τ): at
    each multiple of ``every_us`` since the epoch, or without it at each τ at which R changes.
    """

    source: Relation
    kind: Literal["istream", "dstream", "rstream"]
    every_us: int | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema


StreamNode: TypeAlias = Stream | Sample | Changes
Relation: TypeAlias = Windowed | Where | Project | Join | Aggregate | Distinct | Copies | SetOperation | Top
Node: TypeAlias = StreamNode | Relation


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all below it, each after its inputs."""
    for each in node.inputs:
        yield from walk(each)
    yield node
