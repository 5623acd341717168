"""The shape of a feed's rows as read and as they leave; the inferred schema, kept for a checkpoint's life."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..conf.column_names import resolved
from ..conf.errors import CheckpointError, SchemaError
from ..core.feedback.checkpoint_layout import OWN_SCHEMA
from ..core.rows.columns import tree_of, type_at
from ..core.rows.event_times import check_time_type, is_pattern
from ..core.rows.key import BY_ARRIVAL, NO_KEY, Key
from ..core.rows.system_column import SYSTEM, SYSTEM_TYPE, TIMESTAMP, with_system_ddl
from ..core.rows.text import check_collations
from ..storage.atomic_write import write_whole
from ..storage.folder import TableFolder

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .options import SourceOptions


# Metadata of the system column, which Spark hands on and the checkpoint records with the schema.
_FEED, _FEED_KEY, _FEED_TIME = "upstream.feed", "upstream.key", "upstream.event_time"


@dataclasses.dataclass(frozen=True)
class FeedShape:
    """The schemas of rows as they are read and as they leave."""

    rows: pa.Schema  # requested from the connector
    leaving: pa.Schema  # for Spark: the user's columns and the system column
    stamped: bool  # the time column is filled with the arrival, not read (`watermark=arrival`)

    @property
    def user(self) -> pa.Schema:
        """The columns that leave, without the system column."""
        return pa.schema([field for field in self.leaving if field.name != SYSTEM])


def leaving_schema(inferred: pa.Schema, options: SourceOptions) -> StructType:
    """Return the source's schema in Spark's terms, from the schema that a connector inferred."""
    from pyspark.sql.pandas.types import from_arrow_schema

    options = _with_time(options, inferred.names)
    fields = [pa.field(field.name, _leaving_type(field, options)) for field in inferred]
    if options.progress == "arrival" and options.time is not None:
        if options.time in inferred.names:
            raise SchemaError(
                f"watermark=arrival stamps rows on entry, but the data has a column {options.time!r} already",
                hint="name a new column as `eventTime`, or use a policy for times that the data brings, such as "
                "bounded",
            )
        fields.append(pa.field(options.time, TIMESTAMP))
    fields.append(pa.field(SYSTEM, SYSTEM_TYPE))
    _check(pa.schema(fields), options)
    return from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=False)


def with_feed(schema: StructType, feed: pa.Schema | None, key: Sequence[str], event_time: str | None) -> StructType:
    """Return the source's schema, with metadata: the feed's own, which `select` reads, its key and its event time."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    noted: dict[str, Any] = {_FEED_KEY: list(key)} if key else {}
    noted |= {_FEED_TIME: event_time} if event_time is not None else {}
    if feed is not None:
        noted[_FEED] = from_arrow_schema(feed, prefer_timestamp_ntz=True).json()
    return StructType(
        [
            StructField(field.name, field.dataType, field.nullable, noted if field.name == SYSTEM else field.metadata)
            for field in schema.fields
        ]
    )


def feed_schema(schema: StructType) -> pa.Schema | None:
    """Return the feed's own schema that :func:`with_feed` has added; None if there is none."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    noted = schema[SYSTEM].metadata.get(_FEED) if SYSTEM in schema.names else None
    return None if noted is None else to_arrow_schema(StructType.fromJson(json.loads(noted)), timezone="UTC")


def feed_key(schema: StructType) -> Key:
    """Return the update key that the feed names; no columns if it names none."""
    return Key(schema[SYSTEM].metadata.get(_FEED_KEY, ()) if SYSTEM in schema.names else ())


def feed_time(schema: StructType) -> str | None:
    """Return the event time that the feed names; None if it names none."""
    return schema[SYSTEM].metadata.get(_FEED_TIME) if SYSTEM in schema.names else None


def shape_of(schema: StructType, options: SourceOptions) -> FeedShape:
    """Return how to read rows that leave as `schema`; raise SchemaError for an absent or unfit column."""
    from pyspark.sql.pandas.types import to_arrow_schema

    check_collations(schema)
    arrow = to_arrow_schema(schema, timezone="UTC")
    if SYSTEM not in arrow.names:
        raise SchemaError(
            f"the schema given with readStream.schema(…) has no column {SYSTEM!r}, which every row of this source "
            "carries",
            hint='give the schema as an option instead, .option("schema", "a INT, b STRING"), or append the column: '
            '.schema(upstream.with_system_ddl("a INT, b STRING"))',
        )
    if not arrow.field(SYSTEM).type.equals(SYSTEM_TYPE):
        raise SchemaError(
            f"the column {SYSTEM!r} has another type than the source gives it", expected=with_system_ddl("…")
        )
    options = _with_time(options, arrow.names)
    _check(arrow, options)
    stamped = options.progress == "arrival"
    rows: list[pa.Field] = []
    for field in arrow:
        if field.name == SYSTEM or (stamped and field.name == options.time):
            continue
        text = field.name == options.time and is_pattern(options.time_format)
        rows.append(pa.field(field.name, pa.string() if text else field.type))
    return FeedShape(pa.schema(rows), arrow, stamped)


def with_columns(options: SourceOptions, shape: FeedShape) -> SourceOptions:
    """Return the options, with key, sequence and event time spelled as the columns and fields that they mean."""
    options = _with_time(options, shape.leaving.names)
    return dataclasses.replace(options, key=_key(shape.leaving, options), sequence=_order(shape.leaving, options))


def _with_time(options: SourceOptions, columns: Sequence[str]) -> SourceOptions:
    found = None if options.time is None else resolved(options.time, dict.fromkeys(columns))
    return options if found is None or len(found) != 1 else dataclasses.replace(options, time=found[0])


def _leaving_type(field: pa.Field, options: SourceOptions) -> pa.DataType:
    dtype = field.type
    if field.name == options.time:
        check_time_type(field.name, dtype, options.time_format)
        if pa.types.is_string(dtype):
            return TIMESTAMP
    if pa.types.is_timestamp(dtype):
        return TIMESTAMP
    return dtype


def _check(arrow: pa.Schema, options: SourceOptions) -> None:
    names = [name for name in arrow.names if name != SYSTEM]
    key = _key(arrow, options)
    if options.time is not None and options.time not in names:
        raise SchemaError(
            f"the event time's column {options.time!r} is not among the columns {', '.join(names)}",
            expected="one of these",
            hint="correct event_time",
        )
    if options.time is not None and not is_pattern(options.time_format):
        check_time_type(options.time, arrow.field(options.time).type, options.time_format)
    order = _order(arrow, options)
    for role, paths in (("key", key), ("sequenceBy", NO_KEY if order == BY_ARRIVAL else order)):
        for name in paths:
            dtype = type_at(arrow, name)
            if pa.types.is_list(dtype) or pa.types.is_map(dtype):
                raise SchemaError(f"the {role} column {name!r} is of type {dtype}", expected="a type that is compared")


def _order(arrow: pa.Schema, options: SourceOptions) -> Key:
    """Return the columns and fields of the option `sequenceBy`."""
    return options.sequence if options.sequence == BY_ARRIVAL else _paths(arrow, options.sequence, "sequenceBy")


def _key(arrow: pa.Schema, options: SourceOptions) -> Key:
    """Return the columns and fields of the option `key`."""
    key = _paths(arrow, options.key, "key")
    inside = key.fields(arrow.names)
    if inside and options.progress == "embedded":
        raise SchemaError(
            f"watermark=embedded with a key that is a field of a column: {inside[0]}",
            expected="a key of columns: where all others are null, a row is punctuation",
            hint="make a column of the field before, or choose another policy",
        )
    return key


def _paths(arrow: pa.Schema, names: Key, role: str) -> Key:
    return names.resolved(tree_of(arrow.remove(arrow.get_field_index(SYSTEM))), role)


# Where rows come from, and what becomes of their time. The rest may change while a checkpoint lives.
_NAMING = (
    "connector",
    "path",
    "paths",
    "pathglobfilter",
    "subscribe",
    "subscribepattern",
    "assign",
    "eventtime",
    "watermark",
    "select",
    "selectduplicates",
)


def schema_name(given: Mapping[str, str]) -> str:
    """Return the name of the record of a source's schema."""
    return f"{OWN_SCHEMA}{record_id(given)}.json"


def record_id(given: Mapping[str, str]) -> str:
    """Return an id that distinguishes a source's records from those of the query's other sources."""
    lowered = {name.lower(): value for name, value in given.items()}
    named = [[name, lowered[name]] for name in _NAMING if name in lowered]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16]


def recorded_schema(checkpoint: TableFolder | None, name: str) -> StructType | None:
    """Return the schema that a source's first run inferred, or None; raise CheckpointError if it is unreadable."""
    if checkpoint is None:
        return None
    from pyspark.sql.types import StructType

    try:
        with checkpoint.guarded():
            return StructType.fromJson(json.loads(checkpoint.read(name)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"the recorded schema {checkpoint.location}/{name} cannot be read: {error}",
            hint="restore the file, or give the option `schema`",
        ) from error


def keep_schema(checkpoint: TableFolder | None, name: str, schema: StructType) -> None:
    """Record a source's schema, atomically."""
    if checkpoint is not None:
        with checkpoint.guarded():
            write_whole(checkpoint, name, lambda stream: stream.write(schema.json().encode()))
