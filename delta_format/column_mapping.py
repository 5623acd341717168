"""Delta's column mapping, for column names that plain Delta rejects (docs/decisions/0012)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..conf.errors import TableError

if TYPE_CHECKING:
    from deltalake import DeltaTable


Json = Any
Path = tuple[str, ...]
Ids = Mapping[Path, int]
"""The id of each column and field by its path: names, and ``element``, ``key`` and ``value`` in lists and maps."""

FEATURE = "columnMapping"
MODE = "delta.columnMapping.mode"
_LAST = "delta.columnMapping.maxColumnId"
_ID, _PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_UNPLAIN = re.compile(r"[ ,;{}()\n\t=]")
_INNER = {"array": (("elementType", "element"),), "map": (("keyType", "key"), ("valueType", "value"))}


def needs_mapping(schema: Json) -> bool:
    """Return whether a schema, in Spark's and Delta's JSON, has a name at any depth that plain Delta rejects."""
    return any(_UNPLAIN.search(path[-1]) for path, _ in _fields(schema))


def is_mapped(configuration: Mapping[str, str]) -> bool:
    """Return whether a table with these properties maps its columns."""
    return configuration.get(MODE, "none").lower() != "none"


def check_mapping(schema: Json, configuration: Mapping[str, str], location: str) -> None:
    """Refuse a table whose files have other names for its columns: many readers ignore mapping and would find nulls."""
    if not is_mapped(configuration):
        return
    if configuration[MODE].lower() != "name":
        raise TableError(
            f"the table at {location} maps its columns by {configuration[MODE]!r} ({MODE})",
            expected="a table whose columns are found by their names",
            hint="read it as a batch from Spark, and write its rows to a table at another path",
        )
    wrong = [
        f"{'.'.join(path)} is {field.get('metadata', {}).get(_PHYSICAL)} there"
        for path, field in _fields(schema)
        if field.get("metadata", {}).get(_PHYSICAL) != path[-1]
    ]
    if wrong:
        raise TableError(
            f"the table at {location} has columns with other names in its files: {', '.join(wrong)}",
            expected="columns with the same names in the files: many readers ignore column mapping, and would find "
            "nulls",
            hint="undo the renaming of a column (ALTER TABLE … RENAME COLUMN), and add columns by "
            "schemaEvolution=add. Or write the rows to a table at another path. engine=merge accepts such a table of "
            "another program",
        )


def ids_of(schema: Json) -> dict[Path, int]:
    """Return the column ids of a mapped schema."""
    return {path: int(field["metadata"][_ID]) for path, field in _fields(schema) if _ID in field.get("metadata", {})}


def last_id(configuration: Mapping[str, str]) -> int:
    """Return the greatest id that a column of the table has or ever had; 0 if there is none."""
    return int(configuration.get(_LAST, 0))


def field_ids(schema: Json, known: Ids | None = None, last: int = 0) -> dict[Path, int]:
    """Return an id for each column and field of a schema: the known one, or the next one after `last`."""
    found: dict[Path, int] = {}
    for path, _ in _fields(schema):
        number = (known or {}).get(path)
        if number is None:
            last += 1
            number = last
        found[path] = number
    return found


def mapped(schema: Json, ids: Ids) -> Json:
    """Return a schema in which each column is mapped to its own name, so that readers without mapping find it."""
    return _rebuilt(schema, (), ids)


def ids_in(table: DeltaTable | None, schema: Json) -> dict[tuple[str, ...], int] | None:
    """Return the column ids that a schema has, or would get, in a table; None if it needs none.

    The `table` is None if it does not exist yet. The schema, in JSON, includes the columns to add.
    """
    if table is not None and is_mapped(configuration := table.metadata().configuration):
        return field_ids(schema, ids_of(json.loads(table.schema().to_json())), last_id(configuration))
    return field_ids(schema) if needs_mapping(schema) else None


def mapping_properties(ids: Ids, last: int = 0) -> dict[str, str]:
    """Return a table's properties for the mapping; `last` is the greatest id so far."""
    return {MODE: "name", _LAST: str(max([last, *ids.values()]))}


def mapping_protocol(schema: Json, protocol: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return the protocol that a table with this schema needs for mapping, or None if `protocol` suffices.

    It has the old version numbers if they suffice, which more readers support than named features.
    """
    if protocol is None:
        protocol = plain_protocol(schema)
    if protocol["minWriterVersion"] < 7:
        wanted = {**protocol, "minReaderVersion": 2, "minWriterVersion": max(protocol["minWriterVersion"], 5)}
    else:
        wanted = {**protocol, "minReaderVersion": 3}
        for kind in ("readerFeatures", "writerFeatures"):
            wanted[kind] = sorted({*(protocol.get(kind) or ()), FEATURE})
    return None if wanted == protocol else wanted


def plain_protocol(schema: Json) -> dict[str, Any]:
    """Return the least protocol that a table with this schema needs."""
    if any(kind == "timestamp_ntz" for kind in kinds_in(schema)):
        features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
        return {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    return {"minReaderVersion": 1, "minWriterVersion": 2}


def physical_name(field: Json) -> str:
    """Return the name of a table's field in its files."""
    return str(field.get("metadata", {}).get(_PHYSICAL, field["name"]))


def physical_number(field: Json) -> int | None:
    """Return the id of a table's field, which its files have too, or None."""
    return field.get("metadata", {}).get(_ID)


def kinds_in(kind: Json) -> Iterator[str]:
    """Yield the types at any depth, except structs, lists and maps."""
    if isinstance(kind, str):
        yield kind
        return
    for inner in [
        *(field["type"] for field in kind.get("fields", ())),
        *(kind[name] for name, _ in _INNER.get(kind["type"], ())),
    ]:
        yield from kinds_in(inner)


def with_field_ids(schema: pa.Schema, ids: Ids) -> pa.Schema:
    """Return the schema of a mapped table's data files, with the column ids that the format requires."""
    return pa.schema([_numbered(field, (field.name,), ids) for field in schema])


def _fields(kind: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Yield each column and field of a struct, at any depth, with its path."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        inner = (*path, field["name"])
        yield inner, field
        yield from _fields(field["type"], inner)
    for name, step in _INNER.get(kind["type"], ()):
        yield from _fields(kind[name], (*path, step))


def _rebuilt(kind: Json, path: Path, ids: Ids) -> Json:
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        fields = [
            {
                **field,
                "type": _rebuilt(field["type"], (*path, field["name"]), ids),
                "metadata": {**field.get("metadata", {}), _ID: ids[(*path, field["name"])], _PHYSICAL: field["name"]},
            }
            for field in kind["fields"]
        ]
        return {**kind, "fields": fields}
    return {**kind, **{name: _rebuilt(kind[name], (*path, step), ids) for name, step in _INNER[kind["type"]]}}


def _numbered(field: pa.Field, path: Path, ids: Ids) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_numbered(child, (*path, child.name), ids) for child in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_numbered(kind.value_field, (*path, "element"), ids))
    elif pa.types.is_map(kind):
        kind = pa.map_(
            _numbered(kind.key_field, (*path, "key"), ids), _numbered(kind.item_field, (*path, "value"), ids)
        )
    field = field.with_type(kind)
    return field.with_metadata({"PARQUET:field_id": str(ids[path])}) if path in ids else field
