"""The steps of a stream as an immutable tree, and what is known of the rows after each of them.

A fluent step adds a node. Nothing of a checkpoint is in it, but where a step was given one of its own: :mod:`.places`
decides where each operator reports once the query's checkpoint is known.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from ..conf.column_names import columns_of
from ..conf.errors import OptionError
from ..core.feedback.checkpoint_layout import Kind
from ..core.pushdown.source_steps import ArrowStep
from ..core.rows.system_column import SYSTEM
from .row_steps import Filter, RowStep
from .specification import Specification, described

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from .completeness import LeftOut

__all__ = [
    "Given",
    "Intake",
    "Join",
    "Map",
    "Node",
    "Operator",
    "Queue",
    "Reorder",
    "Rows",
    "Transform",
    "Window",
    "walk",
]


@dataclasses.dataclass(frozen=True, eq=False)
class Node(abc.ABC):
    """One step. Two nodes are the same only if they are one object.

    Attributes
    ----------
    key : tuple of str
        The update key's columns, and fields of structs in columns.
    time : str or None
        The column of the event time.
    schema : pyspark.sql.types.StructType
        Of the rows after it, the system column included.
    left_out : LeftOut or None
        Why rows are missing, or come twice; None if every row is there once.
    in_order : bool
        Whether the rows of a key come in the order of time.
    shards : int or None
        Into how many parts, each in one task, the keys are divided (``pmod(hash(key), shards)``); None if they are not.
    inputs : tuple of Node
        The steps before it.
    """

    key: tuple[str, ...]
    time: str | None
    schema: StructType
    left_out: LeftOut | None = None
    in_order: bool = False
    shards: int | None = None
    inputs: tuple[Node, ...] = ()

    kind: ClassVar[Kind | None] = None
    """Of operators that are numbered along the stream; None for other steps."""

    @property
    @abc.abstractmethod
    def text(self) -> str:
        """The step's effect, in a few words."""

    @property
    def fixed(self) -> tuple[str, ...]:
        """The columns that steps on each row leave as they are: those of the key, the time, the system column."""
        key = columns_of(self.key, self.schema.names)
        return tuple(dict.fromkeys([*key, *([self.time] if self.time else []), SYSTEM]))

    @property
    def retracts(self) -> bool:
        """Whether its rows are the changes of a table: of each key only the newest row counts, and a tombstone takes
        back what the key had.

        Then nothing is missing for a step that takes such changes, whatever :attr:`left_out` is, and a step that needs
        every row refuses them. Steps that pass rows on pass this on.
        """
        return any(each.retracts for each in self.inputs)

    @property
    def least_key(self) -> tuple[str, ...]:
        """The columns that the key of a table of these rows needs at least, if they are taken back."""
        return self.key

    @property
    def session(self) -> SparkSession:
        """The session in which its first source was read."""
        return self.inputs[0].session


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Rows(Node):
    """A DataFrame that has the system column.

    Attributes
    ----------
    frame : pyspark.sql.DataFrame
    source : str
        What is read.
    ours : bool
        Whether it is a source of this package, with nothing but a choice of columns behind it: steps may run where it
        reads.
    """

    frame: DataFrame
    source: str = "a DataFrame"
    ours: bool = False

    @property
    def text(self) -> str:
        """See :class:`Node`."""
        return f"read {self.source}"

    @property
    def session(self) -> SparkSession:
        """See :class:`Node`."""
        return self.frame.sparkSession


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Given(Node):
    """Rows that a program gives, batch by batch: no DataFrame has them.

    Attributes
    ----------
    name : str
        The input's own.
    promises : bool
        Whether a low-watermark bounds the times of its rows.
    tables : mapping of str to pyarrow.Schema
        The columns of tables that a program gives beside the rows.
    """

    name: str
    promises: bool
    tables: Mapping[str, pa.Schema] = dataclasses.field(default_factory=dict)

    @property
    def text(self) -> str:
        """See :class:`Node`."""
        return f"given {self.name!r}"

    @property
    def session(self) -> SparkSession:
        """There is none: see :class:`Node`.

        Raises
        ------
        OptionError
            Always.
        """
        raise OptionError(
            "the stream has no Spark session: a program gives its rows",
            expected="steps that need none",
            hint="leave what needs a session or a DataFrame out of the function that makes the stream's steps",
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Transform(Node):
    """A step on each row by itself: a filter, columns. Spark computes it.

    Attributes
    ----------
    step : RowStep
    """

    step: RowStep

    @property
    def least_key(self) -> tuple[str, ...]:
        """See :class:`Node`. A filter gives tombstones."""
        return self.key if isinstance(self.step, Filter) else self.inputs[0].least_key

    @property
    def text(self) -> str:
        """See :class:`Node`."""
        return self.step.text


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Map(Node):
    """A step in Python over Arrow batches.

    Attributes
    ----------
    says : str
    step : callable
        From batches of the rows before to batches of those after it.
    moved : bool
        Whether it was written for Spark.
    """

    says: str
    step: ArrowStep
    moved: bool = False

    @property
    def least_key(self) -> tuple[str, ...]:
        """See :class:`Node`."""
        return self.key if self.moved else self.inputs[0].least_key

    @property
    def text(self) -> str:
        """See :class:`Node`."""
        return self.says


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Operator(Node):
    """A step that keeps state in shards, and reports below the checkpoint.

    Attributes
    ----------
    specification : Specification
    checkpoint : str or None
        One of its own; None for the query's.
    late_location : str or None
        Where rows go that come too late.
    paced : bool
        Whether ticks of its own let its rows go.
    """

    specification: Specification
    checkpoint: str | None = None
    late_location: str | None = None
    paced: bool = False

    @property
    @abc.abstractmethod
    def word(self) -> str:
        """The operator's name for users."""

    @property
    def text(self) -> str:
        """See :class:`Node`."""
        return described(self.word, self.specification)

    @property
    def late_name(self) -> str:
        """The beginning of the names of its files of late rows."""
        return "late"

    @property
    @abc.abstractmethod
    def keeps(self) -> str:
        """The state that it keeps in Spark's state store, and until when."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Intake(Operator):
    """Any streaming DataFrame, to which feeds and progress are given.

    Attributes
    ----------
    frame : pyspark.sql.DataFrame
        Without the system column.
    columns : mapping of str to pyspark.sql.Column
        What is computed of each row before it is packed: its feed, its order, its arrival.
    name : str
        The input's own: its reports are named by it.
    promises : bool
        Whether a low-watermark bounds the times of its rows.
    quarantine_location : str or None
        Where rows go that cannot be used; None for a folder below the checkpoint.
    """

    frame: DataFrame
    columns: Mapping[str, Column]
    name: str
    promises: bool
    quarantine_location: str | None = None

    @property
    def word(self) -> str:
        """See :class:`Operator`."""
        return f"input {self.name!r}"

    @property
    def text(self) -> str:
        """See :class:`Node`."""
        return f"read a DataFrame as {self.name!r}"

    @property
    def late_name(self) -> str:
        """See :class:`Operator`."""
        return f"late-{self.name}"

    @property
    def keeps(self) -> str:
        """See :class:`Operator`."""
        return "the progress of each input partition, for as long as the query lives"

    @property
    def session(self) -> SparkSession:
        """See :class:`Node`."""
        return self.frame.sparkSession


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Queue(Operator):
    """Rows beyond a batch's budget wait.

    Attributes
    ----------
    weight : str or pyspark.sql.Column, or None
        Of each row: how many times its key's staleness counts.
    access_interval : str or pyspark.sql.Column, or None
        Of each row: how long its key gives no other result; a duration, or seconds.
    options : mapping of str to str
        Of the ticks that drain it.
    """

    options: Mapping[str, str]
    weight: str | Column | None = None
    access_interval: str | Column | None = None

    kind: ClassVar[Kind | None] = "queue"

    @property
    def word(self) -> str:
        """See :class:`Operator`."""
        return "queue"

    @property
    def keeps(self) -> str:
        """See :class:`Operator`."""
        rows = "rows that wait, until they are processed or superseded"
        if self.time is None or self.specification.changeable()["policy"] in ("append", "shed"):
            return rows
        return f"{rows}; of delivered keys the time, until the watermark has passed it"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Window(Operator):
    """Windows of each key, aggregated.

    Attributes
    ----------
    revises : bool
        Whether the results of all windows are given, and some of them again: early results, corrections.
    promises : bool
        Whether a low-watermark bounds the times of its results: not of windows of rows, whose times are row numbers.
    """

    revises: bool = False
    promises: bool = True

    kind: ClassVar[Kind | None] = "windows"

    @property
    def word(self) -> str:
        """See :class:`Operator`."""
        return "window"

    @property
    def retracts(self) -> bool:
        """See :class:`Node`."""
        return False

    @property
    def keeps(self) -> str:
        """See :class:`Operator`."""
        return (
            "partial aggregates or rows of open windows, until the watermark has passed their end and the allowed "
            "lateness"
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Reorder(Operator):
    """A union, a merge, an ordered release or a distinct.

    Attributes
    ----------
    name : str
        What it is to its user.
    newest : bool
        Of a union: whether a row that is older than one of its key that has passed on is superseded.
    """

    name: Literal["union", "merge", "ordered", "distinct"]
    newest: bool = False

    kind: ClassVar[Kind | None] = "reorder"

    @property
    def word(self) -> str:
        """See :class:`Operator`."""
        return self.name

    @property
    def text(self) -> str:
        """See :class:`Node`."""
        return described(self.name, self.specification, hidden=("operator",))

    @property
    def late_name(self) -> str:
        """See :class:`Operator`."""
        return f"late-{self.name}"

    @property
    def keeps(self) -> str:
        """See :class:`Operator`."""
        rows = "rows" if self.name in ("merge", "ordered") else "keys and times"
        return f"{rows}, until the watermark has passed them"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Join(Operator):
    """Rows of two streams that meet by their times: the left is the first input.

    Attributes
    ----------
    keeping : str
        The state, and until when it is kept.
    early : bool
        Whether results are given before they are final, and taken back.
    newest_key : tuple of str, or None
        The key without row numbers, if each result that is taken back is followed by one that is as new: then a table
        may keep the newest result of this key.
    """

    keeping: str
    early: bool = False
    newest_key: tuple[str, ...] | None = None

    kind: ClassVar[Kind | None] = "joins"

    @property
    def word(self) -> str:
        """See :class:`Operator`."""
        return "join"

    @property
    def retracts(self) -> bool:
        """See :class:`Node`."""
        return self.early

    @property
    def least_key(self) -> tuple[str, ...]:
        """See :class:`Node`."""
        return self.key if self.newest_key is None else self.newest_key

    @property
    def keeps(self) -> str:
        """See :class:`Operator`."""
        return self.keeping


def walk(node: Node) -> Iterator[Node]:
    """Yield each node once, the inputs of a node before it, from left to right."""
    seen: set[Node] = set()

    def visit(each: Node) -> Iterator[Node]:
        if each in seen:
            return
        seen.add(each)
        for before in each.inputs:
            yield from visit(before)
        yield each

    return visit(node)
