"""Columns computed from a feed's own: parsed from SQL once, evaluated by Polars where rows are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ..conf.errors import OptionError, SchemaError
from ..core.rows.system_column import TIMESTAMP
from .connectors.contract import Advance, Chunk, Connector, Limit, MalformedRows, Position, Range
from .sql_expressions import OPTION, Translation, as_written, column_at_path, given_arguments, name_parts, resolved_path

if TYPE_CHECKING:
    import polars as pl
    from sqlglot.expressions.core import Expression


_EXPECTED = "columns in Spark's SQL, such as data.s AS symbol, timestamp_millis(data.E) AS at, data.b::DOUBLE AS bid"


@dataclasses.dataclass(frozen=True)
class SelectedColumn:
    """One computed column."""

    name: str
    sql: str  # as the user wrote it
    reads: tuple[str, ...]  # the feed's columns that it needs
    value: pl.Expr
    misfits: pl.Expr | None  # rows whose value cannot be computed; None if all can


@dataclasses.dataclass(frozen=True)
class Selection:
    """The columns that leave in place of the feed's own, in order."""

    columns: tuple[SelectedColumn, ...]
    schema: pa.Schema
    origin: tuple[str, pa.Schema, str, str]  # the text, the feed's schema, the zone, and the rule for duplicates

    def __reduce__(self) -> tuple[Any, ...]:
        # Polars pickles no Python function, which some of the columns call.
        return Selection.bound, self.origin

    @classmethod
    def bound(cls, text: str, raw: pa.Schema, time_zone: str = "UTC", duplicates: str = "refuse") -> Selection:
        """Parse a list of columns, as between SELECT and FROM, and bind it to a feed's schema.

        `time_zone` is for times in text that name none. `duplicates` keeps the ``first`` or the ``last`` column of one
        name, in the place of the first, or is ``refuse``. Raise OptionError for other text, unsupported expressions,
        and names that occur twice; SchemaError for a column that the feed does not have.
        """
        columns: list[SelectedColumn] = []
        for node in _parsed(text):
            columns += _columns(node, raw, time_zone)
        columns = _distinct(columns, duplicates)
        try:
            empty = _evaluated([column.value.alias(column.name) for column in columns], raw.empty_table())
        except Exception as error:  # Polars has no one root for what an expression can be wrong about
            raise OptionError(f"{OPTION}={text!r} cannot be evaluated: {error}", expected=_EXPECTED) from error
        schema = pa.schema([pa.field(field.name, _plain(field.type)) for field in empty.schema])
        return cls(tuple(columns), schema, (text, raw, time_zone, duplicates))

    def reads(self, names: Sequence[str] | None = None) -> list[str]:
        """Return the feed's columns that the named columns need; without `names`, that all need."""
        wanted = [column for column in self.columns if names is None or column.name in names]
        return list(dict.fromkeys(name for column in wanted for name in column.reads))

    def evaluate(self, rows: pa.Table, names: Sequence[str] | None = None) -> tuple[pa.Table, list[str | None] | None]:
        """Return computed columns (all without `names`), and per row the reason why one cannot be computed.

        The reasons are None if all rows are fit. `rows` may lack columns that are not needed.
        """
        wanted = [column for column in self.columns if names is None or column.name in names]
        checked = [column for column in wanted if column.misfits is not None]
        made = _evaluated(
            [column.value.alias(column.name) for column in wanted]
            + [column.misfits.alias(_misfit(at)) for at, column in enumerate(checked) if column.misfits is not None],
            rows,
        )
        # Times that the feed gives without a zone stay so: the caller knows which was meant.
        plain = [made.column(column.name).cast(_plain(made.column(column.name).type)) for column in wanted]
        table = pa.table(plain, names=[column.name for column in wanted])
        reasons: list[str | None] | None = None
        for at, column in enumerate(checked):
            bad = made.column(_misfit(at)).to_numpy().astype(np.bool_)
            if bad.any():
                reasons = [None] * rows.num_rows if reasons is None else reasons
                for row in np.flatnonzero(bad):
                    reasons[row] = reasons[row] or f"the column {column.name!r} cannot be computed: {column.sql}"
        return table, reasons


def referenced_columns(text: str) -> list[str]:
    """Return the columns that a selection mentions, for any feed: the first part of each name."""
    from sqlglot import exp

    found = [name_parts(node)[0] for root in _parsed(text) for node in root.find_all(exp.Column) if not node.is_star]
    return list(dict.fromkeys(found))


def selected_paths(text: str) -> list[list[str]]:
    """Return the paths to the columns and fields that a selection names, without stars."""
    from sqlglot import exp

    nodes = [node for root in _parsed(text) for node in root.find_all(exp.Column, exp.Dot) if not node.is_star]
    return [name_parts(node) for node in nodes]


def copied_column(text: str, name: str) -> str | None:
    """Return the feed's column that leaves unchanged under a name; None if it is computed, a field, or not selected."""
    from sqlglot import exp

    whole = False
    for root in _parsed(text):
        inner = root.this if isinstance(root, exp.Alias) else root
        if root.alias_or_name == name and not inner.is_star:
            return inner.name if isinstance(inner, exp.Column) and len(inner.parts) == 1 else None
        whole = whole or isinstance(root, exp.Star)
    return name if whole else None


def _misfit(at: int) -> str:
    return f"_upstream_misfit_{at}"


def _parsed(text: str) -> list[Expression]:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        found = sqlglot.parse(f"SELECT {text}", read="spark")
    except SqlglotError as error:
        raise OptionError(f"{OPTION}={text!r} is no SQL: {str(error).splitlines()[0]}", expected=_EXPECTED) from error
    only = found[0] if len(found) == 1 else None
    if not isinstance(only, exp.Select) or set(given_arguments(only)) - {"expressions", "kind"} or not only.expressions:
        raise OptionError(f"{OPTION}={text!r} is more than a list of columns", expected=_EXPECTED)
    return list(only.expressions)


def _columns(node: Expression, raw: pa.Schema, time_zone: str) -> list[SelectedColumn]:
    from sqlglot import exp

    if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and node.is_star):
        if set(given_arguments(node)) & {"except_", "except", "replace", "rename"}:
            raise OptionError(f"{OPTION} has {as_written(node)}", expected="* or columns by name")
        path = [] if isinstance(node, exp.Star) else [part.name for part in node.parts[:-1]]
        if not path:
            return [_column([name], raw) for name in raw.names]
        way, dtype = resolved_path(path, raw)
        if not pa.types.is_struct(dtype):
            raise OptionError(f"{OPTION} has {as_written(node)}, and {'.'.join(path)} is {dtype}", expected="a struct")
        return [_column([*way, dtype.field(at).name], raw) for at in range(dtype.num_fields)]
    name, inner = (node.alias, node.this) if isinstance(node, exp.Alias) else ("", node)
    if not name and not isinstance(inner, (exp.Column, exp.Dot)):
        raise OptionError(
            f"{OPTION} computes {as_written(node)} and gives it no name", hint=f"write {as_written(node)} AS name"
        )
    if isinstance(inner, (exp.Column, exp.Dot)):
        column = _column(name_parts(inner), raw)
        return [dataclasses.replace(column, name=name or column.name)]
    translation = Translation(raw, time_zone)
    value = translation.value(inner, certain=True)
    misfits = None
    for each in translation.misfits:
        misfits = each if misfits is None else misfits | each
    reads = tuple(dict.fromkeys(translation.reads))
    return [SelectedColumn(name, as_written(inner), reads, value, misfits)]


def _column(path: Sequence[str], raw: pa.Schema) -> SelectedColumn:
    way, _ = resolved_path(path, raw)
    return SelectedColumn(way[-1], ".".join(way), (way[0],), column_at_path(way), None)


def _distinct(columns: Sequence[SelectedColumn], duplicates: str) -> list[SelectedColumn]:
    by_name: dict[str, list[SelectedColumn]] = {}
    for column in columns:
        by_name.setdefault(column.name.casefold(), []).append(column)
    twice = sorted({column.name for found in by_name.values() for column in found if len(found) > 1})
    if twice and duplicates == "refuse":
        raise OptionError(
            f"{OPTION} gives two columns one name: {' and '.join(map(repr, twice))}",
            expected="names that differ by more than case, as Spark needs them",
            hint="rename one of these with AS; or set selectDuplicates to first or last, for the one to keep",
        )
    return [found[-1 if duplicates == "last" else 0] for found in by_name.values()]


def _evaluated(values: Sequence[pl.Expr], rows: pa.Table) -> pa.Table:
    import polars as pl

    # A column beside those that are computed: a constant is as long as it.
    place = pl.Series("_upstream_row", np.zeros(rows.num_rows, dtype=np.int8))
    frame = pl.DataFrame(pl.from_arrow(rows)) if rows.num_columns else pl.DataFrame()
    made = frame.with_columns(place).select("_upstream_row", *values).drop("_upstream_row")
    return made.to_arrow(compat_level=pl.CompatLevel.oldest())


def _plain(dtype: pa.DataType) -> pa.DataType:
    """Return the type as Spark has it: no large offsets, nothing unsigned, times in microseconds."""
    if pa.types.is_large_string(dtype):
        return pa.string()
    if pa.types.is_large_binary(dtype):
        return pa.binary()
    if pa.types.is_large_list(dtype) or pa.types.is_list(dtype):
        return pa.list_(_plain(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct(
            [pa.field(dtype.field(at).name, _plain(dtype.field(at).type)) for at in range(dtype.num_fields)]
        )
    if pa.types.is_timestamp(dtype):
        return TIMESTAMP if dtype.tz is not None else pa.timestamp("us")
    if pa.types.is_null(dtype):
        return pa.string()
    return dtype


_Path = Sequence[str]


def with_unseen_fields(text: str, raw: pa.Schema) -> pa.Schema:
    """Return an inferred schema without columns of nulls.

    Change data has an object before and one after each change; in the first rows, which insert, the one before is null.
    Where the selection `text` names fields of a null column, it becomes a struct of these, with the types that another
    struct beside it has for them. All others become text.
    """
    return pa.schema(_seen(list(raw), selected_paths(text)))


def _seen(fields: Sequence[pa.Field], paths: Sequence[_Path]) -> list[pa.Field]:
    beside = [field.type for field in fields if pa.types.is_struct(field.type)]
    return [field.with_type(_kind(field.type, _within(field.name, paths), beside)) for field in fields]


def _kind(kind: pa.DataType, paths: Sequence[_Path], beside: Sequence[pa.StructType] = ()) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(_seen(list(kind), paths))
    if pa.types.is_list(kind):
        return pa.list_(_kind(kind.value_type, []))
    if not pa.types.is_null(kind):
        return kind
    if not paths:
        return pa.string()
    names = {path[0].casefold(): path[0] for path in paths}
    for other in beside:
        same = {field.name.casefold(): field for field in other}
        if names.keys() <= same.keys():
            return pa.struct(_seen([same[name] for name in names], paths))
    return pa.struct([pa.field(name, _kind(kind, _within(name, paths))) for name in names.values()])


def _within(name: str, paths: Sequence[_Path]) -> list[_Path]:
    return [path[1:] for path in paths if len(path) > 1 and path[0].casefold() == name.casefold()]


class SelectingConnector(Connector):
    """A connector that computes columns where rows are read, so that key, time and condition may be any of them.

    Guarantee: that of `inner`. A row whose columns cannot be computed is malformed, with the reason; it is never
    dropped.

    `time_zone` is for times in text that name none. Without `raw`, `inner` infers the feed's schema.
    """

    name = "select"

    def __init__(
        self, inner: Connector, text: str, time_zone: str, raw: pa.Schema | None = None, duplicates: str = "refuse"
    ) -> None:
        self._inner = inner
        self._text = text
        self._time_zone = time_zone
        self._raw = raw
        self._duplicates = duplicates
        self._selection: Selection | None = None
        self._schema: pa.Schema | None = None
        self.smallest_task = inner.smallest_task
        self.tasks_report = inner.tasks_report

    @property
    def raw(self) -> pa.Schema:
        if self._raw is None:
            self._raw = with_unseen_fields(self._text, self._inner.schema())
        return self._raw

    def schema(self) -> pa.Schema:
        return self._bound().schema if self._schema is None else self._schema

    def fix_schema(self, schema: pa.Schema) -> None:
        self._inner.fix_schema(self.raw)
        made = self._bound().schema
        if made.names != schema.names:
            raise SchemaError(
                f"select gives the columns {', '.join(made.names)}, and the schema names {', '.join(schema.names)}",
                hint="give the feed's own schema with the option `schema`, and none with readStream.schema(…)",
            )
        self._schema = schema

    def read(self, part: Range, columns: Sequence[str] | None, malformed: MalformedRows) -> Iterator[Chunk]:
        selection = self._bound()
        for chunk in self._inner.read(part, selection.reads(columns), malformed):
            made, misfits = selection.evaluate(chunk.rows, columns)
            yield dataclasses.replace(chunk, rows=made, misfits=misfits, origin=chunk.rows)

    def feeds(self, position: Position | None) -> Sequence[str]:
        return self._inner.feeds(position)

    def freeze(self, now_us: int) -> None:
        self._inner.freeze(now_us)

    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        return self._inner.advance(position, now_us, limit)

    def limit(self, common: Limit) -> Limit:
        return self._inner.limit(common)

    def quarantine_folder(self) -> str:
        return self._inner.quarantine_folder()

    def backlog(self, position: Position | None, now_us: int) -> dict[str, Any] | None:
        return self._inner.backlog(position, now_us)

    def commit(self, position: Position) -> None:
        self._inner.commit(position)

    def _bound(self) -> Selection:
        if self._selection is None:
            self._selection = Selection.bound(self._text, self.raw, self._time_zone, self._duplicates)
        return self._selection
