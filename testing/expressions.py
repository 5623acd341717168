"""SQL of a stream's steps, computed on Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ..conf.errors import MalformedRowError, OptionError, SchemaError, UpstreamError
from ..core.rows.system_column import SYSTEM, deleted_mask, passing_mask, with_system_fields
from ..expressions.bind import OptionText, bind_columns, bind_value
from ..expressions.evaluate import RowEvaluator
from ..expressions.nodes import Expression, Field
from ..plan.nodes import Choice, Filter, RowStep

_HINT = (
    "test this step on Spark, and leave it out of the function that you give to StreamTester; "
    "or compute the column by map(…), a function over Arrow batches, which runs here as it is"
)


class ComputedColumn:
    """The columns of one piece of SQL; with `name`, the one column of an expression without a name.

    Raise OptionError for anything else than such text, SchemaError for an unknown column.
    """

    def __init__(self, sql: object, schema: pa.Schema, name: str | None = None) -> None:
        if not isinstance(sql, str):
            raise OptionError(
                f"the column {sql} is an object of PySpark's, and only Spark can compute it",
                expected="an expression as text",
                hint='give the expression as text: where("speed > 0"), select("speed * 3.6 AS kmh"), '
                "whose results are the same on Spark",
            )
        columns = [(sql, Field(sql, schema.field(sql).type))] if sql in schema.names else _bound(sql, schema, name)
        self._evaluator = RowEvaluator(columns, schema)
        self.schema = pa.schema([(each, expression.type) for each, expression in columns])

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the columns of some rows, or raise a MalformedRowError for a value that cannot be computed."""
        made, failed = self._evaluator.evaluate(rows)
        for name, mask in failed.items():
            raise MalformedRowError(
                f"the column {name!r} cannot be computed ({mask.sum()} rows)",
                expected="values that can be computed: on Spark the query ends here",
                hint="write try_cast(…) or x / nullif(y, 0), which give null",
            )
        return pa.table(made, schema=self.schema)


def _bound(sql: str, schema: pa.Schema, name: str | None) -> list[tuple[str, Expression]]:
    text = OptionText(sql, "SQL")
    try:
        if name is not None:
            found = [(name, bind_value(text, schema))]
        else:
            found = [(each.name, each.expression) for each in bind_columns(text, schema)]
        RowEvaluator(found, schema).check(text)
    except UpstreamError as error:
        raise type(error)(f"without Spark, {error.problem}", expected=error.expected, hint=_HINT) from error
    return found


class RowEvaluation:
    """A step on single rows, computed on Arrow. The `fixed` columns stay: key, time, system column.

    Errors: those of :class:`ComputedColumn`, and SchemaError for a condition that is not a boolean, or equal names.
    """

    def __init__(self, step: RowStep, schema: pa.Schema, fixed: Sequence[str]) -> None:
        self._step = step
        self._fixed = fixed
        if isinstance(step, Filter):
            self._own = [_condition(step, schema)]
            self.schema = schema
        else:
            self._own = [ComputedColumn(sql, schema) for sql in _computed(step, fixed)]
            kept = [schema.field(name) for name in fixed if name != SYSTEM]
            own = [field for each in self._own for field in each.schema]
            self.schema = pa.schema([*kept, *own, schema.field(SYSTEM)])
            _check_names([field.name for field in own])

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the rows after the step."""
        if isinstance(self._step, Choice):
            columns = {name: rows.column(name) for name in self._fixed}
            for each in self._own:
                columns |= dict(zip(each.schema.names, each.of(rows).columns, strict=True))
            return pa.table([columns[name] for name in self.schema.names], schema=self.schema)
        holds = pc.fill_null(self._own[0].of(rows).column(0), False)
        passes = pc.or_(passing_mask(rows), holds)
        if self._step.on_leave == "keep":
            return rows.filter(passes)
        # As on Spark: a tombstone has its key, its time and the system column.
        columns = {
            name: rows.column(name)
            if name in self._fixed
            else pc.if_else(passes, rows.column(name), pa.scalar(None, rows.schema.field(name).type))
            for name in rows.column_names
        }
        deleted = pc.or_(deleted_mask(rows), pc.invert(passes))
        left = pa.table(columns, schema=rows.schema)
        return with_system_fields(left, deleted=deleted.combine_chunks())


def _computed(step: Choice, fixed: Sequence[str]) -> list[object]:
    return [each for each in step.columns if not (isinstance(each, str) and each in fixed)]


def _condition(step: Filter, schema: pa.Schema) -> ComputedColumn:
    condition = ComputedColumn(step.condition, schema, "condition")
    kind = condition.schema.field(0).type
    if not pa.types.is_boolean(kind):
        raise SchemaError(
            f"{step.condition!r} is of type {kind}", expected="a condition", hint="compare it with something"
        )
    return condition


def _check_names(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"two columns are called {', '.join(twice)}", expected="a name for each", hint="rename one")
