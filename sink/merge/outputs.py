"""Side tables: late rows, rows that lost in a conflict, and rows with text that is not UTF-8."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import SchemaError, TableError
from ...core.rows.event_times import recorded_bound
from ...core.rows.invalid_text import as_bytes
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import TIMESTAMP
from ...delta_format.latest_table import NOTHING_YET, recorded_under
from ..figures.summary import last_commit
from ..spec.options import SinkTarget
from ..table.files import DataFiles, conform
from .side_table import SideTable

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..spec.layout import Layout
    from .pending import Mask, Pending

__all__ = ["OUTPUTS_KEY", "Output", "Outputs", "SideRowWriter", "SideRows", "files_named", "write_outputs"]


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

    def lost(self, rows: Pending) -> None:
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
