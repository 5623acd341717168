"""The steps of a stream as an immutable tree, with the properties of the rows after each."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from ..conf.errors import OptionError, SchemaError
from ..conf.options import text_argument
from ..core.feedback.checkpoint_layout import Kind
from ..core.pushdown.at_source import reads_coalesced
from ..core.pushdown.source_steps import ArrowStep
from ..core.rows.event_times import UTC_TIMES, TimeFormat, check_time_zone
from ..core.rows.key import Key
from ..core.rows.system_column import SYSTEM

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


class IncompleteInput(NamedTuple):
    """The reason why a stream does not have every row once."""

    problem: str  # the step that drops or repeats rows, and how
    hint: str  # what to do instead
    newest: bool = False  # only rows that a newer one of their key supersedes are missing


def check_complete(left_out: IncompleteInput | None, otherwise: str = "a window would count wrongly here") -> None:
    """Refuse an operator on a stream that does not have every row once; `otherwise` is the operator's wrong result."""
    if left_out is not None:
        raise SchemaError(f"{otherwise}: {left_out.problem}", expected="every row, once", hint=left_out.hint)


def left_out_by_source(df: DataFrame) -> IncompleteInput | None:
    """Return why a window would miscount the rows of a DataFrame as it is read, or None."""
    if not reads_coalesced(df):
        return None
    return IncompleteInput(
        "the source coalesces (coalesce=true): in each batch it leaves out all rows of a key but the newest",
        'read with spark.readStream.format("upstream") without coalesce; upstream.latest always coalesces',
        newest=True,
    )


def source_text(given: Mapping[str, str] | None) -> str:
    """Return the input of a DataFrame in a few words, without secrets, from
    :func:`~upstream.core.pushdown.at_source.source_options`.
    """
    if given is None:
        return "a DataFrame"
    named = next(
        (given[name] for name in ("path", "paths", "subscribe", "subscribepattern", "assign") if name in given), ""
    )
    return f"{given.get('connector', 'files')} {named}".strip()


def time_format_given(
    source: Mapping[str, str] | None, time: str | None, time_format: str | None, time_zone: str | None
) -> TimeFormat:
    """Return how an event time is read, by the `source`'s options or arguments; refuse those that contradict it."""
    same = source is not None and time is not None and source.get("eventtime", "").lower() == time.lower()
    own = source if source is not None and same else {}
    reading: dict[str, str | None] = {}
    for name, asked in (("time_format", time_format), ("time_zone", time_zone)):
        known = own.get(name.replace("_", ""))
        if text_argument(name, asked) is not None and known is not None and known != asked:
            raise OptionError(
                f"{name}={asked!r} for a source with {name}={known!r}",
                expected="one of them",
                hint=f"leave {name} out here: the stream has what its source has",
            )
        reading[name] = known if asked is None else asked
    zone = reading["time_zone"] or "UTC"
    check_time_zone("time_zone", zone)
    return TimeFormat(reading["time_format"], zone)


@dataclasses.dataclass(frozen=True)
class Filter:
    """A filter of rows."""

    condition: str | Column
    # the row that fails is dropped (``keep``) or becomes a tombstone (``delete``)
    on_leave: Literal["keep", "delete"] = "keep"

    @property
    def opaque(self) -> bool:
        """True if it has a Column of the user's, which may belong to a DataFrame of an earlier step."""
        return not isinstance(self.condition, str)

    @property
    def text(self) -> str:
        return f"where {_shown(self.condition)}" + (", else delete the key" if self.on_leave == "delete" else "")


@dataclasses.dataclass(frozen=True)
class Choice:
    """A choice of columns to keep or compute, besides the key, the time and the system column."""

    columns: tuple[str | Column, ...]

    @property
    def opaque(self) -> bool:
        """True if it has a Column of the user's, as in :class:`Filter`."""
        return not all(isinstance(each, str) for each in self.columns)

    @property
    def text(self) -> str:
        return "select " + ", ".join(map(_shown, self.columns))


RowStep = Filter | Choice


def _shown(expression: str | Column) -> str:
    """Return an expression in its original text, or as Spark prints it."""
    if isinstance(expression, str):
        return expression
    return str(expression).removeprefix("Column<'").removesuffix("'>")


_SHOWN_ELSEWHERE = ("key", "time", "shards")

Emit = Literal["all", "lazy", "eager", "early", "all+early"]
"""The windows that give a result, in the words of plans. ``all``: every window with a row, when it closes.
``lazy``: each key's latest complete window. ``eager``: its latest started window, and no other until that closes.
``early``: ``lazy``, with interim results of the open window; ``all+early`` likewise."""

Output = Literal["latest", "all", "eager"]
"""The windows that give a result, in the user's words; early results are a setting of their own."""

EMISSIONS: Mapping[Emit, tuple[Output, bool]] = {
    "lazy": ("latest", False),
    "all": ("all", False),
    "eager": ("eager", False),
    "early": ("latest", True),
    "all+early": ("all", True),
}
"""The user's words, and whether there are early results, by the word of plans."""


class Specification(Protocol):
    """The settings of an operator."""

    def identity(self) -> Mapping[str, str]:
        """Return the settings to which a checkpoint is bound, in words."""
        ...

    def changeable(self) -> Mapping[str, str]:
        """Return the other settings, in words, which may change from run to run."""
        ...


def described(name: str, specification: Specification, hidden: tuple[str, ...] = ()) -> str:
    """Return an operator's name and settings in one line."""
    said = {
        word: value
        for word, value in {**specification.identity(), **specification.changeable()}.items()
        if word not in _SHOWN_ELSEWHERE and word not in hidden and value
    }
    return ", ".join([name, *(f"{word} {value}" for word, value in said.items())])


@dataclasses.dataclass(frozen=True, eq=False)
class Node(abc.ABC):
    """A step of a plan. Nodes are equal only if identical.

    A node has no part of a checkpoint: :mod:`.fingerprint` finds the folders later.
    """

    key: Key
    time: str | None  # the event time's column
    schema: StructType  # of the rows after the step, including the system column
    left_out: IncompleteInput | None = None  # why rows are missing or repeated; None if each row is there once
    in_order: bool = False  # whether the rows of a key come in the order of time
    shards: int | None = None  # parts of the keys by ``pmod(hash(key), shards)``, one task each; None if undivided
    inputs: tuple[Node, ...] = ()

    kind: ClassVar[Kind | None] = None
    """The kind of an operator that is numbered along the stream; None for other steps."""

    @property
    @abc.abstractmethod
    def text(self) -> str:
        """The step's effect, in a few words."""

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns in Arrow's types."""
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self.schema, timezone="UTC")

    @property
    def time_type(self) -> pa.DataType | None:
        """The type of the event time."""
        return None if self.time is None else self.arrow.field(self.time).type

    @property
    def time_format(self) -> TimeFormat:
        """The reading of the event time. Steps pass on what the source has."""
        return self.inputs[0].time_format

    @property
    def fixed(self) -> tuple[str, ...]:
        """The columns that steps on single rows leave unchanged: the key, the time, the system column."""
        key = self.key.columns(self.schema.names)
        return tuple(dict.fromkeys([*key, *([self.time] if self.time else []), SYSTEM]))

    @property
    def retracts(self) -> bool:
        """True if the rows are changes of a table: only a key's newest row counts, and a tombstone retracts it.

        A step that takes changes then misses nothing, whatever :attr:`left_out` is; a step that needs every row refuses
        them.
        """
        return any(source.retracts for source in self.inputs)

    @property
    def least_key(self) -> Key:
        """The columns that a table of these rows needs in its key if rows are retracted."""
        return self.key

    @property
    def session(self) -> SparkSession:
        """The session of its first source."""
        return self.inputs[0].session


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class InputRows(Node):
    """A DataFrame that has the system column."""

    frame: DataFrame
    source: str = "a DataFrame"  # the input, for people
    ours: bool = False  # a source of this package, with only a choice of columns after it: it can run steps
    given: TimeFormat = UTC_TIMES  # by the source's options, or by the user

    @property
    def text(self) -> str:
        return f"read {self.source}"

    @property
    def time_format(self) -> TimeFormat:
        return self.given.of_column(self.time_type)

    @property
    def session(self) -> SparkSession:
        return self.frame.sparkSession


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Given(Node):
    """Rows that a program passes in, batch by batch, without a DataFrame or a session."""

    name: str
    promises: bool  # whether a low-watermark bounds the times of its rows
    given: TimeFormat = UTC_TIMES
    # the columns of tables that the program passes in too
    tables: Mapping[str, pa.Schema] = dataclasses.field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"given {self.name!r}"

    @property
    def time_format(self) -> TimeFormat:
        return self.given.of_column(self.time_type)

    @property
    def session(self) -> SparkSession:
        raise OptionError(
            "the stream has no Spark session: a program gives its rows",
            expected="steps that need none",
            hint="leave what needs a session or a DataFrame out of the function that makes the stream's steps",
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Transform(Node):
    """A filter or a choice of columns, which Spark computes."""

    step: RowStep

    @property
    def least_key(self) -> Key:
        """The whole key after a filter, which may emit tombstones; else the input's."""
        return self.key if isinstance(self.step, Filter) else self.inputs[0].least_key

    @property
    def text(self) -> str:
        return self.step.text


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Map(Node):
    """A step in Python over Arrow batches."""

    says: str
    step: ArrowStep
    moved: bool = False  # whether it replaces a `Transform` that Spark would compute

    @property
    def least_key(self) -> Key:
        return self.key if self.moved else self.inputs[0].least_key

    @property
    def text(self) -> str:
        return self.says


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class StatefulNode(Node):
    """A step that keeps state in shards, and writes reports below the checkpoint."""

    specification: Specification
    late_aside: bool = False  # whether its late rows go to the dead-letter table
    paced: bool = False  # whether ticks of its own release its rows

    _word: ClassVar[str]
    _keeps: ClassVar[str]

    @property
    def word(self) -> str:
        """The operator's name for users."""
        return self._word

    @property
    def text(self) -> str:
        return described(self.word, self.specification)

    @property
    def settings(self) -> tuple[dict[str, str], dict[str, str]]:
        """The settings to which a checkpoint is bound, and those that may change from run to run, in words."""
        return dict(self.specification.identity()), dict(self.specification.changeable())

    @property
    def keeps(self) -> str:
        """The state that it keeps in Spark's state store, and how long."""
        return self._keeps


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Intake(StatefulNode):
    """Any streaming DataFrame, to which feeds and low-watermarks are added."""

    frame: DataFrame  # without the system column
    columns: Mapping[str, Column]  # computed of each row before it is packed: its feed, its order, its arrival
    name: str  # the input's, which names its reports
    promises: bool  # whether a low-watermark bounds the times of its rows
    given: TimeFormat = UTC_TIMES
    dead_letters: str | None = None  # the table's location; None for one below the checkpoint

    _keeps: ClassVar[str] = "the progress of each input partition, for as long as the query lives"

    @property
    def word(self) -> str:
        return f"input {self.name!r}"

    @property
    def text(self) -> str:
        return f"read a DataFrame as {self.name!r}"

    @property
    def time_format(self) -> TimeFormat:
        return self.given.of_column(self.time_type)

    @property
    def session(self) -> SparkSession:
        return self.frame.sparkSession


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Queue(StatefulNode):
    """An update queue: rows beyond a batch's budget wait."""

    options: Mapping[str, str]  # of the ticks that drain it
    weight: str | Column | None = None  # of each row: the weight of its key's staleness
    # of each row: the least time between results of its key; a duration, or seconds
    access_interval: str | Column | None = None

    kind: ClassVar[Kind | None] = "queue"
    _word: ClassVar[str] = "queue"

    @property
    def settings(self) -> tuple[dict[str, str], dict[str, str]]:
        fixed, changeable = super().settings
        given = {"weight": self.weight, "access interval": self.access_interval}
        return fixed, changeable | {name: str(value) for name, value in given.items() if value is not None}

    @property
    def keeps(self) -> str:
        rows = "rows that wait, until they are processed or superseded"
        if self.time is None or self.specification.changeable()["policy"] in ("append", "shed"):
            return rows
        return f"{rows}; of applied keys the time, until the watermark has passed it"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Window(StatefulNode):
    """Aggregates over windows of each key."""

    revises: bool = False  # whether all windows emit results, and re-emit some: early results, corrections
    promises: bool = True  # whether a low-watermark bounds its results' times, unlike the numbers of row windows

    kind: ClassVar[Kind | None] = "windows"
    _word: ClassVar[str] = "window"
    _keeps: ClassVar[str] = (
        "partial aggregates or rows of open windows, until the watermark has passed their end and the allowed lateness"
    )

    @property
    def time_format(self) -> TimeFormat:
        return UTC_TIMES

    @property
    def retracts(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Reorder(StatefulNode):
    """A union, a merge, an ordered release or a distinct."""

    name: Literal["union", "merge", "ordered", "distinct"]
    newest: bool = False  # of a union: whether rows older than a passed one of their key are superseded

    kind: ClassVar[Kind | None] = "reorder"

    @property
    def word(self) -> str:
        return self.name

    @property
    def text(self) -> str:
        return described(self.name, self.specification, hidden=("operator",))

    @property
    def keeps(self) -> str:
        rows = "rows" if self.name in ("merge", "ordered") else "keys and times"
        return f"{rows}, until the watermark has passed them"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TimeJoin(StatefulNode):
    """A join of two streams by time: the left is the first input."""

    keeping: str  # the state, and how long it is kept
    early: bool = False  # whether results are emitted before they are final, and retracted
    # the key without row numbers, if a result as new follows each retraction, else None
    newest_key: Key | None = None

    kind: ClassVar[Kind | None] = "joins"
    _word: ClassVar[str] = "join"

    @property
    def retracts(self) -> bool:
        return self.early

    @property
    def least_key(self) -> Key:
        return self.key if self.newest_key is None else self.newest_key

    @property
    def keeps(self) -> str:
        return self.keeping


def walk(node: Node) -> Iterator[Node]:
    """Yield each node once, its inputs before it, from left to right."""
    seen: set[Node] = set()

    def visit(step: Node) -> Iterator[Node]:
        if step in seen:
            return
        seen.add(step)
        for before in step.inputs:
            yield from visit(before)
        yield step

    return visit(node)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NumberRows(StatefulNode):
    """Each row with its number in the stream, by arrival. One task gets all rows."""

    kind: ClassVar[Kind | None] = "numbering"
    _word: ClassVar[str] = "row numbers"
    _keeps: ClassVar[str] = "one number: how many rows there have been"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TableJoin(Node):
    """Each row with the row of a table that has its key. It has no state: the batch's offsets name the version."""

    specification: Any

    @property
    def text(self) -> str:
        return self.specification.text


def joins_tables(plan: Node) -> bool:
    """Return whether a step joins a table, and so needs the query's checkpoint."""
    return any(isinstance(each, TableJoin) for each in walk(plan))


@dataclasses.dataclass(frozen=True, eq=False)
class ManyStreams(Node):
    """Streams that one query reads; the inputs are their last steps, and the checkpoint is bound to all of them.

    Key, time and schema are those of the first: no rows leave this step.
    """

    @property
    def text(self) -> str:
        return f"{len(self.inputs)} streams in one query"
