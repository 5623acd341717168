"""SQL expressions over a feed's columns, evaluated by Polars; only those that mean the same in Spark are allowed."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..conf.errors import OptionError, SchemaError
from ..core.rows.event_times import NO_TIME, event_time_us
from ..core.rows.system_column import TIMESTAMP
from .ddl import arrow_type

if TYPE_CHECKING:
    import polars as pl
    from sqlglot import exp
    from sqlglot.expressions.core import Expression


OPTION = "select"
# What counts of a number make a second.
_TIMESTAMP_FUNCTIONS = {"TIMESTAMP_SECONDS": 1, "TIMESTAMP_MILLIS": 1_000, "TIMESTAMP_MICROS": 1_000_000}


def column_at_path(way: Sequence[str]) -> pl.Expr:
    """Return the column at the end of a path, or the field of a column."""
    import polars as pl

    value = pl.col(way[0])
    for part in way[1:]:
        value = value.struct.field(part)
    return value


def name_parts(node: Expression) -> list[str]:
    """Return the parts of a name, from the column to the field."""
    from sqlglot import exp

    if isinstance(node, exp.Dot):
        if not isinstance(node.expression, exp.Identifier):
            raise unsupported(node)
        return [*name_parts(node.this), node.expression.name]
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    raise unsupported(node)


def resolved_path(path: Sequence[str], raw: pa.Schema) -> tuple[list[str], pa.DataType]:
    """Return the path to a column or field as the schema spells it, and its type."""
    fields: Sequence[pa.Field] = list(raw)
    way: list[str] = []
    dtype: pa.DataType = pa.struct(fields)
    for part in path:
        if not pa.types.is_struct(dtype):
            raise SchemaError(f"{OPTION} names {'.'.join(path)}, and {'.'.join(way)} is {dtype}", expected="a struct")
        fields = [dtype.field(at) for at in range(dtype.num_fields)]
        names = [field.name for field in fields]
        alike = [name for name in names if name == part] or [n for n in names if n.casefold() == part.casefold()]
        if len(set(alike)) != 1:
            inside = f" in {'.'.join(way)}" if way else ""
            raise SchemaError(
                f"{OPTION} names {part!r}, "
                + (
                    f"which may be {' or '.join(map(repr, alike))}" if alike else f"and there is no such column{inside}"
                ),
                expected="one of " + ", ".join(names),
            )
        way.append(alike[0])
        dtype = fields[names.index(alike[0])].type
    return way, dtype


class Translation:
    """A translation from SQL to Polars, for one column."""

    def __init__(self, raw: pa.Schema, time_zone: str) -> None:
        self._raw = raw
        self._time_zone = time_zone
        self.reads: list[str] = []
        self.misfits: list[pl.Expr] = []

    def value(self, node: Expression, *, certain: bool) -> pl.Expr:
        """Return an expression's values; unless `certain` (inside CASE, for example), a failed conversion is null."""
        import polars as pl
        from sqlglot import exp

        if isinstance(node, (exp.Column, exp.Dot)):
            way, _ = resolved_path(name_parts(node), self._raw)
            self.reads.append(way[0])
            return column_at_path(way)
        if isinstance(node, exp.Bracket):
            return self._field(node)
        if isinstance(node, exp.Literal):
            return pl.lit(
                node.this if node.is_string else float(node.this) if _fractional(node.this) else int(node.this)
            )
        if isinstance(node, exp.Boolean):
            return pl.lit(bool(node.this))
        if isinstance(node, exp.Null):
            return pl.lit(None)
        if isinstance(node, (exp.Cast, exp.TryCast)):
            asked = node.args.get("safe") is True
            return self._cast(node, certain=certain and not asked)
        if isinstance(node, exp.Case):
            return self._case(node)
        if isinstance(node, exp.Anonymous):
            return self._timestamp(node, certain=certain)
        known = _functions().get(type(node))
        if known is None:
            raise unsupported(node)
        names, build, lazily = known
        extra = [name for name in given_arguments(node) if name not in {*names, "safe", "coalesce", "typed", "_type"}]
        if extra:
            raise unsupported(node)
        operands: list[pl.Expr] = []
        for name in names:
            given = node.args.get(name)
            for each in given if isinstance(given, list) else [given] if given is not None else []:
                operands.append(self.value(each, certain=certain and not lazily))  # noqa: PERF401 two loops read better
        if isinstance(node, (exp.Neg, exp.Abs, exp.Add, exp.Sub, exp.Mul, exp.Div)):
            return self._computed(build, operands, certain=certain)
        return build(*operands)

    def _computed(self, build: Build, operands: Sequence[pl.Expr], *, certain: bool) -> pl.Expr:
        """Compute arithmetic. What Spark refuses, a division by zero or a BIGINT that is too large, is a misfit."""
        import polars as pl

        if build is _divided:
            made = build(*operands)
        elif all(map(self._is_whole, operands)):  # of which Polars would let the result wrap around
            made = build(*(operand.cast(pl.Int128) for operand in operands)).cast(pl.Int64, strict=False)
        else:
            return build(*operands)
        if certain:
            self.misfits.append(made.is_null() & pl.all_horizontal([operand.is_not_null() for operand in operands]))
        return made

    def _is_whole(self, value: pl.Expr) -> bool:
        import polars as pl

        frame = pl.DataFrame(pl.from_arrow(self._raw.empty_table()))
        return frame.select(value.alias("")).schema[""].is_integer()

    def _field(self, node: exp.Bracket) -> pl.Expr:
        from sqlglot import exp

        inside = node.expressions
        if not (len(inside) == 1 and isinstance(inside[0], exp.Literal) and inside[0].is_string):
            raise unsupported(node)
        way, _ = resolved_path([*name_parts(node.this), str(inside[0].this)], self._raw)
        self.reads.append(way[0])
        return column_at_path(way)

    def _case(self, node: exp.Case) -> pl.Expr:
        import polars as pl

        chain: Any = pl
        for branch in node.args["ifs"]:
            condition = self.value(branch.this, certain=False)
            if node.this is not None:
                condition = self.value(node.this, certain=False) == condition
            chain = chain.when(condition).then(self.value(branch.args["true"], certain=False))
        default = node.args.get("default")
        return chain.otherwise(pl.lit(None) if default is None else self.value(default, certain=False))

    def _cast(self, node: exp.Cast, *, certain: bool) -> pl.Expr:
        import polars as pl
        from sqlglot import exp

        target = arrow_type(node.to)
        given = self.value(node.this, certain=certain)
        if node.find(exp.Column) is None:  # a constant: refused at once if it does not fit
            return given.cast(_polars_type(target))
        if pa.types.is_timestamp(target):
            made = given.map_batches(
                functools.partial(_timestamps, time_zone=self._time_zone), return_dtype=pl.Datetime("us", "UTC")
            )
        elif pa.types.is_nested(target):
            raise unsupported(node)
        else:
            made = given.map_batches(functools.partial(_converted, target=target), return_dtype=_polars_type(target))
        if certain:
            self.misfits.append(given.is_not_null() & made.is_null())
        return made

    def _timestamp(self, node: exp.Anonymous, *, certain: bool) -> pl.Expr:
        """Return the instant of ``timestamp_millis(x)`` and its kind, from a count since the epoch."""
        import polars as pl

        scale = _TIMESTAMP_FUNCTIONS.get(str(node.this).upper())
        if scale is None or len(node.expressions) != 1:
            raise unsupported(node)
        given = self.value(node.expressions[0], certain=certain)
        made = given.map_batches(functools.partial(_counted, per_second=scale), return_dtype=pl.Datetime("us", "UTC"))
        if certain:
            self.misfits.append(given.is_not_null() & made.is_null())
        return made


Build = Callable[..., Any]


@functools.cache
def _functions() -> Mapping[type, tuple[tuple[str, ...], Build, bool]]:
    """Return by supported node: its arguments, its value, and whether some rows do not need all arguments."""
    import polars as pl
    from sqlglot import exp

    both = ("this", "expression")
    return {
        exp.Paren: (("this",), lambda value: value, False),
        exp.Neg: (("this",), lambda value: value * -1, False),  # which Polars has for Int128, too
        exp.Not: (("this",), operator.invert, False),
        exp.Add: (both, operator.add, False),
        exp.Sub: (both, operator.sub, False),
        exp.Mul: (both, operator.mul, False),
        exp.Div: (both, _divided, False),
        exp.EQ: (both, operator.eq, False),
        exp.NEQ: (both, operator.ne, False),
        exp.GT: (both, operator.gt, False),
        exp.GTE: (both, operator.ge, False),
        exp.LT: (both, operator.lt, False),
        exp.LTE: (both, operator.le, False),
        exp.And: (both, operator.and_, True),
        exp.Or: (both, operator.or_, True),
        exp.Is: (both, lambda left, right: left.eq_missing(right), False),
        exp.Between: (("this", "low", "high"), lambda value, low, high: value.is_between(low, high), False),
        exp.Coalesce: (("this", "expressions"), pl.coalesce, True),
        exp.Nullif: (both, lambda left, right: pl.when(left == right).then(None).otherwise(left), True),
        exp.If: (
            ("this", "true", "false"),
            lambda test, yes, no=None: pl.when(test).then(yes).otherwise(pl.lit(None) if no is None else no),
            True,
        ),
        exp.Concat: (("expressions",), lambda *values: pl.concat_str([v.cast(pl.String) for v in values]), False),
        exp.DPipe: (both, lambda left, right: pl.concat_str([left.cast(pl.String), right.cast(pl.String)]), False),
        exp.Upper: (("this",), lambda value: value.str.to_uppercase(), False),
        exp.Lower: (("this",), lambda value: value.str.to_lowercase(), False),
        exp.Trim: (("this",), lambda value: value.str.strip_chars(" "), False),
        exp.Length: (("this",), lambda value: value.str.len_chars().cast(pl.Int32), False),
        exp.Abs: (("this",), lambda value: value.abs(), False),
    }


def _divided(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Divide as Spark does, with fractions; a division by zero is null."""
    import polars as pl

    return pl.when(right != 0).then(left.cast(pl.Float64) / right.cast(pl.Float64))


def _polars_type(target: pa.DataType) -> pl.DataType:
    import polars as pl

    return pl.Series(pl.from_arrow(pa.array([], target))).dtype


def _converted(values: pl.Series, target: pa.DataType) -> pl.Series:
    import polars as pl

    if values.dtype == pl.String and not (pa.types.is_string(target) or pa.types.is_binary(target)):
        values = values.str.strip_chars()
        if pa.types.is_boolean(target):
            lower = values.str.to_lowercase()
            words = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
            return lower.replace_strict(words, default=None, return_dtype=pl.Boolean)
    return values.cast(_polars_type(target), strict=False)


def _timestamps(values: pl.Series, time_zone: str) -> pl.Series:
    column: Any = values.to_arrow(compat_level=None)
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    return _stamps(event_time_us(column, "epoch_s" if _counts(column.type) else None, time_zone))


def _counted(values: pl.Series, per_second: int) -> pl.Series:
    form = {1: "epoch_s", 1_000: "epoch_ms", 1_000_000: "epoch_us"}[per_second]
    column: Any = values.to_arrow()
    return _stamps(event_time_us(column, form, "UTC"))


def _counts(dtype: pa.DataType) -> bool:
    return pa.types.is_integer(dtype) or pa.types.is_floating(dtype)


def _stamps(times_us: npt.NDArray[np.int64]) -> pl.Series:
    import polars as pl

    stamps = pa.array(times_us, pa.int64(), mask=times_us == NO_TIME).cast(TIMESTAMP)
    return pl.Series(pl.from_arrow(stamps))


def _fractional(text: str) -> bool:
    return not text.lstrip("-").isdigit()


def given_arguments(node: Expression) -> list[str]:
    """Name the arguments that an expression has."""
    return [name for name, value in node.args.items() if value]


def as_written(node: Expression) -> str:
    """Render an expression in Spark's SQL."""
    return node.sql(dialect="spark")


def unsupported(node: Expression) -> OptionError:
    """Return the error for an unsupported expression."""
    return OptionError(
        f"{OPTION} uses {as_written(node)}, which is not supported here",
        expected="names of columns and fields, casts, timestamp_seconds, _millis and _micros, arithmetic, comparisons, "
        "CASE, IF, COALESCE, NULLIF, CONCAT, UPPER, LOWER, TRIM, LENGTH, ABS",
        hint="compute it in a program, on the stream",
    )
