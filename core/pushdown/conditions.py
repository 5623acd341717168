"""Conditions in SQL over Arrow batches, with results identical to Spark's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from sqlglot.expressions.core import Expression


Condition = Callable[[pa.RecordBatch], pa.Array]
"""From a batch to a boolean for each row: true, false or null."""

# Beyond it Spark, which compares a FLOAT with a whole number as FLOAT, rounds.
_FLOAT_EXACT = 1 << 24


class _ForeignSyntax(Exception):  # noqa: N818 it never leaves this module
    pass


def arrow_condition(text: str, schema: pa.Schema) -> Condition | None:
    """Return a condition over Arrow batches, or None if its value could differ from Spark's.

    Supported are comparisons of a column with a constant or another column of its kind, ``IS NULL``, ``IN``,
    ``BETWEEN``, and ``AND``, ``OR``, ``NOT`` of these. As in Spark, a null is neither true nor false, and NaN is
    greater than any number. Arithmetic is left to Spark, as it may overflow; so are casts, struct fields, and text
    whose meaning depends on a setting. So are times beside constants, which Spark compares in the session's zone.
    """
    import sqlglot
    from sqlglot.errors import SqlglotError

    if '"' in text or "\\" in text:
        return None
    try:
        parsed: Any = sqlglot.parse_one(text, read="spark")
        return _translated(parsed, _Columns(schema))
    except (SqlglotError, _ForeignSyntax):
        return None


class _Columns:
    """Columns by name. Case is ignored as in Spark; a name that fits several columns is unsupported."""

    def __init__(self, schema: pa.Schema) -> None:
        self._fields: dict[str, list[pa.Field]] = {}
        for field in schema:
            self._fields.setdefault(field.name.casefold(), []).append(field)

    def field(self, node: Expression) -> pa.Field:
        from sqlglot import exp

        if not isinstance(node, exp.Column) or len(node.parts) != 1:
            raise _ForeignSyntax
        found = self._fields.get(node.name.casefold(), [])
        if len(found) != 1:
            raise _ForeignSyntax
        return found[0]


def _translated(node: Expression, columns: _Columns) -> Condition:
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return _translated(node.this, columns)
    if isinstance(node, exp.Not):
        return _of(pc.invert, _translated(node.this, columns))
    if isinstance(node, exp.And):
        return _of(pc.and_kleene, _translated(node.this, columns), _translated(node.expression, columns))
    if isinstance(node, exp.Or):
        return _of(pc.or_kleene, _translated(node.this, columns), _translated(node.expression, columns))
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return _of(pc.is_null, _column(columns.field(node.this)))
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low, high = node.args["low"], node.args["high"]
        return _of(pc.and_kleene, _compared("GTE", node.this, low, columns), _compared("LTE", node.this, high, columns))
    if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
        equal = [_compared("EQ", node.this, each, columns) for each in node.expressions]
        return functools.reduce(functools.partial(_of, pc.or_kleene), equal)
    if isinstance(node, exp.Column):
        field = columns.field(node)
        if not pa.types.is_boolean(field.type):
            raise _ForeignSyntax
        return _column(field)
    name = type(node).__name__
    if name in _TURNED:
        left, right = node.this, node.expression
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            return _two_columns(name, columns.field(left), columns.field(right))
        if isinstance(left, exp.Column):
            return _compared(name, left, right, columns)
        return _compared(_TURNED[name], right, left, columns)
    raise _ForeignSyntax


_COMPARED: Mapping[str, Callable[..., pa.Array]] = {
    "EQ": pc.equal,
    "NEQ": pc.not_equal,
    "GT": pc.greater,
    "GTE": pc.greater_equal,
    "LT": pc.less,
    "LTE": pc.less_equal,
}
_TURNED: Mapping[str, str] = {"EQ": "EQ", "NEQ": "NEQ", "GT": "LT", "LT": "GT", "GTE": "LTE", "LTE": "GTE"}
"""The comparison with its sides exchanged."""


def _column(field: pa.Field, kind: pa.DataType | None = None) -> Condition:
    name = field.name
    if kind is None or field.type == kind:
        return lambda batch: batch.column(name)
    return lambda batch: batch.column(name).cast(kind)


def _of(function: Callable[..., pa.Array], *parts: Condition) -> Condition:
    return lambda batch: function(*(part(batch) for part in parts))


def _compared(operator: str, left: Expression, right: Expression, columns: _Columns) -> Condition:
    field, constant = columns.field(left), _constant(right)
    number = isinstance(constant, int | float) and not isinstance(constant, bool)
    kind = field.type
    if pa.types.is_signed_integer(kind) and isinstance(constant, int) and number:
        common = pa.int64()
    elif pa.types.is_floating(kind) and number:
        if pa.types.is_float32(kind) and isinstance(constant, int) and abs(constant) > _FLOAT_EXACT:
            raise _ForeignSyntax
        common = pa.float64()
    elif (pa.types.is_string(kind) and isinstance(constant, str)) or (
        pa.types.is_boolean(kind) and isinstance(constant, bool) and operator in ("EQ", "NEQ")
    ):
        common = kind
    else:
        raise _ForeignSyntax
    value, other, compare = _column(field, common), pa.scalar(constant, common), _COMPARED[operator]
    if pa.types.is_floating(common) and operator in ("GT", "GTE"):
        return lambda batch: pc.or_kleene(compare(found := value(batch), other), pc.is_nan(found))
    return lambda batch: compare(value(batch), other)


def _two_columns(operator: str, left: pa.Field, right: pa.Field) -> Condition:
    kinds = left.type, right.type
    if all(map(pa.types.is_signed_integer, kinds)):
        common = pa.int64()
    elif all(map(pa.types.is_floating, kinds)):
        return _two_floats(operator, _column(left, pa.float64()), _column(right, pa.float64()))
    elif kinds[0] == kinds[1] and (
        pa.types.is_string(kinds[0])
        or pa.types.is_date(kinds[0])
        or pa.types.is_timestamp(kinds[0])
        or (pa.types.is_boolean(kinds[0]) and operator in ("EQ", "NEQ"))
    ):
        common = kinds[0]
    else:
        raise _ForeignSyntax
    return _of(_COMPARED[operator], _column(left, common), _column(right, common))


def _two_floats(operator: str, left: Condition, right: Condition) -> Condition:
    """Compare as Spark does: NaN is equal to NaN, and greater than any number."""
    if operator in ("LT", "GTE"):
        left, right = right, left
    if operator in ("EQ", "NEQ"):

        def equal(one: pa.Array, two: pa.Array) -> pa.Array:
            return pc.or_(pc.equal(one, two), pc.and_(pc.is_nan(one), pc.is_nan(two)))

        found = _of(equal, left, right)
    else:

        def greater(one: pa.Array, two: pa.Array) -> pa.Array:
            return pc.or_(pc.greater(one, two), pc.and_(pc.is_nan(one), pc.invert(pc.is_nan(two))))

        found = _of(greater, left, right)
    return _of(pc.invert, found) if operator in ("NEQ", "GTE", "LTE") else found


def _constant(node: Expression) -> Any:
    from sqlglot import exp

    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return -_number(str(node.this.this))
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else _number(str(node.this))
    raise _ForeignSyntax


def _number(text: str) -> int | float:
    try:
        value = int(text)
    except ValueError:
        return float(text)
    if not -(1 << 62) < value < 1 << 62:
        raise _ForeignSyntax
    return value
