"""The columns of the options key, time and deleteWhen; parts of a key may be fields of structs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...conf.column_names import Tree, parts_of
from ...conf.errors import SchemaError
from ...core.rows.key import Key, json_tree
from ...core.rows.system_column import SYSTEM

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


Json = Any

_DECIMAL = re.compile(r"decimal\(\d+,\s*-?\d+\)")
TIMES = frozenset({"byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "float", "double"})
"""Types that a time column may have."""
KEYS = TIMES | {"boolean", "string", "binary"}
"""Types that a key or a sequence may have, beside decimals, and structs of all these."""


def tree_of(fields: dict[str, Json]) -> Tree:
    """Return the names of the columns of types in Spark's JSON."""
    return json_tree([{"name": name, "type": kind} for name, kind in fields.items()])


def column_named(name: str, fields: dict[str, Json], role: str) -> str:
    """Return the column of a user's name; a field of a column is a SchemaError."""
    (found,) = Key((name,)).resolved(tree_of(fields), role)
    if found not in fields:
        raise SchemaError(
            f"the {role} column {name!r} is a field of a column",
            expected="a column of its own: only parts of the key may be fields",
            hint=f'make one before writing, for example .withColumn("{name.replace(".", "_")}", F.col("{name}"))',
        )
    return found


def check_key(name: str, fields: dict[str, Json], role: str = "key") -> None:
    """Refuse a part of a key or of a sequence whose type cannot be compared."""
    _check_kind(name, type_of(name, fields), role)


def type_of(name: str, fields: Mapping[str, Json]) -> Json:
    """Return the type of a column, or of a field of one."""
    kind = fields.get(name)
    if kind is None:
        column, *inner = parts_of(name)
        kind = fields[column]
        for part in inner:
            kind = next(field["type"] for field in kind["fields"] if field["name"] == part)
    return kind


def is_decimal(kind: str) -> bool:
    """Return True if a type is a decimal."""
    return _DECIMAL.fullmatch(kind) is not None


def shown_type(kind: Json) -> str:
    """Return a type as SQL writes it."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return "struct<" + ", ".join(f"{field['name']}: {shown_type(field['type'])}" for field in kind["fields"]) + ">"
    if kind["type"] == "array":
        return f"array<{shown_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{shown_type(kind['keyType'])}, {shown_type(kind['valueType'])}>"
    return str(kind["type"])


def _check_kind(name: str, kind: Json, role: str) -> None:
    if isinstance(kind, dict) and kind["type"] == "struct":
        for field in kind["fields"]:
            _check_kind(f"{name}.{field['name']}", field["type"], role)
    elif not isinstance(kind, str) or (kind not in KEYS and not is_decimal(kind)):
        raise SchemaError(
            f"the {role} column {name!r} is of type {shown_type(kind)}",
            expected="numbers, decimals, text, binary, dates, timestamps, booleans, or structs of these",
            hint=f"cast it, or make a {role} column from it, before writing",
        )


DELETED = f"{SYSTEM}_deleted"
"""The column that a condition becomes; it does not get into the table."""


def with_deletions(df: DataFrame, condition: str | Column) -> tuple[DataFrame, str]:
    """Return the rows with a column that marks deletions, and its name.

    `condition` is a column's name, an SQL condition, or a column expression. If it is null, the row deletes
    nothing.
    """
    from pyspark.sql import functions as F

    if isinstance(condition, str):
        named = [name for name in df.columns if name.lower() == condition.strip().strip("`").lower()]
        if named:
            return df, named[0]
        condition = F.expr(condition)
    return df.withColumn(DELETED, condition), DELETED
