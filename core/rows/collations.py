"""Collations of text columns, which are refused: here texts are equal only if their bytes are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...conf.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["check_collations", "collations_of"]

Json = Any

_COLLATIONS = "__COLLATIONS"
_BINARY = "UTF8_BINARY"


def collations_of(fields: Iterable[Json]) -> dict[str, str]:
    """Return the collations of columns and of their fields, by name, from the JSON that Spark and Delta share."""
    found: dict[str, str] = {}
    for field in fields:
        for name, whole in field.get("metadata", {}).get(_COLLATIONS, {}).items():
            if (collation := str(whole).rpartition(".")[2]) != _BINARY:
                found[name] = collation
        for name, collation in _inside(field["type"]).items():
            found[f"{field['name']}.{name}"] = collation
    return found


def check_collations(schema: StructType, *, names: Iterable[str] | None = None) -> None:
    """Refuse columns with a collation: those in `names`, or by default all."""
    wanted = None if names is None else set(names)
    fields = schema.jsonValue()["fields"]
    found = collations_of(field for field in fields if wanted is None or field["name"] in wanted)
    if found:
        one = next(iter(found))
        raise SchemaError(
            "the text of "
            f"{', '.join(f'{name} is under the collation {collation}' for name, collation in found.items())}",
            expected=f"text under {_BINARY}, the default: here two texts are equal where their bytes are, so that 'A' "
            "and 'a' are two keys",
            hint=f"give each column the collation {_BINARY} before, for example .withColumn({one!r}, "
            f"F.expr(\"collate({one}, '{_BINARY}')\")); "
            f"if 'A' and 'a' are to be one key, take F.lower of it",
        )


def _inside(kind: Json) -> dict[str, str]:
    """Return the collations inside a struct, list or map; those of a list's own elements are found with the column."""
    if not isinstance(kind, dict):
        return {}
    found = collations_of(kind.get("fields", ()))
    for part in ("elementType", "keyType", "valueType"):
        found |= _inside(kind.get(part))
    return found
