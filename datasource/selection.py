"""Columns computed from a feed's own: bound once from Spark's SQL, evaluated where rows are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
import pyarrow as pa

from ..conf.errors import OptionError, SchemaError
from ..expressions.evaluate import BoundColumn, RowEvaluator
from ..expressions.kinds import plain
from .connectors.contract import Chunk, Connector, ConnectorLayer, MalformedRows, Range

_OPTION = "select"


@dataclasses.dataclass(frozen=True)
class Selection:
    """The columns that leave in place of the feed's own, in order."""

    columns: tuple[BoundColumn, ...]
    raw: pa.Schema

    @classmethod
    def bound(cls, text: str, raw: pa.Schema, time_zone: str = "UTC", duplicates: str = "refuse") -> Selection:
        """Parse a list of columns, as between SELECT and FROM, and bind it to a feed's schema.

        `time_zone` is for times in text that name none. `duplicates` keeps the ``first`` or the ``last`` column of one
        name, in the place of the first, or is ``refuse``. Raise OptionError for other text, unsupported expressions,
        and names that occur twice; SchemaError for a column that the feed does not have.
        """
        from ..expressions.bind import OptionText, bind_columns

        found = bind_columns(OptionText(text, _OPTION), raw, time_zone)
        made = cls(tuple(_distinct(found, duplicates)), raw)
        made.evaluator().check(OptionText(text, _OPTION))
        return made

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, plain(each.expression.type)) for each in self.columns])

    def evaluator(self, names: Sequence[str] | None = None) -> RowEvaluator:
        """Return the evaluator of the named columns; without `names`, of all."""
        wanted = [(each.name, each.expression) for each in self.columns if names is None or each.name in names]
        return RowEvaluator(wanted, self.raw)

    def evaluate(
        self, rows: pa.Table, evaluator: RowEvaluator | None = None
    ) -> tuple[pa.Table, list[str | None] | None]:
        """Return computed columns, and per row the reason why one cannot be computed.

        The reasons are None if all rows are fit. `rows` may lack columns that are not needed.
        """
        made, failed = (self.evaluator() if evaluator is None else evaluator).evaluate(rows)
        # Times that the feed gives without a zone stay so: the caller knows which was meant.
        table = pa.table({name: values.cast(plain(values.type)) for name, values in made.items()})
        if not failed:
            return table, None
        reasons: list[str | None] = [None] * rows.num_rows
        for column in self.columns:
            for row in np.flatnonzero(failed.get(column.name, ())):
                reasons[row] = reasons[row] or f"the column {column.name!r} cannot be computed: {column.sql}"
        return table, reasons


def referenced_columns(text: str) -> list[str]:
    """Return the columns that a selection mentions, for any feed: the first part of each name."""
    return list(dict.fromkeys(path[0] for path in _paths(text)))


def _paths(text: str) -> list[list[str]]:
    from ..expressions.bind import OptionText, paths_of

    return paths_of(OptionText(text, _OPTION))


def copied_column(text: str, name: str) -> str | None:
    """Return the feed's column that leaves unchanged under a name; None if it is computed, a field, or not selected."""
    from ..expressions.bind import OptionText, copied_columns

    found = copied_columns(OptionText(text, _OPTION))
    return found.get(name, name if "*" in found else None)


def _distinct(columns: Sequence[BoundColumn], duplicates: str) -> list[BoundColumn]:
    by_name: dict[str, list[BoundColumn]] = {}
    for column in columns:
        by_name.setdefault(column.name.casefold(), []).append(column)
    twice = sorted({column.name for found in by_name.values() for column in found if len(found) > 1})
    if twice and duplicates == "refuse":
        raise OptionError(
            f"{_OPTION} gives two columns one name: {' and '.join(map(repr, twice))}",
            expected="names that differ by more than case, as Spark needs them",
            hint="rename one of these with AS; or set selectDuplicates to first or last, for the one to keep",
        )
    return [found[-1 if duplicates == "last" else 0] for found in by_name.values()]


_Path = Sequence[str]


def with_unseen_fields(text: str, raw: pa.Schema) -> pa.Schema:
    """Return an inferred schema without columns of nulls.

    Change data has an object before and one after each change; in the first rows, which insert, the one before is null.
    If the selection `text` names fields of a null column, it becomes a struct of these. Their types are those of a
    similar struct in the same place. All others become text.
    """
    return pa.schema(_seen(list(raw), _paths(text)))


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
    names = list(dict.fromkeys(path[0] for path in paths))
    for other in beside:
        same = [_match(name, other) for name in names]
        if all(same):
            return pa.struct(_seen(list({field.name: field for field in same if field is not None}.values()), paths))
    return pa.struct([pa.field(name, _kind(kind, _within(name, paths))) for name in names])


def _match(name: str, kind: pa.StructType) -> pa.Field | None:
    """Return the field that a name means: the one that is spelled so, or else one in another case."""
    return next(
        (field for field in sorted(kind, key=lambda field: field.name != name) if _alike(field.name, name)), None
    )


def _alike(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()


def _within(name: str, paths: Sequence[_Path]) -> list[_Path]:
    own = any(path[0] == name for path in paths)
    return [path[1:] for path in paths if len(path) > 1 and (path[0] == name if own else _alike(path[0], name))]


class SelectingConnector(ConnectorLayer):
    """A connector that computes columns where rows are read, so that key, time and condition may be any of them.

    Guarantee: that of `inner`. A row whose columns cannot be computed is malformed, with the reason; it is never
    dropped.

    `time_zone` is for times in text that name none. Without `raw`, `inner` infers the feed's schema.
    """

    name = "select"

    def __init__(
        self, inner: Connector, text: str, time_zone: str, raw: pa.Schema | None = None, duplicates: str = "refuse"
    ) -> None:
        super().__init__(inner)
        self._text = text
        self._time_zone = time_zone
        self._raw = raw
        self._duplicates = duplicates
        self._selection: Selection | None = None
        self._schema: pa.Schema | None = None

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
        evaluator = selection.evaluator(columns)
        for chunk in self._inner.read(part, evaluator.reads, malformed):
            made, misfits = selection.evaluate(chunk.rows, evaluator)
            if chunk.misfits is not None:
                misfits = [*map(_first, chunk.misfits, misfits or repeat(None))]
            origin = chunk.rows if chunk.origin is None else chunk.origin
            yield dataclasses.replace(chunk, rows=made, misfits=misfits, origin=origin)

    def _bound(self) -> Selection:
        if self._selection is None:
            self._selection = Selection.bound(self._text, self.raw, self._time_zone, self._duplicates)
        return self._selection


def _first(earlier: str | None, later: str | None) -> str | None:
    return earlier or later
