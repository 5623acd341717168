"""How the table is laid out, and whether an existing one fits.

The table has the user's columns as they are, and two of ours: ``_upstream_bucket`` (INT, the partition: ``pmod(hash(key), buckets)``
as Spark computes it) and ``_upstream_seq`` (BIGINT, the arrival order of the row within its feed, which decides between rows of
one time). Its properties record the layout.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..conf.errors import SchemaError, TableError
from ..frames.latest_table import (
    BUCKET,
    BUCKETS_PROPERTY,
    KEEP_PROPERTY,
    KEY_PROPERTY,
    LAYOUT_PROPERTY,
    SEQ,
    TIME_PROPERTY,
)
from ..frames.system import SYSTEM
from .keeping import Keep
from .options import SinkOptions
from .schema_changes import widens

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

__all__ = ["Layout"]

VERSION = "1"

_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
_DECIMAL = re.compile(r"decimal\(\d+,\s*-?\d+\)")
_CHARS = re.compile(r"(var)?char\(\d+\)")
_WHOLE = {"byte", "short", "integer", "long"}
_TIMES = _WHOLE | {"date", "timestamp", "timestamp_ntz", "float", "double"}
_KEYS = _TIMES | {"boolean", "string", "binary"}

Json = Any


@dataclasses.dataclass(frozen=True)
class Layout:
    """The table that a query with these options and columns writes.

    Attributes
    ----------
    key : tuple of str
        The update key's columns, as they are spelled in the schema.
    time : str or None
        The event time's column, if it decides which of two rows is newer; else arrival does, or nothing is compared.
    buckets : int
        How many partitions.
    fields : tuple of (str, str)
        Name and type (JSON) of each of the user's columns.
    progress_time : str or None
        The event time's column, in whose terms punctuation says how far feeds are complete, whether it decides or not.
    keep : Keep
        What of each key is kept.
    delete_when : str or None
        The query's column that marks deletions; the table does not have it.
    """

    key: tuple[str, ...]
    time: str | None
    buckets: int
    fields: tuple[tuple[str, str], ...]
    progress_time: str | None = None
    keep: Keep = Keep()  # noqa: RUF009 it is frozen
    delete_when: str | None = None

    @classmethod
    def of(cls, options: SinkOptions, schema: StructType) -> Layout:
        """The layout for a DataFrame's schema.

        Raises
        ------
        SchemaError
            A column has a name or type that the table cannot hold, or the key or the time is absent or of an unfit type.
        """
        described: list[dict[str, Json]] = schema.jsonValue()["fields"]
        fields = {
            field["name"]: _delta_type(field["type"], field["name"]) for field in described if field["name"] != SYSTEM
        }
        count = len(described) - any(field["name"] == SYSTEM for field in described)
        deletes = None if options.delete_when is None else _mark(options.delete_when, fields)
        _check_names([name for name in fields if name != deletes], count - (deletes is not None))
        key = tuple(_resolve(name, fields, "key") for name in options.key)
        time = None if options.time is None else _resolve(options.time, fields, "time")
        if deletes is not None and deletes in (*key, time):
            raise SchemaError(
                f"deleteWhen names the column {deletes!r}, which is of the key or the time",
                expected="a column that says nothing but whether a row deletes its key: the table does not have it",
                hint="make one before writing",
            )
        for name in key:
            _check_key_type(name, fields[name])
        if time is not None and fields[time] not in _TIMES:
            raise SchemaError(
                f"the time column {time!r} is of type {_shown(fields[time])}",
                expected="a timestamp, a date or a number",
                hint="cast it before writing, for example with to_timestamp",
            )
        decides = options.guard != "arrival" and options.keep.count is not None
        kept = tuple((name, json.dumps(kind)) for name, kind in fields.items() if name != deletes)
        return cls(
            key,
            time if decides else None,
            options.buckets if key else 1,
            kept,
            progress_time=time,
            keep=options.keep,
            delete_when=deletes,
        )

    @classmethod
    def recorded(cls, table: DeltaTable, location: str) -> Layout:
        """The layout that a table says it has.

        Raises
        ------
        TableError
            It was not made by this sink.
        """
        properties = table.metadata().configuration
        if LAYOUT_PROPERTY not in properties:
            raise _foreign(location)
        described: list[dict[str, Json]] = json.loads(table.schema().to_json())["fields"]
        keep, time = Keep.parse(properties.get(KEEP_PROPERTY, "latest")), properties.get(TIME_PROPERTY)
        return cls(
            tuple(json.loads(properties[KEY_PROPERTY])),
            None if keep.count is None else time,
            int(properties[BUCKETS_PROPERTY]),
            tuple(
                (field["name"], json.dumps(field["type"])) for field in described if field["name"] not in (SEQ, BUCKET)
            ),
            time,
            keep,
        )

    def delta_schema(self) -> str:
        """The table's schema in the JSON that Spark and Delta share."""
        fields = [(name, json.loads(kind)) for name, kind in self.fields]
        described = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in [*fields, (SEQ, "long"), (BUCKET, "integer")]
        ]
        return json.dumps({"type": "struct", "fields": described})

    def arrow_schema(self) -> pa.Schema:
        """The schema of the data files: the user's columns and `_upstream_seq`."""
        import pyarrow as pa
        from deltalake import Schema

        whole = pa.schema(Schema.from_json(self.delta_schema()).to_arrow())
        return pa.schema([field for field in whole if field.name != BUCKET])

    @property
    def deciding(self) -> list[str]:
        """The columns of a data file that decide which of two rows is newer: the key, the time, `_upstream_seq`."""
        time = [] if self.time is None or self.time in self.key else [self.time]
        return [*self.key, *time, SEQ]

    def properties(self) -> dict[str, str]:
        """The table properties that record the layout."""
        recorded = {LAYOUT_PROPERTY: VERSION, KEY_PROPERTY: json.dumps(list(self.key), ensure_ascii=False)}
        recorded[BUCKETS_PROPERTY] = str(self.buckets)
        # Where arrival decides, nobody is to take the time for what tells the newer row.
        if (time := self.time or (self.progress_time if self.keep.count is None else None)) is not None:
            recorded[TIME_PROPERTY] = time
        if not self.keep.latest:
            recorded[KEEP_PROPERTY] = str(self.keep)
        return recorded

    def check(self, table: DeltaTable, location: str, *, merging: bool = False) -> None:
        """Refuse a table that was laid out otherwise.

        Parameters
        ----------
        table, location
            The table, and where it lies.
        merging
            Whether it may lack columns, and have narrower types.

        Raises
        ------
        TableError
            It is not one of ours, or its key, time or buckets differ, or it uses a feature that the sink cannot write under.
        SchemaError
            Its columns or their types differ.
        """
        self.check_recorded(table, location)
        self._check_features(table, location)
        self._check_columns(table, location, merging=merging)

    def check_recorded(self, table: DeltaTable, location: str) -> None:
        """Refuse a table that says of itself that it is laid out otherwise: what may change while it is being written.

        Raises
        ------
        TableError
            It is not one of ours, or its key, time, buckets or what it keeps differ.
        """
        meta = table.metadata()
        recorded = {name: value for name, value in meta.configuration.items() if name.startswith("upstream.")}
        if LAYOUT_PROPERTY not in recorded or list(meta.partition_columns) != [BUCKET]:
            raise _foreign(location)
        wanted = self.properties()
        hints = {
            LAYOUT_PROPERTY: "use the version of this package that wrote it, or give another path",
            KEY_PROPERTY: "set the option key to the table's, or give another path",
            TIME_PROPERTY: "set the options time and guard to the table's, or give another path",
            KEEP_PROPERTY: "set the option keep to the table's, or give another path; `upstream keep` lets a table keep more or fewer rows of a key",
            BUCKETS_PROPERTY: "leave the option buckets out, or set it to the table's; `upstream rebucket` gives a table another number",
        }
        for name, hint in hints.items():
            if recorded.get(name) != wanted.get(name):
                raise TableError(
                    f"the table at {location} has {name.partition('.')[2]} {recorded.get(name, 'unset')}, "
                    f"this query has {wanted.get(name, 'unset')}",
                    hint=hint,
                )

    def _check_features(self, table: DeltaTable, location: str) -> None:
        protocol = table.protocol()
        if protocol.min_reader_version == 2 or "columnMapping" in (protocol.reader_features or ()):
            raise TableError(
                f"the table at {location} uses columnMapping (renamed columns), under which buckets cannot be rewritten",
                hint="write to another path",
            )

    @staticmethod
    def columns_of(table: DeltaTable) -> dict[str, Json]:
        """The names and types of a table's columns, as :meth:`delta_schema` has them."""
        described: list[dict[str, Json]] = json.loads(table.schema().to_json())["fields"]
        return {field["name"]: _delta_type(field["type"], field["name"]) for field in described}

    def _check_columns(self, table: DeltaTable, location: str, *, merging: bool) -> None:
        present = self.columns_of(table)
        wanted: dict[str, Json] = {name: json.loads(kind) for name, kind in self.fields} | {
            SEQ: "long",
            BUCKET: "integer",
        }
        problems = [f"{name} is missing from the query" for name in present if name not in wanted]
        if merging:
            _check_names([name for name, _ in self.fields], len(self.fields))
        else:
            problems += [f"{name} is not in the table" for name in wanted if name not in present]
        problems += [
            f"{name} is {_shown(present[name])} in the table and {_shown(kind)} in the query"
            for name, kind in wanted.items()
            if name in present
            and present[name] != kind
            # A key of another type has another hash, and lies in another bucket.
            and not (merging and name not in self.key and widens(present[name], kind))
        ]
        if problems:
            raise SchemaError(
                f"the columns do not fit the table at {location}: {'; '.join(problems)}",
                hint="select and cast the query's columns to the table's, or give another path"
                + (
                    ""
                    if merging
                    else "; mergeSchema=true takes new columns, wider types, and nulls for those that are missing"
                ),
            )


def _foreign(location: str) -> TableError:
    return TableError(
        f"the Delta table at {location} was not made by this sink",
        expected=f"a table partitioned by {BUCKET} with the property {LAYOUT_PROPERTY}, or nothing at all",
        hint="give another path; to take over its rows, read it as a batch and write them by upstream.write_batch once; "
        "to update it as it is, write with engine=merge",
    )


def _check_names(names: Sequence[str], count: int) -> None:
    for name in names:
        _check_characters(name)
    lowered = [name.lower() for name in names]
    twice = sorted({name for name in lowered if lowered.count(name) > 1}) or (["a name"] if len(names) < count else [])
    if twice:
        raise SchemaError(f"{', '.join(twice)} occurs twice among the columns", hint="rename one of them")
    ours = [name for name in names if name.lower().startswith(SYSTEM)]
    if ours:
        raise SchemaError(
            f"{', '.join(ours)}: names that begin with {SYSTEM} are the sink's own",
            hint="drop or rename these columns before writing",
        )


def _resolve(name: str, fields: dict[str, Json], role: str) -> str:
    if name in fields:
        return name
    near = [field for field in fields if field.lower() == name.lower()]
    outer, _, inner = name.partition(".")
    if not near and inner and any(field.lower() == outer.lower() for field in fields):
        raise SchemaError(
            f"the {role} column {name!r} is a field of the column {outer!r}",
            expected="a column: rows are found by the columns of the table, and by their statistics",
            hint=f'make one before writing, for example .withColumn("{name.replace(".", "_")}", F.col("{name}")), or name all of {outer!r}',
        )
    if not near:
        raise SchemaError(
            f"the {role} column {name!r} is not among the columns {', '.join(fields)}",
            hint=f"name an existing column in the option {role}, or keep it in the select before writing",
        )
    return near[0]


def _mark(name: str, fields: dict[str, Json]) -> str:
    """The column that marks deletions."""
    found = _resolve(name, fields, "deleteWhen")
    if fields[found] != "boolean":
        raise SchemaError(
            f"deleteWhen names the column {found!r}, which is of type {_shown(fields[found])}",
            expected="a column of booleans, or, through upstream.write_latest and upstream.write_batch, a condition",
            hint="make one before writing, for example .withColumn('gone', F.col('op') == 'D')",
        )
    return found


def _check_key_type(name: str, kind: Json) -> None:
    if isinstance(kind, dict) and kind["type"] == "struct":
        for field in kind["fields"]:
            _check_key_type(f"{name}.{field['name']}", field["type"])
    elif not isinstance(kind, str) or (kind not in _KEYS and not _DECIMAL.fullmatch(kind)):
        raise SchemaError(
            f"the key column {name!r} is of type {_shown(kind)}",
            expected="numbers, decimals, text, binary, dates, timestamps, booleans, or structs of these",
            hint="cast it, or make a key column from it, before writing",
        )


def _delta_type(kind: Json, name: str) -> Json:
    """A Spark type as the table holds it: everything may be null, no metadata."""
    if isinstance(kind, str):
        if kind in _KEYS or _DECIMAL.fullmatch(kind):
            return kind.replace(" ", "")
        if _CHARS.fullmatch(kind):
            return "string"
    elif kind["type"] == "struct":
        fields: list[dict[str, Json]] = [
            {
                "name": field["name"],
                "type": _delta_type(field["type"], f"{name}.{field['name']}"),
                "nullable": True,
                "metadata": {},
            }
            for field in kind["fields"]
        ]
        for field in fields:
            _check_characters(field["name"])
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
        f"the column {name!r} is of type {_shown(kind)}, which a plain Delta table cannot hold",
        hint="cast it, for example to string, or drop it before writing",
    )


def _check_characters(name: str) -> None:
    if _FORBIDDEN.search(name):
        new = _FORBIDDEN.sub("_", name.strip())
        raise SchemaError(
            f"the column name {name!r} has a character that a plain Delta table does not admit (one of ' ,;{{}}()=', tab, newline)",
            hint=f'rename it before writing, for example .withColumnRenamed({name!r}, "{new}")',
        )


def _shown(kind: Json) -> str:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return "struct<" + ", ".join(f"{field['name']}: {_shown(field['type'])}" for field in kind["fields"]) + ">"
    if kind["type"] == "array":
        return f"array<{_shown(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_shown(kind['keyType'])}, {_shown(kind['valueType'])}>"
    return str(kind["type"])
