"""The relational algebra of continuous queries.

A node is a *stream* (timed rows that never leave) or a *relation* (rows that exist at a time and may leave).
:class:`WindowOver` turns a stream into a relation, :class:`Changes` a relation into a stream. Nodes are immutable and
hashable. Their expressions refer to columns of their ``inputs``, and the names in a ``schema`` are distinct.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import pyarrow as pa

from ....expressions.nodes import Call, Constant, Expression, Field
from ...queue.queue import Policy
from .identity import identity


@dataclass(frozen=True)
class StoredTable:
    """A version of a Delta table."""

    location: str  # An absolute folder or an address.
    id: str  # Delta's id of the table: a new table in the same place has another one.
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of {self.location}"


@dataclass(frozen=True)
class TimeRange:
    """The rows of the last duration: at τ those with a time in (τ − range, τ].

    With a slide the relation changes only at multiples of the slide since the epoch. A row of time t enters at t and
    leaves at t + range, both raised to the next multiple. Without a range, which needs a slide, it never leaves.
    """

    range_us: int | None
    slide_us: int | None = None


@dataclass(frozen=True)
class Hop:
    """``HOP`` and ``TUMBLE``: the last complete window [end − size, end), with ``end`` a multiple of the slide.

    A row of time t enters and leaves as a row of time t + 1 µs would under ``Range(size, slide)``. With ``columns``,
    ``window_start`` and ``window_end`` (UTC) are appended: a row moves to the next window at each multiple.
    """

    size_us: int
    slide_us: int
    columns: bool = False


@dataclass(frozen=True)
class Session:
    """``SESSION``: the rows of each session that ended in the last gap, with ``window_start`` and ``window_end`` (UTC).

    A session is a run of a partition's rows, each at most the gap after the one before. It ends a gap after its last
    row, and its rows enter then, and leave a gap later. So a partition has one session in the relation at a time.
    """

    gap_us: int
    partition: tuple[str, ...]


@dataclass(frozen=True)
class Now:
    """The rows of this instant: each leaves 1 µs after it came."""


@dataclass(frozen=True)
class UnboundedWindow:
    """All rows so far: none leaves."""


@dataclass(frozen=True)
class RowWindow:
    """The newest n rows by time that satisfy ``where``, in each partition; without columns there is one partition.

    With a slide the content of a partition changes only with every ``slide``-th of its rows.
    """

    n: int
    partition: tuple[str, ...] = ()
    where: Expression | None = None
    slide: int = 1


@dataclass(frozen=True)
class Latest:
    """The newest row of each update key by event time; a tombstone removes it. Other windows ignore tombstones."""


Window: TypeAlias = TimeRange | Hop | Session | Now | UnboundedWindow | RowWindow | Latest


class RelationNode:
    """A node, which is equal to those with its content.

    A plan can have a node in many places, as two sources of a join. To compare all fields would take ever longer.
    """

    def __hash__(self) -> int:
        return hash(identity(self))

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and identity(other) == identity(self))

    def __getstate__(self) -> dict[str, object]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class RelationOverOne(RelationNode):
    """A node over one relation, with its columns unless it says otherwise."""

    source: Relation

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.source.schema


@dataclass(frozen=True, eq=False)
class Stream(RelationNode):
    """A stream of the catalog, or a ``static`` stored relation.

    All rows of a stored relation exist before the first time and never change. It is read only through
    :class:`UnboundedWindow`, and its columns carry no time.
    """

    name: str  # In the catalog's spelling.
    schema: pa.Schema
    key: tuple[str, ...] = ()  # The update key; empty for rows that do not replace each other.
    event_time: str = ""  # A column; "" only for a stored relation.
    updates: bool = False  # A later row of a key replaces the former, and tombstones delete.
    static: bool = False
    table: StoredTable | None = None  # The source of a stored relation's rows.
    newest: bool = False  # Rows that a newer one of their key supersedes may be missing.
    lateness_us: int = 0  # By how much below the low-watermark a row still counts.

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Sample(RelationNode):
    """Each row of a stream with the independent probability ``percent`` / 100, a function of the row and the seed."""

    source: StreamNode
    percent: float
    seed: int = 0

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.source,)

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema


@dataclass(frozen=True, eq=False)
class WindowOver(RelationNode):
    """A stream's rows as a relation. Over :class:`Changes` a row's time is that of its change."""

    stream: StreamNode
    window: Window

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.stream,)

    @property
    def origin(self) -> Stream | Changes:
        """The stream below its samples."""
        found = self.stream
        while isinstance(found, Sample):
            found = found.source
        return found

    @cached_property
    def schema(self) -> pa.Schema:
        if isinstance(self.window, Session) or (isinstance(self.window, Hop) and self.window.columns):
            moment = pa.timestamp("us", "UTC")
            return self.stream.schema.append(pa.field("window_start", moment)).append(pa.field("window_end", moment))
        return self.stream.schema


@dataclass(frozen=True, eq=False)
class ConstantRow(RelationNode):
    """One row of constants, which exists before any time."""

    columns: tuple[tuple[str, Expression], ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, expression.type) for name, expression in self.columns])


@dataclass(frozen=True, eq=False)
class Where(RelationOverOne):
    """The rows for which the condition is true: neither false nor null."""

    condition: Expression


@dataclass(frozen=True, eq=False)
class Lifetime(RelationOverOne):
    """The rows of a relation from the last of some times on, until before the first of others: conditions on now().

    Each time is an expression over the row, and the µs after it. A row without one of them is never there.
    """

    begins: tuple[tuple[Expression, int], ...]
    ends: tuple[tuple[Expression, int], ...]


@dataclass(frozen=True, eq=False)
class Project(RelationOverOne):
    """Columns computed from each row, by name; multiplicities stay the same."""

    columns: tuple[tuple[str, Expression], ...]

    @property
    def state(self) -> str:
        """The state in words."""
        return ""

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, expression.type) for name, expression in self.columns])


@dataclass(frozen=True, eq=False)
class QueueProject(Project):
    """Columns computed for the changes that an update queue of the newest rows releases; see operators/queue.

    A change has the time of the oldest arrival that it represents. The node is the last one of its plan.
    """

    key: tuple[str, ...]  # Of the source, and among the columns.
    policy: Policy
    query: str  # Whose budget it has.
    interval_us: int = 0  # The least time between two results of a key.
    where: Expression | None = None  # Which rows have a result; computed for those alone that leave the queue.
    weight: Expression | None = None  # Of a row: how much its key's staleness counts, 1 if null; None for 1.

    @property
    def state(self) -> str:
        return f"a row that waits, and a result per ({', '.join(self.key)})"


JoinKind: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti", "null_aware_anti"]


@dataclass(frozen=True)
class AsOf:
    """ASOF: of a left row's partners, the nearest of those for which ``left`` compares so with ``right``.

    It is the one with the greatest ``right``, or, for ``le`` and ``lt``, with the least. Equal ones are in the order of
    all columns. Null compares with nothing.
    """

    function: Literal["ge", "gt", "le", "lt"]
    left: Expression
    right: Expression


@dataclass(frozen=True, eq=False)
class Join(RelationNode):
    """Pairs of rows, or the left rows with or without a partner. All column names of both sides are distinct.

    ``on`` are pairs of a left and a right expression that must be equal (null equals nothing). ``condition`` is over
    the columns of both.

    ``null_aware_anti`` is ``x NOT IN (SELECT y ...)`` with ``on[0]`` = (x, y); the other pairs and the condition select
    the right rows to compare. A left row stays if there are none, or if x is not null and each y is neither null nor
    equal to x.

    With ``as_of``, an inner or left join without ``condition`` keeps one partner of each left row.
    """

    left: Relation
    right: Relation
    how: JoinKind
    on: tuple[tuple[Expression, Expression], ...] = ()
    condition: Expression | None = None
    as_of: AsOf | None = None

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
    """One aggregate. ``count`` without arguments counts rows; ``where`` is ``FILTER (WHERE ...)``."""

    name: str
    function: str  # Spark's name in lower case.
    arguments: tuple[Expression, ...]
    type: pa.DataType
    distinct: bool = False
    where: Expression | None = None
    # ORDER BY: descending, and nulls first, for each argument after the first, then for the first one.
    order: tuple[tuple[bool, bool], ...] = ()


@dataclass(frozen=True, eq=False)
class GroupAggregates(RelationOverOne):
    """Aggregates of groups of equal ``by``; null equals null. Without ``by`` there is one group, even without rows."""

    by: tuple[tuple[str, Expression], ...]
    aggregates: tuple[Aggregation, ...]

    @cached_property
    def schema(self) -> pa.Schema:
        by = [pa.field(name, expression.type) for name, expression in self.by]
        return pa.schema(by + [pa.field(each.name, each.type) for each in self.aggregates])


@dataclass(frozen=True, eq=False)
class Distinct(RelationOverOne):
    """Each row once; null equals null."""


@dataclass(frozen=True, eq=False)
class Explode(RelationOverOne):
    """Each row once for each element of an array, in a last column; with ``outer`` once with null if it has none.

    ``position`` names a column with the element's place, from 0.
    """

    array: Expression
    name: str
    position: str | None = None
    outer: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        made = [] if self.position is None else [pa.field(self.position, pa.int32())]
        return pa.schema([*self.source.schema, *made, pa.field(self.name, self.array.type.value_type)])


@dataclass(frozen=True, eq=False)
class Copies(RelationOverOne):
    """Each copy of a row, numbered from 0 in a last column. When one of n equal rows leaves, number n − 1 does."""

    name: str = "copy"

    @cached_property
    def schema(self) -> pa.Schema:
        return self.source.schema.append(pa.field(self.name, pa.int64()))


@dataclass(frozen=True, eq=False)
class SetOperation(RelationNode):
    """UNION, EXCEPT or INTERSECT of rows with the same types by position; the names are the left's.

    ``all`` adds multiplicities, subtracts them (at least 0), or takes the smaller; without it, each row occurs once.
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


@dataclass(frozen=True, eq=False)
class Top(RelationOverOne):
    """The first n rows of each group of equal ``by``, or of all rows; ties are in the order of all columns."""

    order: tuple[Order, ...]
    n: int
    by: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class Frame:
    """The rows around each row that a window function reads: from ``start`` to ``end``, None for all on that side.

    For ``rows`` they are numbers of rows after the row. For ``range`` they are distances in the order's only key:
    numbers, days of a date, µs of a timestamp. At the distance 0 are the row's peers, which are equal in the order.
    """

    kind: Literal["rows", "range"] = "range"
    start: int | None = None
    end: int | None = 0


@dataclass(frozen=True)
class WindowFunction:
    """A window function. Its ``call`` is an aggregate, or a rank or a value of another row, such as ``lag``."""

    call: Aggregation
    frame: Frame = Frame()
    number: int = 0  # By how many rows LAG and LEAD are apart, the buckets of NTILE, the place of NTH_VALUE.


@dataclass(frozen=True, eq=False)
class WindowFunctions(RelationOverOne):
    """Each row with a column for each function of the rows with equal ``by``, in their order; ties are as of Top."""

    order: tuple[Order, ...]
    by: tuple[Expression, ...]
    functions: tuple[WindowFunction, ...]

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.source.schema, *(pa.field(each.call.name, each.call.type) for each in self.functions)])


@dataclass(frozen=True, eq=False)
class Changes(RelationOverOne):
    """A stream of a relation's rows: those that came (istream), that left (dstream), or all of them (rstream).

    ``istream`` at τ is R(τ) − R(τ − 1), ``dstream`` the reverse, with multiplicities. ``rstream`` is all of R(τ): at
    each multiple of ``every_us`` since the epoch, or without it at each τ at which R changes.
    """

    kind: Literal["istream", "dstream", "rstream"]
    every_us: int | None = None


StreamNode: TypeAlias = Stream | Sample | Changes
Relation: TypeAlias = (
    WindowOver
    | ConstantRow
    | Where
    | Lifetime
    | Project
    | Join
    | GroupAggregates
    | Distinct
    | Explode
    | Copies
    | SetOperation
    | Top
    | WindowFunctions
)
Node: TypeAlias = StreamNode | Relation


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all below it, each once, after its inputs."""
    seen: set[int] = set()

    def unseen(node: Node) -> Iterator[Node]:
        if id(node) not in seen:
            seen.add(id(node))
            for each in node.inputs:
                yield from unseen(each)
            yield node

    return unseen(node)


def expressions_of(node: Node) -> Iterator[Expression]:
    """Yield the expressions of a node itself."""

    def inside(value: object) -> Iterator[Expression]:
        if isinstance(value, Field | Constant | Call):
            yield value
        elif isinstance(value, tuple):
            for each in value:  # type: ignore[reportUnknownVariableType]
                yield from inside(each)  # type: ignore[reportUnknownArgumentType]
        elif is_dataclass(value) and not isinstance(value, RelationNode):
            for each in fields(value):
                yield from inside(getattr(value, each.name))

    for each in fields(node):
        yield from inside(getattr(node, each.name))
