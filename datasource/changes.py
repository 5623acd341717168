"""Rows from change events: the row after each change, its deletion, and its position in the source's log."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..conf.column_names import columns_of
from ..conf.errors import OptionError, SchemaError
from ..core.rows.exact_integers import Int64s
from ..core.rows.key import NO_KEY
from ..core.rows.system_column import TIMESTAMP
from .connectors.contract import Chunk, Connector, ConnectorLayer, MalformedRows, Range
from .connectors.files.formats.debezium import KEY, OPERATION, ROW, SOURCE
from .options import POSITION, SourceOptions
from .selection import copied_column, referenced_columns

_POSITION_TYPE = pa.int64()
_OWN: Mapping[str, pa.DataType | None] = {
    POSITION: _POSITION_TYPE, "_op": pa.string(), "_committed": TIMESTAMP, "_source": None,
}  # fmt: skip
_PLACE = pa.struct(
    [
        ("connector", pa.string()), ("ts_ms", pa.int64()), ("lsn", pa.int64()),
        ("file", pa.string()), ("pos", pa.int64()), ("row", pa.int64()),
    ]
)  # fmt: skip
_CONNECTORS = ("files", "kafka")
_UNAVAILABLE = "__debezium_unavailable_value"
_REFUSED = {
    "t": "the source truncated the table (op t), which deletes no row here: delete the rows, or fill a new table "
    "with a new checkpoint",
    "m": "a logical message (op m) is no row",
}
_TOAST = (
    "the column {0!r} is not in the event, as PostgreSQL keeps it apart and the update did not change it: set REPLICA "
    "IDENTITY FULL for the table in the source"
)
_log = logging.getLogger("upstream.debezium")


def changes_of(entry: Callable[[SourceOptions], Connector], common: SourceOptions) -> Connector:
    """Return the connector of changes over the events of the connector that `entry` makes."""
    named = [*common.key, *common.sequence, *([common.time] if common.time else [])]
    named = columns_of(named, _OWN)
    if common.select is not None:
        named += referenced_columns(common.select)
    events = dataclasses.replace(common, key=NO_KEY, time=None, sequence=NO_KEY, schema=None, select=None, where=None)
    return ChangeConnector(entry(events), named)


def in_log_order(common: SourceOptions) -> SourceOptions:
    """Return the options of a source of change events, whose position orders rows unless the user names a time."""
    if common.connector not in _CONNECTORS:
        raise OptionError(f"format=debezium with connector={common.connector}", expected="connector=files or kafka")
    if common.schema is not None and not common.key:
        raise OptionError(
            "format=debezium with `schema` and without `key`: only an inferred schema has the key of messages",
            hint="name the columns of the primary key with the option `key`",
        )
    if common.time not in (None, POSITION):
        return common
    if common.progress not in (None, "none"):
        raise OptionError(
            f"watermark={common.progress} without `eventTime`: the order of change events is a position, and no time",
            hint="leave the watermark out, or name the column that holds the event time",
        )
    select = common.select
    if select is not None and copied_column(select, POSITION) is None:
        select = f"{select}, {POSITION}"
    return dataclasses.replace(common, time=POSITION, time_format="epoch_us", progress="none", select=select)


class ChangeConnector(ConnectorLayer):
    """A connector of rows and deletions from events, which `inner` reads.

    Guarantee: that of `inner`. An event that is not a change of a row is malformed, with the reason. Kafka's tombstones
    repeat the deletion before them, and are left out.

    `named` holds the names of columns that the options use.
    """

    name = "debezium"

    def __init__(self, inner: Connector, named: Collection[str]) -> None:
        super().__init__(inner)
        self._ordered = POSITION in named
        self._named = [name for name in _OWN if name == POSITION or name in named]
        self._key: tuple[str, ...] = ()
        self._schema: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        """Return the columns of the rows, and the position; infer them from events unless they are given."""
        if self._schema is None:
            raw = self._inner.schema()
            if KEY in raw.names:
                self._key = tuple(raw.field(KEY).type.names)
            row = raw.field(ROW).type
            taken = [name for name in row.names if name in _OWN]
            if taken:
                raise SchemaError(
                    f"the events have a column {taken[0]!r}, a name of the source's own",
                    hint="name the columns wanted with the option `schema`, and the key",
                )
            kinds = {name: kind or raw.field(SOURCE).type for name, kind in _OWN.items()}
            self.fix_schema(pa.schema([*row, *(pa.field(name, kinds[name]) for name in self._named)]))
        assert self._schema is not None
        return self._schema

    def fix_schema(self, schema: pa.Schema) -> None:
        own = [field for field in schema if field.name in _OWN]
        source = next((field.type for field in own if field.name == "_source"), pa.struct([]))
        if not pa.types.is_struct(source):
            raise SchemaError(f"the column '_source' is of type {source}", expected="a struct of the source's members")
        members = {field.name: field for field in source} | {field.name: field for field in _PLACE}
        row = pa.struct([field for field in schema if field.name not in _OWN])
        raw = [(ROW, row), (OPERATION, pa.string()), (SOURCE, pa.struct(list(members.values())))]
        self._inner.fix_schema(pa.schema(raw))
        self._schema = schema

    def key(self) -> Sequence[str]:
        return self._key

    def read(self, part: Range, columns: Sequence[str] | None, malformed: MalformedRows) -> Iterator[Chunk]:
        schema = self.schema()
        wanted = schema.names if columns is None else list(columns)
        alone = 0
        for chunk in self._inner.read(part, None, malformed):
            events, lost = _without_tombstones(chunk)
            alone += lost
            if events.rows.num_rows:
                yield self._changes(events, schema, wanted)
        if alone:
            _log.warning(
                "%s: %d tombstones without the deletion before them: the topic is compacted, and deletions may be "
                "missing; a larger min.compaction.lag.ms than the query's longest stop keeps them",
                part.feed,
                alone,
            )

    def _changes(self, chunk: Chunk, schema: pa.Schema, wanted: Sequence[str]) -> Chunk:
        rows, source = (chunk.rows.column(name).combine_chunks() for name in (ROW, SOURCE))
        operation = chunk.rows.column(OPERATION)
        columns = dict(zip(rows.type.names, rows.flatten(), strict=True))
        place = dict(zip(source.type.names, source.flatten(), strict=True))
        snapshot = np.asarray(pc.fill_null(pc.equal(operation, "r"), False))
        positions, absent = positions_of(place, snapshot)
        columns |= {POSITION: positions, "_op": operation, "_source": source}
        columns["_committed"] = place["ts_ms"].cast(pa.timestamp("ms", "UTC")).cast(TIMESTAMP)
        reasons = _Reasons(chunk.rows.num_rows)
        for name, why in _REFUSED.items():
            reasons.add(pc.equal(operation, name), why)
        reasons.add(
            pc.invert(pc.is_in(operation, pa.array(["c", "u", "d", "r"]))),
            "the operation 'op' of the event is none of c, u, d, and r",
        )
        for name, value in columns.items():
            if pa.types.is_string(value.type) or pa.types.is_binary(value.type):
                reasons.add(pc.equal(value, pa.scalar(_UNAVAILABLE).cast(value.type)), _TOAST.format(name))
        for why, mask in absent.items() if self._ordered else ():
            reasons.add(pa.array(mask), why)
        deleted = np.asarray(pc.fill_null(pc.equal(operation, "d"), False))
        made = pa.table({name: _as_declared(columns[name], schema.field(name).type) for name in wanted})
        return dataclasses.replace(
            chunk,
            rows=made,
            deleted=deleted if deleted.any() else None,
            tombstone_us=None,
            misfits=reasons.found,
            origin=chunk.rows,
        )


class _Reasons:
    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.found: list[str | None] | None = None  # by row, the first reason why it is malformed

    def add(self, mask: pa.Array | pa.ChunkedArray, why: str) -> None:
        for at in np.flatnonzero(np.asarray(pc.fill_null(mask, False))).tolist():
            if self.found is None:
                self.found = [None for _ in range(self._rows)]
            self.found[at] = self.found[at] or why


def _without_tombstones(chunk: Chunk) -> tuple[Chunk, int]:
    """Return a chunk without Kafka's tombstones, and how many of them have no deletion before them."""
    operation = chunk.rows.column(OPERATION)
    if not operation.null_count:
        return chunk, 0
    events = np.asarray(operation.is_valid())
    deletes = np.asarray(pc.fill_null(pc.equal(operation, "d"), False))
    # The deletion before a chunk's first message is in an earlier one.
    alone = int((~events[1:] & ~deletes[:-1]).sum())
    index = np.arange(chunk.index, chunk.index + len(events)) if isinstance(chunk.index, int) else chunk.index
    arrival = None if chunk.arrival_us is None else chunk.arrival_us[events]
    rows = chunk.rows.filter(pa.array(events))
    return dataclasses.replace(chunk, rows=rows, index=index[events], arrival_us=arrival, deleted=None), alone


def _as_declared(column: Any, kind: pa.DataType) -> Any:
    """Return a column in its type; times without a zone stay so, as only the shaper has the zone."""
    if column.type.equals(kind) or (pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type)):
        return column
    if pa.types.is_struct(kind):
        parts = dict(zip(column.type.names, column.flatten(), strict=True))
        return pa.StructArray.from_arrays([parts[each.name].cast(each.type) for each in kind], fields=list(kind))
    return column.cast(kind)


_Bools = npt.NDArray[np.bool_]
_BINLOG = ("mysql", "mariadb")
# A row is later in its file by its event's place and its number within the event, each row of which takes a byte or
# more: so the sum orders them. A file has fewer bytes than 2 to the power of 33.
_FILE_BITS = 33
_NUMBER = re.compile(r"(\d{1,9})$")


def positions_of(place: Mapping[str, pa.Array], snapshot: _Bools) -> tuple[pa.Array, dict[str, _Bools]]:
    """Return the positions of events, and those without one by the reason.

    `place` has the members of their `source`. Positions of one source are in the order of its commits of a key:
    PostgreSQL's `lsn`, the file, place and row in the log of MySQL or MariaDB, and for others the time of the commit.
    A row of a `snapshot` without a place, as in an incremental one, precedes all changes: those since are in the log.
    """
    names = place["connector"].dictionary_encode()
    codes = np.asarray(pc.fill_null(names.indices, -1))
    found, known = np.zeros(len(codes), dtype=np.int64), np.zeros(len(codes), dtype=np.bool_)
    absent = {"the event has no position: source.connector is null": codes < 0}
    for code, name in enumerate(names.dictionary.to_pylist()):
        mine = codes == code
        members = "file and pos" if name in _BINLOG else "lsn" if name == "postgresql" else "ts_ms"
        values, valid = _in_binlog(place) if name in _BINLOG else _numbers(place[members])
        valid = valid | snapshot
        found[mine], known[mine] = values[mine], valid[mine]
        absent[f"the event has no position: source.{members} of the connector {name} is null"] = mine & ~valid
    return pa.array(found, _POSITION_TYPE, mask=~known), {why: mask for why, mask in absent.items() if mask.any()}


def _numbers(column: pa.Array) -> tuple[Int64s, _Bools]:
    return np.asarray(pc.fill_null(column, 0)), np.asarray(column.is_valid())


def _in_binlog(place: Mapping[str, pa.Array]) -> tuple[Int64s, _Bools]:
    files = place["file"].dictionary_encode()
    numbered = [_NUMBER.search(name) for name in files.dictionary.to_pylist()]
    number = np.array([-1 if each is None else int(each[1]) for each in numbered] + [-1], dtype=np.int64)
    file = number[np.asarray(pc.fill_null(files.indices, -1))]
    (at, valid), (row, _) = _numbers(place["pos"]), _numbers(place["row"])
    valid = valid & (file >= 0)
    return np.where(valid, (file << _FILE_BITS) + at + row, 0), valid
