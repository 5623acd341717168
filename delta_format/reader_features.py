"""The demands that a Delta table makes on its readers, and those that this package meets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..conf.errors import TableError
from .column_mapping import kinds_in

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["check_readable"]

_VARIANTS = {"variantType", "variantType-preview"}  # without such a column they demand nothing
_READ = _VARIANTS | {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}


def check_readable(table: DeltaTable) -> None:
    """Refuse a table that this package would misread; the error names the feature or the column."""
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    unknown = sorted(features - _READ)
    if protocol.min_reader_version > 3:
        unknown.append(f"version {protocol.min_reader_version} of the reader's protocol")
    if {"deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"} <= features:
        unknown.append("deletionVectors with v2Checkpoint and vacuumProtocolCheck together")
    if unknown:
        raise TableError(
            f"the table at {table.table_uri} needs a reader that knows {', '.join(unknown)}",
            expected=f"no reader features but {', '.join(sorted(_READ - _VARIANTS))}",
            hint="drop it from Spark (ALTER TABLE … DROP FEATURE …), or write the rows to another table",
        )
    fields = json.loads(table.schema().to_json())["fields"]
    variants = [field["name"] for field in fields if "variant" in kinds_in(field["type"])]
    if variants:
        raise TableError(
            f"the table at {table.table_uri} has columns of type VARIANT: {', '.join(variants)}",
            expected="columns of types that Arrow has",
            hint="write the rows to another table with the columns as text: to_json(…)",
        )
