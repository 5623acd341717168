"""``mergeSchema``: the table gets the query's new columns and wider types, and the query gets nulls."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from ...conf.errors import TableError
from ...delta_format.latest_table import BUCKET, SEQ
from ..spec.type_widening import widens
from .mapped_table import change_columns, raised_protocol

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..spec.layout import Layout
    from ..spec.options import SinkTarget

__all__ = ["change_schema", "with_table_columns"]

Json = Any


def with_table_columns(layout: Layout, table: DeltaTable) -> Layout:
    """Return the layout with the columns that the table will have: its own, then the query's new ones.

    Of two types, the wider one counts. If neither widens to the other, the query's stays, and
    :meth:`.Layout.check` refuses it.
    """
    held = {name: kind for name, kind in layout.columns_of(table).items() if name not in (SEQ, BUCKET)}
    wanted = {name: json.loads(kind) for name, kind in layout.fields}
    merged = {**held, **wanted}
    for name in set(held) & set(wanted) - set(layout.key_columns):
        if widens(wanted[name], held[name]):
            merged[name] = held[name]
    return dataclasses.replace(layout, fields=tuple((name, json.dumps(kind)) for name, kind in merged.items()))


def change_schema(target: SinkTarget, layout: Layout, table: DeltaTable) -> bool:
    """Give the table the layout's columns, if it has others; return True if it was changed.

    Only the log changes. Older files have narrower values or lack the column; every reader tested widens and
    fills them (docs/decisions/0012). The sink does so when it next writes their bucket.
    """
    from deltalake import CommitProperties, Schema
    from deltalake.exceptions import DeltaError

    held = layout.columns_of(table)
    wanted = {name: json.loads(kind) for name, kind in layout.fields}
    if all(held.get(name) == kind for name, kind in wanted.items()):
        return False
    described = json.loads(table.schema().to_json())
    for field in described["fields"]:
        if held[field["name"]] != wanted.get(field["name"], held[field["name"]]):
            field["type"] = wanted[field["name"]]
    described["fields"] += [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in wanted.items()
        if name not in held
    ]
    try:
        if layout.ids is not None or raised_protocol(described, _numbers(table)) is not None:
            # delta-rs (1.6.6) would leave the protocol as it is, and no reader open the table.
            if not change_columns(target, table, described, layout.ids):
                raise _unchangeable(target, f"somebody else has written version {table.version() + 1}")
            return True
        # An overwrite of no bucket: of deltalake's ways to commit the one that takes a schema.
        table.create_write_transaction(
            [],
            "overwrite",
            Schema.from_json(json.dumps(described)),
            [BUCKET],
            [(BUCKET, "in", ["-1"])],
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except (DeltaError, OSError) as error:
        raise _unchangeable(target, error) from error
    return True


def _numbers(table: DeltaTable) -> dict[str, Any]:
    found = table.protocol()
    return {
        "minReaderVersion": found.min_reader_version,
        "minWriterVersion": found.min_writer_version,
        "readerFeatures": found.reader_features,
        "writerFeatures": found.writer_features,
    }


def _unchangeable(target: SinkTarget, why: object) -> TableError:
    return TableError(
        f"the columns of the table at {target.location} cannot be changed: {target.masked(why)}",
        expected="one query writing to the table at a time, in a folder that may be written to",
        hint="restart the query; it looks at the table again",
    )
