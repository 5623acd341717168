"""Spark's type names as Arrow types, without Spark: for schemas and casts that are read before there is a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ..conf.errors import OptionError
from ..core.rows.system_column import TIMESTAMP

if TYPE_CHECKING:
    from sqlglot import exp


_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
    "TIMESTAMP": TIMESTAMP,
}
_EXPECTED = "a type of Spark's, such as BIGINT, DOUBLE, STRING, DECIMAL(10, 2), TIMESTAMP or STRUCT<a: INT>"


def arrow_schema(ddl: str) -> pa.Schema:
    """Parse a schema in Spark's DDL; raise OptionError for other text, or for a type without an Arrow type here."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        table = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", read="spark")
    except SqlglotError as error:
        raise OptionError(
            f"schema={ddl!r} is no schema: {error}", expected="a DDL such as 'a INT, b STRING'"
        ) from error
    columns = table.this.expressions if isinstance(table.this, exp.Schema) else []
    if not columns or not all(isinstance(column, exp.ColumnDef) and column.kind for column in columns):
        raise OptionError(f"schema={ddl!r} is no schema", expected="a DDL such as 'a INT, b STRING'")
    return pa.schema([pa.field(column.name, arrow_type(column.args["kind"])) for column in columns])


def arrow_type(kind: exp.DataType) -> pa.DataType:
    """Return the Arrow type of a parsed type name; raise OptionError if there is none here."""
    from sqlglot import exp

    name = kind.this.name if isinstance(kind.this, exp.DType) else str(kind.this)
    inner = kind.expressions
    if name == "DECIMAL":
        numbers = [int(each.name) for each in inner] or [10, 0]
        return pa.decimal128(numbers[0], numbers[1] if len(numbers) > 1 else 0)
    if name in ("ARRAY", "LIST") and len(inner) == 1:
        return pa.list_(arrow_type(inner[0]))
    if name == "MAP" and len(inner) == 2:
        return pa.map_(arrow_type(inner[0]), arrow_type(inner[1]))
    if name == "STRUCT":
        return pa.struct([pa.field(each.name, arrow_type(each.args["kind"])) for each in inner])
    if name not in _TYPES:
        raise OptionError(f"the type {kind.sql(dialect='spark')} is not known here", expected=_EXPECTED)
    return _TYPES[name]
