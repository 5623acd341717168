"""Side tables: late rows, rows that lost in a conflict, and rows with text that is not UTF-8."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import SchemaError, TableError
from ...core.rows.event_times import recorded_bound
from ...core.rows.exact_integers import Mask
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import TIMESTAMP
from ...core.rows.text import as_bytes
from ...delta_format.column_mapping import ids_in
from ...delta_format.latest_table import NOTHING_YET, recorded_under
from ..figures.summary import last_commit
from ..maintenance.runner import commit_hooks, maintain
from ..spec.maintenance_rules import is_ours, retention_properties
from ..spec.options import SinkTarget
from ..table.contents import check_free
from ..table.files import DataFiles, conform
from ..table.mapped_table import change_columns, make_table
from ..table.table import load_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..spec.layout import Layout
    from .batch_rows import BatchRows


class SideTable:
    """A table beside the main one, which several queries may share. `unusable` makes its errors.

    Appends use the same means as the main table's commits: a writer with a query engine takes three times as
    long.
    """

    def __init__(self, place: SinkTarget, schema: pa.Schema, unusable: Callable[[object], TableError]) -> None:
        self._place = place
        self._schema = schema
        self._unusable = unusable

    def load(self) -> DeltaTable | None:
        """Load the table as it is now; return None if there is none."""
        from deltalake.exceptions import DeltaError

        try:
            found = load_table(self._place)
            if found is None:
                check_free(self._place.folder)
        except (DeltaError, OSError, TableError) as error:
            raise self._unusable(error) from error
        return found

    def ready(self) -> DeltaTable:
        """Return the table with all columns; create it, or add columns, if necessary."""
        from deltalake import Schema
        from deltalake.exceptions import DeltaError

        found = self.load()
        if found is None:
            try:
                self._make()
            except (DeltaError, OSError) as error:
                if self.load() is None:  # else another program has just made it
                    raise self._unusable(error) from error
            found = self.load()
            assert found is not None
        held = {field.name for field in found.schema().fields}
        new = [field for field in Schema.from_arrow(self._schema).fields if field.name not in held]
        if not new:
            return found
        schema = json.loads(found.schema().to_json())
        schema["fields"] += [json.loads(field.to_json()) for field in new]
        try:
            if (ids := ids_in(found, schema)) is not None:
                change_columns(self._place, found, schema, ids)  # whether we did, or somebody else, is seen below
            else:
                found.alter.add_columns(new)
        except (DeltaError, OSError) as error:
            raise self._unusable(error) from error
        return self.ready()

    def _make(self) -> None:
        from deltalake import DeltaTable, Schema

        schema = json.loads(Schema.from_arrow(self._schema).to_json())
        configuration = retention_properties(self._place.options.maintenance_rules({}))
        if (ids := ids_in(None, schema)) is not None:
            make_table(self._place, schema, ids, [], configuration)
            return
        DeltaTable.create(
            self._place.location,
            self._schema,
            configuration=configuration,
            storage_options=dict(self._place.storage) or None,
            raise_if_key_not_exists=False,
        )

    def append(
        self, table: DeltaTable, files: Mapping[str, tuple[int, str]], written_ms: int, transaction: tuple[str, int]
    ) -> bool:
        """Append files, and return True; return False if another writer has taken the version.

        `files` has the size and the statistics by path; `transaction` is an application and its number.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction

        before = table.version()
        adds: list[Any] = [AddAction(path, size, {}, written_ms, True, stats) for path, (size, stats) in files.items()]
        try:
            table.create_write_transaction(
                adds,
                "append",
                table.schema(),
                [],
                commit_properties=CommitProperties(
                    # Retrying by itself, it would not look again at what is recorded by then.
                    max_commit_retries=0,
                    app_transactions=[Transaction(*transaction)],
                ),
                post_commithook_properties=commit_hooks(
                    on=self._place.options.maintenance == "off" or not is_ours(table.metadata().configuration)
                ),
            )
        except (DeltaError, OSError) as error:
            after = self.load()
            recorded = None if after is None else after.transaction_version(transaction[0])
            if recorded is not None and recorded >= transaction[1]:
                return True  # it took place although it seemed to fail
            if after is not None and after.version() > before:
                return False
            raise self._unusable(error) from error
        # Its log grows by an entry a commit, as the main table's does.
        maintain(self._place, table, compact=lambda _: 0)
        return True


OUTPUTS_KEY = "upstreamOutputs"
"""Where a commit's metadata names the files of its late and its conflicting rows."""

_MARKS = (("_upstream_deleted", pa.bool_()), ("_upstream_source", pa.string()), ("_upstream_arrival", TIMESTAMP))
_APP_PREFIX = "upstream-output-"
# Others may append at the same moment, where queries share an output.
_TRIES = 20
_NEVER, _ALWAYS = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
_KINDS = ("late", "conflicts", "texts")
_ROWS_AT_ONCE = 1_000_000


@dataclasses.dataclass(frozen=True)
class SideRows:
    """The rows that a task, or a batch, has written to side tables."""

    conflicts: int = 0  # pairs of rows that conflict
    late: int | None = None  # None if no output is configured
    # by output (``late``, ``conflicts``, ``texts``) and path, the size and the number of rows
    files: Mapping[str, Mapping[str, tuple[int, int]]] = dataclasses.field(default_factory=dict)
    texts: int | None = None  # rows with text that is not UTF-8; None if no output is configured

    @classmethod
    def together(cls, parts: Iterable[SideRows]) -> SideRows:
        parts = list(parts)
        looked = [part.late for part in parts if part.late is not None]
        read = [part.texts for part in parts if part.texts is not None]
        files: dict[str, dict[str, tuple[int, int]]] = {}
        for part in parts:
            for kind, named in part.files.items():
                files.setdefault(kind, {}).update(named)
        conflicts = sum(part.conflicts for part in parts)
        return cls(conflicts, sum(looked) if looked else None, files, sum(read) if read else None)


class Output:
    """One side table, at the location of `place`."""

    def __init__(self, place: SinkTarget, schema: pa.Schema) -> None:
        self._place = place
        self.files = DataFiles(place, schema)
        self._side = SideTable(place, schema, self._unusable)

    def check(self) -> None:
        """Refuse a table whose columns cannot take the rows."""
        table = self._side.load()
        if table is None:
            return
        held = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
        wrong = [
            f"{field.name} is {held[field.name]} there and {field.type} in the query"
            for field in self.files.schema
            if field.name in held and held[field.name] != field.type
        ]
        if wrong or table.metadata().partition_columns:
            raise SchemaError(
                f"the table at {self._place.location} cannot take the query's rows: "
                f"{'; '.join(wrong) or 'it is partitioned'}",
                expected="a folder where there is no table yet, or a table with the query's columns, not partitioned",
                hint="name another folder in lateOutput, conflictOutput or textOutput",
            )

    def append(self, files: Mapping[str, Sequence[int]], app_id: str, batch_id: int, written_ms: int) -> None:
        """Append the files that a batch's commit has named, unless they are appended already."""
        adds = {path: (size, json.dumps({"numRecords": rows})) for path, (size, rows) in files.items()}
        for _ in range(_TRIES):
            table = self._side.ready()
            recorded = table.transaction_version(app_id)
            if recorded is not None and recorded >= batch_id:
                return
            if self._side.append(table, adds, written_ms, (app_id, batch_id)):
                return
        raise self._unusable("others keep appending to it")

    def _unusable(self, why: object) -> TableError:
        return TableError(
            f"the table of rows put aside at {self._place.location} cannot be used: {self._place.masked(why)}",
            expected="a Delta table of its own, or none yet, in a folder that may be written to",
            hint="put that right and restart the query, with the same options: no row is lost, the main table's log "
            "names them",
        )


@dataclasses.dataclass(frozen=True)
class Outputs:
    """The side tables of a query, and the low-watermarks that decide which rows are late.

    Late and conflicting rows are copies. Rows of other text are in no other table, with their text as bytes.
    Tasks stage files, the main table's commit names them, and then they are appended, once, by a transaction.
    If a process dies in between, the repeated batch appends the files that its commit named.
    """

    target: SinkTarget  # the main table's
    layout: Layout  # the main table's
    schema: pa.Schema  # of the main table's data files
    # by input partition the watermark committed before this batch; None if it had ended
    promised: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def output(self, kind: str) -> Output | None:
        """Return the output of one kind; None if it is not configured."""
        place = self.place(kind)
        return None if place is None else self.at(place, kind)

    def place(self, kind: str) -> str | None:
        """Return the location for rows of one kind; None if it is not configured."""
        return {"late": self.target.late, "conflicts": self.target.conflicts, "texts": self.target.texts}[kind]

    def at(self, place: str, kind: str) -> Output:
        columns = [pa.field(name, dtype) for name, dtype in _MARKS]
        held = [field.with_type(as_bytes(field.type)) if kind == "texts" else field for field in self.schema]
        return Output(dataclasses.replace(self.target, location=place), pa.schema([*held, *columns]))

    def named(self, put: SideRows) -> dict[str, Any]:
        """Return the main table's record of a batch's files, and of the locations of their tables.

        So they arrive there even if the options change before they are appended.
        """
        return {kind: {"location": self.place(kind), "files": dict(files)} for kind, files in put.files.items()}

    def check(self) -> None:
        """Refuse an output whose table cannot take the rows."""
        for kind in _KINDS:
            output = self.output(kind)
            if output is not None:
                output.check()

    def discard(self, put: SideRows, kept: Container[str] = ()) -> None:
        """Remove the staged files, except those that a commit of the main table has named."""
        for kind, staged in put.files.items():
            output = self.output(kind)
            if output is not None:
                output.files.remove(path for path in staged if path not in kept)


class SideRowWriter:
    """The side rows of one task: copies of its late and conflicting rows, and its rows of other text."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._held: dict[str, list[pa.Table]] = {kind: [] for kind in _KINDS}
        self._staged: dict[str, dict[str, tuple[int, int]]] = {}
        self._conflicts = 0
        self._late = 0
        self._texts = 0
        self.looks_at_text = outputs.target.texts is not None
        self._looks = outputs.target.late is not None and outputs.layout.progress_time is not None
        self._bounds = self._of_feeds() if self._looks else {}

    def look(self, rows: pa.Table, system: pa.ChunkedArray, deleted: Mask | None) -> None:
        """Copy the late rows of a batch, in the data files' schema; `system` is their system column."""
        if not self._bounds:
            return
        times = rows.column(self._outputs.layout.progress_time)
        timed = np.flatnonzero(times.is_valid().to_numpy())
        sources = pc.fill_null(pc.struct_field(system, ["source"]), "").combine_chunks().dictionary_encode()
        bounds = np.array([self._bounds.get(feed, _NEVER) for feed in sources.dictionary.to_pylist()], dtype=np.int64)
        late = timed[ordered(times.drop_null()) < bounds[sources.indices.to_numpy()[timed]]]
        if len(late):
            self._late += len(late)
            self._take("late", _with_marks(rows, system, deleted).take(pa.array(late)))

    def no_text(self, rows: pa.Table, system: pa.ChunkedArray | None, deleted: Mask | None) -> None:
        """Take rows with text that is not UTF-8."""
        self._texts += rows.num_rows
        self._take("texts", _with_marks(rows, system, deleted))

    def lost(self, rows: BatchRows) -> None:
        """Count rows that lost in a conflict, and copy them if an output is configured."""
        self._conflicts += rows.rows.num_rows
        if self._outputs.target.conflicts is not None:
            marks = np.zeros(rows.rows.num_rows, dtype=np.bool_) if rows.deleted is None else rows.deleted
            self._take("conflicts", rows.rows.append_column(_MARKS[0][0], pa.array(marks)))

    def staged(self) -> SideRows:
        """Stage the rows taken so far, and return their counts and files."""
        for kind in self._held:
            self._stage(kind)
        texts = self._texts if self.looks_at_text else None
        return SideRows(self._conflicts, self._late if self._looks else None, self._staged, texts)

    def discard(self) -> None:
        self._outputs.discard(SideRows(files=self._staged))

    def _take(self, kind: str, rows: pa.Table) -> None:
        held = self._held[kind]
        held.append(rows)
        if sum(part.num_rows for part in held) >= _ROWS_AT_ONCE:
            self._stage(kind)

    def _stage(self, kind: str) -> None:
        held, output = self._held[kind], self._outputs.output(kind)
        if held and output is not None:
            rows = pa.concat_tables([conform(part, output.files.schema) for part in held])
            path, size = output.files.write_rows(rows)
            self._staged.setdefault(kind, {})[path] = (size, rows.num_rows)
            held.clear()

    def _of_feeds(self) -> dict[str, int]:
        name = self._outputs.layout.progress_time
        assert name is not None
        kind = self._outputs.schema.field(name).type
        return {
            feed: _ALWAYS if bound is None else _number(bound, kind)
            for feed, bound in self._outputs.promised.items()
            if bound != NOTHING_YET
        }


def _with_marks(rows: pa.Table, system: pa.ChunkedArray | None, deleted: Mask | None) -> pa.Table:
    """Return the rows with a column for deletions and, if known, for their source and arrival."""
    marks = np.zeros(rows.num_rows, dtype=np.bool_) if deleted is None else deleted
    columns: list[Any] = [pa.array(marks)]
    if system is not None:
        columns += [pc.struct_field(system, [name]) for name in ("source", "arrival")]
    for (name, _), column in zip(_MARKS, columns, strict=False):
        rows = rows.append_column(name, column)
    return rows


def _number(bound: Any, kind: pa.DataType) -> int:
    return int(ordered(pa.chunked_array([recorded_bound(bound, kind)]))[0])


def files_named(commit_info: Mapping[str, Any]) -> set[str]:
    """Return the files of all outputs that a commit names."""
    return {path for named in (recorded_under(OUTPUTS_KEY, commit_info) or {}).values() for path in named["files"]}


def write_outputs(outputs: Outputs, table: DeltaTable | None, query_id: str, near: int | None = None) -> None:
    """Append the side rows of the query's last commit, unless they have been appended.

    One commit is enough: the next batch does not begin before this is done for the last one. `near` is the
    version of that commit in the query's checkpoint. If an output fails, the restarted query appends first.
    """
    found = None if table is None else last_commit(table, query_id, near=near)
    if found is None:
        return
    summary, entry = found
    for kind, named in (recorded_under(OUTPUTS_KEY, entry) or {}).items():
        app_id = f"{_APP_PREFIX}{kind}-{query_id}"
        outputs.at(named["location"], kind).append(
            named["files"], app_id, summary.batch_id, summary.committed_at_us // 1000
        )
