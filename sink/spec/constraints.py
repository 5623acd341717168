"""A table's constraints on its rows, none of which the sink evaluates: a table with any is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...conf.errors import TableError

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["check_constraints", "check_demands", "demands_of"]

Json = Any

_CHECK = "delta.constraints."
_INVARIANT, _GENERATED, _IDENTITY = "delta.invariants", "delta.generationExpression", "delta.identity."
_INNER = (("elementType", "containsNull", "elements"), ("valueType", "valueContainsNull", "values"))


def check_constraints(table: DeltaTable, location: str) -> None:
    """Refuse a table with constraints that this package does not evaluate; the error names each.

    Spark evaluates CHECK, NOT NULL, invariants, generated and identity columns in its own SQL; see
    docs/decisions/0012.
    """
    check_demands(json.loads(table.schema().to_json())["fields"], table.metadata().configuration, location)


def check_demands(fields: Iterable[Json], configuration: Mapping[str, str], location: str) -> None:
    """Refuse as :func:`check_constraints` does, by a table's fields and properties."""
    demands = demands_of(fields, configuration)
    if demands:
        raise TableError(
            f"the table at {location} asks of its rows what this sink does not evaluate: {'; '.join(demands)}",
            expected="a table of the sink's own without constraints, columns that are NOT NULL, generated columns or "
            "identity columns",
            hint="drop a constraint (ALTER TABLE … DROP CONSTRAINT …), or a NOT NULL (ALTER TABLE … ALTER COLUMN … "
            "DROP NOT NULL), and filter the rows before "
            "writing, with where; or write with engine=merge to a table that somebody else has laid out: Spark's MERGE "
            "evaluates them all",
        )


def demands_of(fields: Iterable[Json], configuration: Mapping[str, str]) -> list[str]:
    """Return a table's constraints in words, from its fields in Delta's JSON and its properties."""
    checks = [
        f"the constraint {name[len(_CHECK) :]} CHECK ({condition})"
        for name, condition in sorted(configuration.items())
        if name.lower().startswith(_CHECK)
    ]
    return [*checks, *(demand for field in fields for demand in _of_field(field, ""))]


def _of_field(field: Json, prefix: str) -> list[str]:
    name = prefix + field["name"]
    metadata: dict[str, Json] = field.get("metadata") or {}
    found = [] if field.get("nullable", True) else [f"{name} is NOT NULL"]
    if _INVARIANT in metadata:
        found.append(f"{name} has the invariant {metadata[_INVARIANT]}")
    if _GENERATED in metadata:
        found.append(f"{name} is generated as {metadata[_GENERATED]}")
    if any(each.startswith(_IDENTITY) for each in metadata):
        found.append(f"{name} is an identity column")
    return found + _of_type(field["type"], name)


def _of_type(kind: Json, name: str) -> list[str]:
    if not isinstance(kind, dict):
        return []
    found = [demand for field in kind.get("fields", ()) for demand in _of_field(field, f"{name}.")]
    for inner, admits, what in _INNER:
        if inner in kind:
            found += [] if kind.get(admits, True) else [f"the {what} of {name} are NOT NULL"]
            found += _of_type(kind[inner], name)
    return found
