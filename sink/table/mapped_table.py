"""Tables made and changed by our own log entries, if delta-rs (1.6.6) cannot: under column mapping."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...conf.errors import TableError
from ...delta_format import latest_table
from ...delta_format.column_mapping import (
    Ids,
    ids_of,
    last_id,
    mapped,
    mapping_properties,
    mapping_protocol,
    plain_protocol,
)
from ...delta_format.log import LogReplay, entry_place
from ..spec.layout import widens
from .log_entry import VECTORS_ENABLED, commit_stamp, put_entry, with_features, with_vectors

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..spec.layout import Layout
    from ..spec.options import SinkTarget


Json = Any

_OF_LAYOUT = {
    latest_table.LAYOUT_PROPERTY,
    latest_table.KEY_PROPERTY,
    latest_table.HISTORY_PROPERTY,
    latest_table.TIME_PROPERTY,
    latest_table.SEQUENCE_PROPERTY,
    latest_table.BUCKETS_PROPERTY,
    latest_table.NULLS_PROPERTY,
    latest_table.GROUPS_PROPERTY,
    latest_table.ROW_KEY_PROPERTY,
}


def check_place(target: SinkTarget) -> None:
    """Refuse, before the first batch, a place where :func:`make_table` cannot make a table."""
    refusal = target.folder.puts_refused()
    if refusal is not None:
        raise type(refusal)(
            f"the table at {target.location} would have names that plain Delta does not admit, and begin with a log "
            f"entry of our own; but {refusal.problem}",
            expected=refusal.expected,
            hint="rename the columns before writing, with withColumnRenamed; or " + refusal.hint.partition(";")[0],
        )


def make_table(
    target: SinkTarget,
    schema: Json,
    ids: Ids | None,
    partition_by: Sequence[str],
    configuration: Mapping[str, str],
    *,
    vectors: bool = False,
) -> bool:
    """Make a table by our own log entry; return False if there is one already.

    `ids` are column mapping ids; None maps no column. `vectors` admits deletion vectors; delta-rs (1.6.6) would
    also name another feature, which is not wanted.
    """
    actions = first_actions(target, schema, ids, partition_by, configuration, vectors=vectors)
    made = put_entry(target.folder, 0, {"operation": "CREATE TABLE"}, actions)
    target.folder.sync([entry_place(0)] if made else [])  # with the folders that were made for it
    return made


def first_actions(
    target: SinkTarget,
    schema: Json,
    ids: Ids | None,
    partition_by: Sequence[str],
    configuration: Mapping[str, str],
    *,
    vectors: bool = False,
) -> list[dict[str, Json]]:
    """Return the actions that make a table, and make the folder for its log; see :func:`make_table`."""
    described = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _text(schema if ids is None else mapped(schema, ids)),
        "partitionColumns": list(partition_by),
        "configuration": {
            **configuration,
            **({} if ids is None else mapping_properties(ids)),
            **({VECTORS_ENABLED: "true"} if vectors else {}),
        },
        "createdTime": int(time.time() * 1000),
    }
    if target.is_local:
        os.makedirs(os.path.dirname(os.path.join(target.location, entry_place(0))), exist_ok=True)
    protocol = plain_protocol(schema) if ids is None else mapping_protocol(schema)
    assert protocol is not None, "a new table has none yet"
    protocol = with_vectors(protocol) or protocol if vectors else protocol
    return [{"protocol": protocol}, {"metaData": described}]


def replacing_actions(
    log: LogReplay, schema: Json, ids: Ids | None, configuration: Mapping[str, str]
) -> list[dict[str, Json]]:
    """Return the actions that give a table other columns and properties when all of its files are replaced.

    `ids` are None only if the table has no column mapping. Properties that are not of the layout stay.
    """
    before = log.metadata["configuration"]
    kept = {name: value for name, value in before.items() if name not in _OF_LAYOUT}
    return _changing(log, schema, ids, {**kept, **configuration})


def change_columns(target: SinkTarget, table: DeltaTable, schema: Json, ids: Ids | None) -> bool:
    """Give a table new columns and the protocol that they need; return False if another writer took the version.

    `schema` has the table's columns, then new ones; its files have the columns under their own names. `ids` are
    the column mapping ids of all. delta-rs (1.6.6) widens types without the protocol that they need.
    """
    version, log = table.version(), LogReplay(target.folder)
    log.follow(version)
    if ids is not None:
        _check_dropped(target, log, schema)
    info = {"operation": "CHANGE COLUMNS", **commit_stamp(log, target.folder)}
    return put_entry(target.folder, version + 1, info, _changing(log, schema, ids, log.metadata["configuration"]))


def _changing(log: LogReplay, schema: Json, ids: Ids | None, properties: Mapping[str, str]) -> list[dict[str, Json]]:
    """Return the actions that set a table's columns and properties, with the protocol that they need."""
    if ids is not None:
        properties = {**properties, **mapping_properties(ids, last_id(log.metadata["configuration"]))}
        schema = mapped(schema, ids)
    protocol = raised_protocol(schema, log.protocol) or log.protocol
    if ids is not None:
        protocol = mapping_protocol(schema, protocol) or protocol
    changed = {"metaData": {**log.metadata, "schemaString": _text(schema), "configuration": properties}}
    return [changed] if protocol == log.protocol else [{"protocol": protocol}, changed]


def raised_protocol(schema: Json, protocol: Mapping[str, Json]) -> dict[str, Json] | None:
    """Return the protocol with the features that a schema's types need; None if it has them."""
    return with_features(protocol, plain_protocol(schema).get("writerFeatures", ()))


def _check_dropped(target: SinkTarget, log: LogReplay, schema: Json) -> None:
    """Refuse a new column with the name of a dropped one: the old values in the files would come back."""
    before = json.loads(log.metadata["schemaString"])
    if last_id(log.metadata["configuration"]) <= len(ids_of(before)):
        return  # none was dropped
    import pyarrow.parquet as pq

    new = {field["name"] for field in schema["fields"]} - {field["name"] for field in before["fields"]}
    for path in log.files:
        where, filesystem = target.folder.place(path)
        if found := new & set(pq.read_schema(where, filesystem=filesystem).names):
            raise TableError(
                f"the table at {target.location} had a column {', '.join(sorted(found))}, which was dropped, and its "
                "files have it still",
                expected="new columns under names that no file has: a dropped column's values would come back",
                hint="write the column under another name, or let Spark rewrite the files: REORG TABLE "
                f"delta.`{target.location}` APPLY (PURGE)",
            )


def _text(schema: Json) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def with_table_columns(layout: Layout, table: DeltaTable) -> Layout:
    """Return the layout with the table's columns, then the query's new ones, each of the wider type if one widens."""
    held = {name: kind for name, kind in layout.columns_of(table).items() if name not in latest_table.OWN_COLUMNS}
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
                raise _unchangeable(target, f"another program has written version {table.version() + 1}")
            return True
        # An overwrite of no bucket: of deltalake's ways to commit the one that takes a schema.
        table.create_write_transaction(
            [],
            "overwrite",
            Schema.from_json(json.dumps(described)),
            [latest_table.BUCKET],
            [(latest_table.BUCKET, "in", ["-1"])],
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
        expected="one query writing to the table at a time, in a writable folder",
        hint="restart the query; it looks at the table again",
    )
