"""The layout of a table, and the check that an existing table has it."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...conf.errors import SchemaError, TableError
from ...core.rows.key import NO_KEY, Key
from ...core.rows.system_column import SYSTEM
from ...core.rows.text import check_collations
from ...delta_format.column_mapping import Ids, check_mapping, ids_in, with_field_ids
from ...delta_format.latest_table import (
    BUCKET,
    BUCKETS_PROPERTY,
    GROUPS_PROPERTY,
    HISTORY_PROPERTY,
    KEY_PROPERTY,
    LAYOUT_PROPERTY,
    NULLS_PROPERTY,
    ORDERS,
    OWN_COLUMNS,
    SEQ,
    SEQUENCE_PROPERTY,
    TIME_PROPERTY,
)
from .history import ColumnGroup, History, NullRule, Part, PartialUpdates
from .key_names import KEYS, TIMES, check_key, column_named, is_decimal, shown_type, tree_of, type_of
from .options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType


Json = Any

_CHECK = "delta.constraints."
_INVARIANT, _GENERATED, _IDENTITY = "delta.invariants", "delta.generationExpression", "delta.identity."
_INNER = (("elementType", "containsNull", "elements"), ("valueType", "valueContainsNull", "values"))


def check_demands(metadata: Mapping[str, Any], location: str) -> None:
    """Refuse a table with constraints that this package does not evaluate, by its metadata; the error names each.

    Spark evaluates CHECK, NOT NULL, invariants, generated and identity columns in its own SQL; see
    docs/decisions/0012.
    """
    demands = demands_of(json.loads(metadata["schemaString"])["fields"], metadata["configuration"])
    if demands:
        raise TableError(
            f"the table at {location} has rules that this sink does not evaluate: {'; '.join(demands)}",
            expected="a table without constraints, columns that are NOT NULL, generated columns or identity columns",
            hint="drop the constraint (ALTER TABLE … DROP CONSTRAINT …) or the NOT NULL (ALTER TABLE … ALTER COLUMN … "
            "DROP NOT NULL). Then filter the rows before writing, with where. For a table of another program, use "
            "engine=merge: Spark's MERGE evaluates all rules",
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


_WHOLE = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def widens(narrow: Any, wide: Any) -> bool:
    """Return True if the wide type has every value of the narrow one, and readers of Parquet can widen it."""
    if narrow in _WHOLE and wide in _WHOLE:
        return _WHOLE.index(narrow) < _WHOLE.index(wide)
    if (narrow, wide) == ("float", "double"):
        return True
    one, other = (_DECIMAL.fullmatch(kind) if isinstance(kind, str) else None for kind in (narrow, wide))
    if one is None or other is None:
        return False
    (digits, scale), (more, more_scale) = (tuple(map(int, found.groups())) for found in (one, other))
    return scale == more_scale and more > digits  # with another scale Polars refuses the files from before


VERSION = "1"

_CHARS = re.compile(r"(var)?char\(\d+\)")

_ORDER = {"type": "struct", "fields": [
    {"name": name, "type": kind, "nullable": True, "metadata": {}}
    for name, kind in (("part", "string"), ("at", "long"), ("seq", "long"))
]}  # fmt: skip
_ORDERS_TYPE = {"type": "array", "elementType": _ORDER, "containsNull": True}


@dataclasses.dataclass(frozen=True)
class Layout:
    """The layout of the table that a query with these options and columns writes.

    The table has the user's columns and two or three of UpStream's own. ``_upstream_bucket`` (INT) is the partition:
    ``pmod(hash(key), buckets)`` as in Spark. ``_upstream_seq`` (BIGINT) is the row's arrival order, which
    decides between rows of one time. With partial updates, ``_upstream_orders`` has the order of each part that comes
    from another row. The table's properties record the layout.
    """

    key: Key  # the update key's columns or fields, spelled as in the schema
    time: str | None  # the event time's column, if it decides which of two rows is newer
    buckets: int
    fields: tuple[tuple[str, str], ...]  # name and type (JSON) of each of the user's columns
    progress_time: str | None = None  # the event time's column, in which punctuation counts; it need not decide
    history: History = History()  # noqa: RUF009 it is frozen
    delete_when: str | None = None  # the query's column that marks deletions; the table does not have it
    # column mapping ids; None without column mapping, as for all names that plain Delta admits
    ids: Ids | None = dataclasses.field(default=None, hash=False)
    sequence: Key = NO_KEY  # columns or fields that decide, in this order, which of two rows is newer
    partial: PartialUpdates = PartialUpdates()  # noqa: RUF009 it is frozen

    @classmethod
    def of(cls, options: SinkOptions, schema: StructType) -> Layout:
        """Return the layout for a DataFrame's schema; raise a SchemaError if no table can have it."""
        check_collations(schema)
        described: list[dict[str, Json]] = schema.jsonValue()["fields"]
        _check_case([field["name"] for field in described if field["name"] != SYSTEM])
        fields = {
            field["name"]: _delta_type(field["type"], field["name"]) for field in described if field["name"] != SYSTEM
        }
        deletes = None if options.delete_when is None else _mark(options.delete_when, fields)
        _check_names([name for name in fields if name != deletes])
        tree = tree_of(fields)
        key = options.key.resolved(tree)
        time = None if options.time is None else column_named(options.time, fields, "time")
        sequence = NO_KEY if options.by_arrival else options.sequence.resolved(tree, "sequenceBy")
        if deletes is not None and deletes in (*key.columns(fields), *sequence.columns(fields), time):
            raise SchemaError(
                f"deleteWhen names the column {deletes!r}, which is of the key, the sequence or the time",
                expected="a separate column for whether a row deletes its key: the table does not get it",
                hint="make one before writing",
            )
        for name in key:
            check_key(name, fields)
        for name in sequence:
            check_key(name, fields, "sequenceBy")
        if time is not None and not (isinstance(fields[time], str) and fields[time] in TIMES):
            raise SchemaError(
                f"the time column {time!r} is of type {shown_type(fields[time])}",
                expected="a timestamp, a date or a number",
                hint="cast it before writing, for example with to_timestamp; if the column is not a time but "
                "orders the rows, name it in the option sequenceBy",
            )
        decides = not options.by_arrival and options.history.count is not None and not sequence
        kept = tuple((name, json.dumps(kind)) for name, kind in fields.items() if name != deletes)
        layout = cls(
            key,
            time if decides else None,
            options.buckets if key else 1,
            kept,
            progress_time=time,
            history=options.history,
            delete_when=deletes,
            sequence=sequence,
        )
        if options.partial:
            partial = options.partial.resolved(dict(layout.types), layout.deciding)
            layout = dataclasses.replace(layout, partial=partial)
            layout.check_partial()
        return layout.numbered_in(None)

    @classmethod
    def recorded(cls, table: DeltaTable, location: str) -> Layout:
        """Return the layout that a table records; raise a TableError if this sink did not make the table."""
        properties = table.metadata().configuration
        if LAYOUT_PROPERTY not in properties:
            raise _foreign(location)
        check_mapping(json.loads(table.schema().to_json()), properties, location)
        history, time = History.parse(properties.get(HISTORY_PROPERTY, "latest")), properties.get(TIME_PROPERTY)
        return cls(
            Key(json.loads(properties[KEY_PROPERTY])),
            None if history.count is None else time,
            int(properties[BUCKETS_PROPERTY]),
            tuple((name, json.dumps(kind)) for name, kind in cls.columns_of(table).items() if name not in OWN_COLUMNS),
            time,
            history,
            sequence=Key(json.loads(properties.get(SEQUENCE_PROPERTY, "[]"))),
            partial=PartialUpdates(
                NullRule.parse(properties.get(NULLS_PROPERTY, "null")),
                ColumnGroup.parse(properties[GROUPS_PROPERTY]) if GROUPS_PROPERTY in properties else (),
            ),
        ).numbered_in(table)

    def numbered_in(self, table: DeltaTable | None) -> Layout:
        """Return the layout with the table's column mapping ids, present or new; None is a new table."""
        return dataclasses.replace(self, ids=ids_in(table, self.plain_schema()))

    def described(self) -> str:
        """Return the columns that the query writes, and the one that marks deletions, as text."""
        return json.dumps([self.fields, self.delete_when])

    def plain_schema(self) -> Json:
        """Return the table's schema in Delta's JSON, without the additions of column mapping."""
        fields = [(name, json.loads(kind)) for name, kind in self.fields]
        described = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in [*fields, *self.own_types.items()]
        ]
        return {"type": "struct", "fields": described}

    def arrow_schema(self) -> pa.Schema:
        """Return the schema of the data files: the user's columns and UpStream's own, without the bucket."""
        import pyarrow as pa
        from deltalake import Schema

        whole = pa.schema(Schema.from_json(json.dumps(self.plain_schema())).to_arrow())
        return pa.schema([field for field in whole if field.name != BUCKET])

    def file_schema(self) -> pa.Schema:
        """Return :meth:`arrow_schema` with the column mapping ids, if there are any."""
        return self.arrow_schema() if self.ids is None else with_field_ids(self.arrow_schema(), self.ids)

    @property
    def types(self) -> dict[str, Json]:
        """Return the types of the user's columns."""
        return {name: json.loads(kind) for name, kind in self.fields}

    @property
    def own_types(self) -> dict[str, Json]:
        """Return the types of UpStream's own columns."""
        orders = {ORDERS: _ORDERS_TYPE} if self.partial else {}
        return {SEQ: "long", **orders, BUCKET: "integer"}

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts of a row that are decided apart; none without partial updates."""
        return self.partial.parts([name for name, _ in self.fields], self.deciding) if self.partial else ()

    @property
    def groups_of_other_order(self) -> list[str]:
        """Return the columns that order groups by other values than whole rows: a deletion says nothing of these."""
        types = self.types
        (order,) = self.order
        wanted = _comparable(type_of(order, types))
        return [group.by for group in self.partial.groups if _comparable(types[group.by]) != wanted]

    def check_partial(self) -> None:
        """Refuse partial updates in an order other than a single number or time, or with deletions in another one."""
        kinds = [type_of(name, self.types) for name in self.order]
        if len(kinds) != 1 or not isinstance(kinds[0], str) or kinds[0] not in TIMES:
            raise SchemaError(
                f"nullMeans or columnGroups, and rows in the order of {', '.join(self.order)} "
                f"({', '.join(map(shown_type, kinds))})",
                expected="an order by one column of numbers, dates or timestamps: the table keeps it for each part",
                hint="name such a column in eventTime or sequenceBy, for example a log position as one number",
            )
        if self.delete_when is not None and (others := self.groups_of_other_order):
            raise SchemaError(
                f"deleteWhen, and columnGroups in the order of {', '.join(others)}, of another type than that of the "
                "rows",
                expected=f"columns that can be compared with {self.order.text}, by which deletions are ordered",
                hint=f"cast them to the type of {self.order.text}, or leave deleteWhen out",
            )

    @property
    def deciding(self) -> list[str]:
        """Return the file columns that decide which of two rows is newer: of key, order and arrival."""
        return list(dict.fromkeys([*self.key_columns, *self.order.columns(dict(self.fields)), SEQ]))

    @property
    def order(self) -> Key:
        """Return the columns or fields that decide before arrival: the sequence, or the time."""
        return self.sequence or Key(() if self.time is None else (self.time,))

    @property
    def key_types(self) -> list[pa.DataType]:
        from ...core.rows.columns import type_at

        return [type_at(self.file_schema(), name) for name in self.key]

    @property
    def key_columns(self) -> list[str]:
        """Return the columns that contain the key; a field's is its struct."""
        return self.key.columns(dict(self.fields))

    def properties(self) -> dict[str, str]:
        recorded = {LAYOUT_PROPERTY: VERSION, KEY_PROPERTY: json.dumps(list(self.key), ensure_ascii=False)}
        recorded[BUCKETS_PROPERTY] = str(self.buckets)
        # Where arrival decides, nobody is to take the time for what tells the newer row.
        if (time := self.time or (self.progress_time if self.history.count is None else None)) is not None:
            recorded[TIME_PROPERTY] = time
        if self.sequence:
            recorded[SEQUENCE_PROPERTY] = json.dumps(list(self.sequence), ensure_ascii=False)
        if not self.history.latest:
            recorded[HISTORY_PROPERTY] = str(self.history)
        if self.partial.nulls != NullRule():
            recorded[NULLS_PROPERTY] = str(self.partial.nulls)
        if self.partial.groups:
            recorded[GROUPS_PROPERTY] = "; ".join(map(str, self.partial.groups))
        return recorded

    def check(self, table: DeltaTable, location: str, *, merging: bool = False) -> None:
        """Refuse a table with another layout, or with a feature under which the sink cannot write.

        With `merging`, the table may lack columns and have narrower types.
        """
        self.check_metadata(metadata_of(table), location, merging=merging)

    def check_recorded(self, table: DeltaTable, location: str) -> None:
        """Refuse a table whose properties record another layout: they may change during the query."""
        metadata = metadata_of(table)
        self._check_properties(metadata["configuration"], metadata["partitionColumns"], location)
        check_demands(metadata, location)

    def check_metadata(self, metadata: Mapping[str, Any], location: str, *, merging: bool = False) -> None:
        """Refuse as :meth:`check` does, by the metadata in the table's log, without delta-rs."""
        schema, configuration = json.loads(metadata["schemaString"]), metadata["configuration"]
        self._check_properties(configuration, metadata["partitionColumns"], location)
        check_demands(metadata, location)
        check_mapping(schema, configuration, location)
        self._check_columns(_columns_in(schema["fields"]), location, merging=merging)

    def _check_properties(self, configuration: Mapping[str, str], divided: Sequence[str], location: str) -> None:
        recorded = {name: value for name, value in configuration.items() if name.startswith("upstream.")}
        if LAYOUT_PROPERTY not in recorded or list(divided) != [BUCKET]:
            raise _foreign(location)
        wanted = self.properties()
        hints = {
            LAYOUT_PROPERTY: "use the version of this package that wrote it, or give another path",
            KEY_PROPERTY: "set the option key to the table's, or give another path",
            TIME_PROPERTY: "set the options eventTime and sequenceBy to the table's, or give another path",
            SEQUENCE_PROPERTY: "set the option sequenceBy to the table's, or give another path",
            HISTORY_PROPERTY: "set the option history to the table's, or give another path; `upstream set-history` "
            "lets a table keep more or fewer rows of a key",
            NULLS_PROPERTY: "set the option nullMeans to the table's, or give another path",
            GROUPS_PROPERTY: "set the option columnGroups to the table's, or give another path",
            BUCKETS_PROPERTY: "leave the option buckets out, or set it to the table's; `upstream rebucket` gives a "
            "table another number",
        }
        for name, hint in hints.items():
            if recorded.get(name) != wanted.get(name):
                raise TableError(
                    f"the table at {location} has {name.partition('.')[2]} {recorded.get(name, 'unset')}, "
                    f"this query has {wanted.get(name, 'unset')}",
                    hint=hint,
                )

    @staticmethod
    def columns_of(table: DeltaTable) -> dict[str, Json]:
        """Return a table's column types by name, as in :meth:`plain_schema`."""
        return _columns_in(json.loads(table.schema().to_json())["fields"])

    def _check_columns(self, present: Mapping[str, Json], location: str, *, merging: bool) -> None:
        wanted = self.types | self.own_types
        problems = [f"{name} is missing from the query" for name in present if name not in wanted]
        if merging:
            _check_case([name for name, _ in self.fields])
        else:
            problems += [f"{name} is not in the table" for name in wanted if name not in present]
        problems += [
            f"{name} is {shown_type(present[name])} in the table and {shown_type(kind)} in the query"
            for name, kind in wanted.items()
            if name in present
            and present[name] != kind
            # A key of another type has another hash, and lies in another bucket.
            and not (merging and name not in self.key_columns and widens(present[name], kind))
        ]
        if problems:
            evolves = not merging and all(
                present[name] == kind
                or (name not in self.key_columns and (widens(present[name], kind) or widens(kind, present[name])))
                for name, kind in wanted.items()
                if name in present
            )
            raise SchemaError(
                f"the columns do not fit the table at {location}: {'; '.join(problems)}",
                hint="select and cast the query's columns to the table's, or give another path"
                + ("; schemaEvolution=add takes new and wider ones, and nulls for those that are missing" * evolves),
            )


def _comparable(kind: Json) -> Json:
    """Return one type for all whole numbers, and one for all floating-point numbers."""
    return "long" if kind in _WHOLE else "double" if kind == "float" else kind


def _columns_in(fields: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    return {field["name"]: _delta_type(field["type"], field["name"]) for field in fields}


def _foreign(location: str) -> TableError:
    return TableError(
        f"the Delta table at {location} was not made by this sink",
        expected=f"a table partitioned by {BUCKET} with the property {LAYOUT_PROPERTY}, or nothing at all",
        hint="give another path. To copy its rows, read it as a batch and write them once by upstream.write_batch. To "
        "update this table itself, write with engine=merge",
    )


def metadata_of(table: DeltaTable) -> dict[str, Any]:
    """Return the metadata of a loaded table in the form of a log entry."""
    found = table.metadata()
    return {
        "schemaString": table.schema().to_json(),
        "partitionColumns": found.partition_columns,
        "configuration": found.configuration,
    }


def _check_case(names: Sequence[str], within: str = "") -> None:
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name.lower(), []).append(name)
    twice = [found for found in alike.values() if len(found) > 1]
    if not twice:
        return
    repeated = [
        f"{found[0]!r} occurs {len(found)} times"
        if len(set(found)) == 1
        else f"{' and '.join(map(repr, found))} differ in case alone"
        for found in twice
    ]
    raise SchemaError(
        f"among the {'fields' if within else 'columns'}{within} {'; '.join(repeated)}",
        expected="names that differ in more than case: readers of Delta, Spark among them, take them for one",
        hint="rename all but one: in the source's option select (--select on the command line), or by their places, "
        "with .toDF(…)",
    )


def _check_names(names: Sequence[str]) -> None:
    ours = [name for name in names if name.lower().startswith(SYSTEM)]
    if ours:
        raise SchemaError(
            f"{', '.join(ours)}: names that begin with {SYSTEM} are the sink's own",
            hint="drop or rename these columns before writing",
        )


def _mark(name: str, fields: dict[str, Json]) -> str:
    """Return the column that marks deletions; refuse one that is not boolean."""
    found = column_named(name, fields, "deleteWhen")
    if fields[found] != "boolean":
        raise SchemaError(
            f"deleteWhen names the column {found!r}, which is of type {shown_type(fields[found])}",
            expected="a column of booleans, or, through upstream.write_latest and upstream.write_batch, a condition",
            hint="make one before writing, for example .withColumn('gone', F.col('op') == 'D')",
        )
    return found


def _delta_type(kind: Json, name: str) -> Json:
    """Return a Spark type as the table has it: all parts may be null and have no metadata."""
    if isinstance(kind, str):
        if kind in KEYS or is_decimal(kind):
            return kind.replace(" ", "")
        if _CHARS.fullmatch(kind):
            return "string"
    elif kind["type"] == "struct":
        _check_case([field["name"] for field in kind["fields"]], f" of the column {name!r}")
        fields: list[dict[str, Json]] = [
            {
                "name": field["name"],
                "type": _delta_type(field["type"], f"{name}.{field['name']}"),
                "nullable": True,
                "metadata": {},
            }
            for field in kind["fields"]
        ]
        return {"type": "struct", "fields": fields}
    elif kind["type"] == "array":
        return {"type": "array", "elementType": _delta_type(kind["elementType"], name), "containsNull": True}
    elif kind["type"] == "map":
        value = _delta_type(kind["valueType"], name)
        return {
            "type": "map",
            "keyType": _delta_type(kind["keyType"], name),
            "valueType": value,
            "valueContainsNull": True,
        }
    raise SchemaError(
        f"the column {name!r} is of type {shown_type(kind)}, which a plain Delta table cannot hold",
        hint="cast it, for example to string, or drop it before writing",
    )


_LEAST = 16
# Now and then one bucket is rewritten as a whole: a second's work.
_KEYS_IN_BUCKET = 500_000
_TOO_MANY = 1_000_000


def buckets_for(keys: int | None) -> int:
    """Return the number of buckets for a new table of so many keys; 16 if the number is unknown."""
    return max(_LEAST, -(-(keys or 0) // _KEYS_IN_BUCKET))


def buckets_outgrown(rows: int, buckets: int) -> int | None:
    """Return the number of buckets that suits a table of so many rows better; None if it has enough."""
    return buckets_for(rows) if rows > buckets * _TOO_MANY else None
