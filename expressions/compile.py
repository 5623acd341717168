"""Compiler for SQL expressions over columns with Spark's semantics: built once, run for each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ..conf.errors import QueryError, SchemaError
from .calendar import FIRST_DAY, LAST_DAY
from .casts import CASTS
from .columnar import (
    MOST_BYTES_OF_ALL,
    Builder,
    Kernel,
    RowFailure,
    Stages,
    Value,
    as_constant,
    literal,
    polars_type,
    when_needed,
)
from .doubles import DOUBLES
from .encodings import ENCODINGS
from .formats import FORMATS
from .hashes import DIGESTS, HASHES
from .intervals import INTERVALS
from .kinds import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    FLOAT,
    INTEGRALS,
    LOCAL_TIMESTAMP,
    TEXT,
    TIMESTAMP,
    is_decimal,
    spark_name,
)
from .logic import COMPARISONS, CONDITIONALS, NESTED, SEQUENCES
from .nodes import Call, Constant, Expression, Field, walk
from .numbers import BITS, NUMBERS
from .patterns import PATTERNS
from .python_functions import is_python, python_kernel
from .text import POSITIONS, TEXTS
from .times import MONTH_FUNCTIONS, TIMES
from .zones import ZONES

_KERNELS: Mapping[str, Kernel] = {
    **NUMBERS,
    **BITS,
    **COMPARISONS,
    **CASTS,
    **TEXTS,
    **POSITIONS,
    **DIGESTS,
    **HASHES,
    **DOUBLES,
    **ENCODINGS,
    **PATTERNS,
    **TIMES,
    **ZONES,
    **FORMATS,
    **MONTH_FUNCTIONS,
    **INTERVALS,
    **NESTED,
    **SEQUENCES,
}
_RIGHT_FIRST = {"divide", "div", "mod", "pmod"}
"""Spark evaluates the divisor first, so the dividend cannot fail where it is null."""
_ALL = {"array", "concat", "concat_ws", "eq_null_safe", "greatest", "hash", "least", "struct", "xxhash64"}
"""Spark evaluates all operands, even beside a null."""


def compiled(expression: Expression, schema: pa.Schema) -> CompiledExpression:
    """Build the evaluator of a well-typed expression; raise SchemaError if it has none with Spark's semantics."""
    return CompiledExpression(expression, schema)


def compiled_columns(columns: Sequence[tuple[str, Expression]], schema: pa.Schema) -> CompiledColumns:
    """Build an evaluator of several expressions, which computes common parts once."""
    return CompiledColumns(columns, schema)


_FOLDED = {BINARY, BOOLEAN, DATE, DOUBLE, DURATION, FLOAT, *INTEGRALS, LOCAL_TIMESTAMP, TEXT, TIMESTAMP}
_LONGEST = 1_000


def folded(expression: Expression) -> Expression:
    """Replace calls without columns by their values. A call that fails stays, and fails in the rows that need it."""
    if not isinstance(expression, Call):
        return expression
    arguments = tuple(map(folded, expression.arguments))
    same = all(one is other for one, other in zip(arguments, expression.arguments, strict=True))
    call = expression if same else replace(expression, arguments=arguments)
    constant = all(isinstance(each, Constant) for each in arguments) and not is_python(call)
    return _folded(call, str(call)) if constant else call


@lru_cache(maxsize=1024)
def _folded(call: Call, text: str) -> Expression:
    del text  # 0.0 and -0.0 are equal, but not the same
    if call.type not in _FOLDED and not is_decimal(call.type):
        return call
    try:
        found = _Compiler(pa.schema([])).value(call)
    except SchemaError:
        return call  # refused with the whole plan
    if found.failures:
        return call
    values = pl.select(found.values).to_series()
    try:
        value = (values.cast(pl.Datetime("us")) if call.type == TIMESTAMP else values).to_arrow()[0].as_py()
    except (ValueError, OverflowError):
        return call  # a time that Python cannot hold
    written = repr(value)
    # Plans are compared: NaN is not equal to itself, and -0.0 is to 0.0.
    return call if written in ("nan", "-0.0") or len(written) > _LONGEST else Constant(value, call.type)


class CompiledColumns:
    """Evaluates expressions over rows; `schema` is that of the results. Use :func:`compiled_columns`."""

    def __init__(self, columns: Sequence[tuple[str, Expression]], schema: pa.Schema) -> None:
        compiler = _Compiler(schema)
        values = [compiler.value(expression) for _, expression in columns]
        self.schema = pa.schema([(name, expression.type) for name, expression in columns])
        self._types = {name: polars_type(expression.type) for name, expression in columns}
        self._values = [value.values.alias(name) for (name, _), value in zip(columns, values, strict=True)]
        self._failures = [failure for value in values for failure in value.failures]
        self._failing = {name: value.failures for (name, _), value in zip(columns, values, strict=True)}
        self._stages = compiler.stages.columns
        read = {name for _, expression in columns for name in _names(expression)}
        self.reads = [name for name in schema.names if name in read]
        self._outputs = [*self._values]
        if self._failures:
            self._outputs.append(pl.any_horizontal([each.where for each in self._failures]).any().alias(_FAILED))

    def evaluate(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the values for some rows. Raise QueryError, with the expression and the row's values, if one fails."""
        if not frame.height:
            return pl.DataFrame(schema=self._types)
        found = self._selected(frame, self._outputs)
        if self._failures and found[_FAILED][0]:
            raise self._error(frame)
        return found.drop(_FAILED) if self._failures else found

    def tried(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, npt.NDArray[np.bool_]]]:
        """Return the values, and by column the rows in which it fails, where its value is null."""
        if not frame.height:
            return pl.DataFrame(schema=self._types), {}
        masks = {
            f"{_FAILED}_{name}": pl.any_horizontal([each.where for each in failures])
            for name, failures in self._failing.items()
            if failures
        }
        found = self._selected(frame, [*self._values, *(mask.alias(name) for name, mask in masks.items())])
        failed = {name.removeprefix(f"{_FAILED}_"): found[name].to_numpy() for name in masks if found[name].any()}
        return found.drop(*masks), failed

    def filtered(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows for which the first expression is true; see :meth:`added`."""
        return self._checked(frame).filter(self._values[0]).select(frame.collect_schema().names())

    def added(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows with the values as further columns. If a value can fail, read all rows to find out."""
        return self._checked(frame).with_columns(self._values).select(*frame.collect_schema().names(), *self._types)

    def _checked(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        rows = self._rows(frame)
        if self._failures:
            failed = pl.any_horizontal([each.where for each in self._failures])
            failing = rows.filter(failed).select(self.reads).head(1).collect()
            if failing.height:
                raise self._error(failing)
        return rows

    def constant_failure(self) -> RowFailure | None:
        """Return the failure of a value that cannot be computed in any row."""
        for each in self._failures:
            if not each.where.meta.root_names() and pl.select(each.where).item():
                return each
        return None

    def _selected(self, frame: pl.DataFrame, outputs: Sequence[pl.Expr]) -> pl.DataFrame:
        found = self._rows(frame).select(outputs).collect()
        # Equal texts of constants are one in memory only until the rows are sent on.
        texts = (int(each.str.len_bytes().sum()) for each in found if each.dtype == pl.String)
        size = max(found.estimated_size(), sum(texts))
        size = size if found.height == frame.height else size * frame.height
        if size > MOST_BYTES_OF_ALL:
            raise QueryError(
                f"the values of {frame.height} rows take {size} bytes",
                expected=f"at most {MOST_BYTES_OF_ALL}",
                hint="make shorter texts, or shorter batches",
            )
        if found.height != frame.height:  # constants alone
            found = pl.DataFrame([each.new_from_index(0, frame.height) for each in found])
        return found

    def _rows(self, frame: pl.DataFrame | pl.LazyFrame) -> pl.LazyFrame:
        rows = frame.lazy()
        for stage in self._stages:
            rows = rows.with_columns(stage)
        return rows

    def _error(self, frame: pl.DataFrame) -> QueryError:
        masks = [each.where.any().alias(str(at)) for at, each in enumerate(self._failures)]
        some = self._rows(frame).select(masks).collect().row(0)
        failure = self._failures[some.index(True)]
        at = self._rows(frame).select(failure.where.alias(_FAILED)).collect()[_FAILED].arg_max() or 0
        return _query_error(failure, {name: _shown(frame[name][at : at + 1]) for name in self.reads})


_FAILED = "__failed"
_SHOWN = 1_000


class CompiledExpression:
    """Evaluates one expression over rows; `type` is that of its values. Use :func:`compiled`."""

    def __init__(self, expression: Expression, schema: pa.Schema) -> None:
        self.type = expression.type
        self._columns = CompiledColumns([("value", expression)], schema)

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """Return the value of each row; raise QueryError as :meth:`CompiledColumns.evaluate` does."""
        return self._columns.evaluate(frame).to_series()

    def constant_failure(self) -> RowFailure | None:
        """Return the failure of a value that cannot be computed in any row."""
        return self._columns.constant_failure()


def _shown(value: pl.Series) -> object:
    """Return a value for a message; the number of a time that Python cannot hold."""
    if isinstance(value.dtype, pl.Date | pl.Datetime):
        number = value.to_physical().item()
        size = _PER_DAY[value.dtype.time_unit] if isinstance(value.dtype, pl.Datetime) else 1
        if number is not None and not FIRST_DAY <= number // size <= LAST_DAY:
            return number
    return value.item()


_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def _query_error(failure: RowFailure, row: Mapping[str, object]) -> QueryError:
    given = ", ".join(f"{name} = {value!r}" for name, value in row.items())
    of = str(failure.of)
    shown = of if len(of) <= _SHOWN else f"{of[:_SHOWN]} …"
    return QueryError(
        f"{shown} has no value{f' where {given}' if given else ''}: {failure.reason}",
        expected="rows for which each expression of the query has a value",
        hint=failure.hint
        or "use a try_ form, such as try_cast or try_divide, which gives null, or leave such rows out",
    )


def _names(expression: Expression) -> set[str]:
    return {each.name for each in walk(expression) if isinstance(each, Field)}


class _Compiler:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._known: dict[tuple[Expression, str], Value] = {}
        self.stages = Stages()

    def value(self, expression: Expression) -> Value:
        key = expression, str(expression)  # 0.0 and -0.0 are equal, but not the same
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._built(expression)
        return found

    def _built(self, expression: Expression) -> Value:
        if isinstance(expression, Field):
            return self._column(expression)
        if isinstance(expression, Constant):
            return Value(literal(expression.value, expression.type))
        value = self._call(expression)
        nested = pa.types.is_struct(expression.type)
        return as_constant(value, expression) if value.constant and not nested else value

    def _column(self, field: Field) -> Value:
        index = self._schema.get_field_index(field.name)
        if index < 0:
            raise SchemaError(f"there is no column {field.name}", expected="one of " + ", ".join(self._schema.names))
        given = self._schema.field(index).type
        if given != field.type:
            raise SchemaError(
                f"the column {field.name} is of type {spark_name(given)}", expected=f"{spark_name(field.type)}"
            )
        return Value(pl.col(field.name))

    def _call(self, call: Call) -> Value:
        operands = [self.value(each) for each in call.arguments]
        conditional = CONDITIONALS.get(call.function)
        if conditional is not None:
            return conditional(operands, self.stages)
        tried = call.function.startswith("try_")
        kernel = python_kernel if is_python(call) else _KERNELS.get(call.function.removeprefix("try_"))
        if kernel is None:
            raise SchemaError(f"{call} cannot be evaluated: there is no function {call.function} here")
        builder = Builder(call, operands, self.stages)
        values = kernel(builder, *(each.values for each in operands))
        own = [each for each in builder.failures if each.lasting or not tried]
        return Value(values, (*(() if builder.unread else self._failures_in_order(call, operands)), *own))

    def _failures_in_order(self, call: Call, operands: Sequence[Value]) -> list[RowFailure]:
        """Return the operands' failures. Spark evaluates an operand only in rows where no earlier operand is null."""
        if call.function in _ALL or is_python(call):
            return [failure for each in operands for failure in each.failures]
        if any(each.failures for each in operands) and any(each.null for each in operands):
            return []
        order = list(operands)
        by_divisor = call.function.removeprefix("try_") in _RIGHT_FIRST
        if by_divisor:
            order.reverse()
        failures: list[RowFailure] = []
        needed: pl.Expr | None = None
        for at, each in enumerate(order):
            failures += each.failures if needed is None else when_needed(each.failures, needed)
            if not any(other.failures for other in order[at + 1 :]):
                break
            tried = by_divisor and call.function.startswith("try_")  # a divisor of zero has its result, too
            if not each.constant or tried:
                value = self.stages.shared(each.values)
                there = value != 0 if tried else value.is_not_null()
                needed = there if needed is None else self.stages.shared(needed & there)
        return failures
