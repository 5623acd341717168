"""Delta tables to which several writers append, each batch once; that of a query's dead letters among them."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import functools
import json
import math
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..conf.errors import TableError
from ..storage.atomic_write import write_whole
from ..storage.folder import TableFolder
from .latest_table import APPLIED_KEY, CommitChanges

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties


_LOG = "_delta_log"
# Files whose commit is still to come, or never came.
_OWN = re.compile(r"part-[0-9a-f-]{36}\.parquet|\.staged")
# While another task makes the table.
_TRIES = 50
_PAUSE_S = 0.02


class AppendTable:
    """A table that several writers may share; `unusable` makes its errors.

    Delta records a writer's application and the number of its batch with each append, so none is made twice.
    """

    def __init__(
        self,
        folder: TableFolder,
        schema: pa.Schema,
        unusable: Callable[[object], TableError],
        configuration: Mapping[str, str | None] | None = None,
        hooks: Callable[[DeltaTable], PostCommitHookProperties] | None = None,
        opened: Callable[[], DeltaTable | None] | None = None,
    ) -> None:
        self._folder = folder
        self._schema = schema
        self._unusable = unusable
        self._configuration = configuration
        self._hooks = hooks
        self._opened = opened or functools.partial(_opened, folder)
        self._last: DeltaTable | None = None  # as it was: a commit on it fails if another one came between

    def load(self) -> DeltaTable | None:
        """Return the table as it is now; None if there is none. A TableError refuses other columns or other files."""
        from deltalake.exceptions import DeltaError

        try:
            table = self._opened()
            others = [] if table is not None else [each.name for each in self._folder.listing()]
        except (DeltaError, OSError, TableError) as error:
            raise self._unusable(error) from error
        if table is None:
            strange = sorted(name for name in others if not _OWN.fullmatch(name))
            if strange and _LOG not in strange:
                raise self._unusable(f"the folder has a file already: {strange[0]}")
            return None
        held = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
        wrong = [field.name for field in self._schema if held.get(field.name) != field.type]
        if wrong or table.metadata().partition_columns:
            raise self._unusable(
                f"it is a table of others, {'without ' + ', '.join(wrong) if wrong else 'partitioned'}"
            )
        return table

    def ready(self) -> DeltaTable:
        """Return the table as it is now; make it if there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        options, failed = dict(self._folder.storage) or None, OSError("it cannot be created")
        for _ in range(_TRIES):
            table = self._last = self.load()
            if table is not None:
                return table
            try:
                DeltaTable.create(
                    self._folder.location,
                    self._schema,
                    configuration=self._configuration,
                    storage_options=options,
                    raise_if_key_not_exists=False,
                )
            except (DeltaError, OSError) as error:
                failed = error  # another task may just be making it
                time.sleep(_PAUSE_S)
        raise self._unusable(failed) from failed

    def has(self, application: str, number: int) -> bool:
        """Return whether an application's batch is in the table, which is made if there is none."""
        return _has(self.ready(), application, number)

    def append(self, files: Mapping[str, tuple[int, str]], application: str, number: int, written_ms: int) -> bool:
        """Append files, with the size and the statistics of each; return False if the batch was in the table."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction

        rows = {path: json.loads(stats)["numRecords"] for path, (_, stats) in files.items()}
        record = json.dumps(CommitChanges(written_ms * 1000, rows, {}).to_json())  # by which connector=latest follows
        adds: list[Any] = [AddAction(path, size, {}, written_ms, True, stats) for path, (size, stats) in files.items()]
        # Retrying by itself, it would not look again at what is recorded by then.
        properties = CommitProperties({APPLIED_KEY: record}, 0, [Transaction(application, number)])
        table, failed = self._last or self.ready(), False
        while not _has(table, application, number):
            before = table.version()
            try:
                table.create_write_transaction(
                    adds,
                    "append",
                    table.schema(),
                    [],
                    commit_properties=properties,
                    post_commithook_properties=None if self._hooks is None else self._hooks(table),
                )
            except (DeltaError, OSError) as error:
                # Others were quicker, or it took place although it seemed to fail.
                table, failed = self.ready(), True
                if table.version() == before:
                    raise self._unusable(error) from error
            else:
                return True
        return failed and self._named(table, files)

    def _named(self, table: DeltaTable, files: Mapping[str, Any]) -> bool:
        """Return whether the table has the files, of an append that seemed to fail."""
        named = {uri.rsplit("/", 1)[-1] for uri in table.file_uris()}
        return any(path.rsplit("/", 1)[-1] in named for path in files)


def _opened(folder: TableFolder) -> DeltaTable | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(folder.location, storage_options=dict(folder.storage) or None)
    except TableNotFoundError:
        return None


def _has(table: DeltaTable, application: str, number: int) -> bool:
    recorded = table.transaction_version(application)
    return recorded is not None and recorded >= number


DEAD_LETTERS = pa.schema(
    [
        pa.field("batch", pa.int64()),  # Spark's number; null outside a streaming query
        pa.field("origin", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("payload", pa.string()),  # the row as JSON, or the text that could not be read
    ]
)
_APP_PREFIX = "upstream-dead-letters-"


def dead_letter_table(folder: TableFolder) -> AppendTable:
    """Return a query's dead-letter table: rows, each with its batch, its origin and the reason."""
    return AppendTable(
        folder,
        DEAD_LETTERS,
        lambda why: TableError(
            f"the table of dead letters at {folder.location} cannot be used: {folder.masked(why)}",
            expected="a Delta table of its own, or none yet, in a folder that every worker can write to",
            hint="correct this and restart the query, which loses no row; or set deadLetters to another folder",
        ),
    )


def count_dead_letters(folder: TableFolder) -> int:
    """Return the number of rows in a table of dead letters."""
    table = dead_letter_table(folder).load()
    return 0 if table is None else table.count()


class DeadLetterWriter:
    """One task's dead letters of one batch: files written as they come, and one append of all at the end."""

    def __init__(self, folder: TableFolder, writer: str, number: int) -> None:
        self._folder = folder
        self._table = dead_letter_table(folder)
        self._batch = _APP_PREFIX + writer, number
        self._files: dict[str, tuple[int, str]] = {}
        self._rows = 0
        self._known: bool | None = None  # whether an earlier attempt has appended the rows

    def write(self, letters: pa.Table) -> None:
        """Write dead letters to a file that no reader sees before :meth:`commit`."""
        import pyarrow.parquet as pq

        self._rows += letters.num_rows
        with self._folder.guarded():
            if self._known is None:
                self._known = self._table.has(*self._batch)
            if self._known:
                return
            # A repeated task replaces the file, so that no attempt leaves another one.
            name = f"part-{uuid.uuid5(uuid.NAMESPACE_URL, f'{self._batch}/{len(self._files)}')}.parquet"
            write_whole(self._folder, name, lambda stream: pq.write_table(letters, stream))
            self._files[name] = self._folder.size(name), json.dumps({"numRecords": letters.num_rows})

    def commit(self) -> int:
        """Append the files unless an earlier attempt has, and return the number of rows written."""
        if self._files:
            with self._folder.guarded():
                self._table.append(self._files, *self._batch, time.time_ns() // 1_000_000)
        return self._rows


def letters_of(rows: pa.Table, *, batch: int | None, origin: str | pa.Array, reason: str | pa.Array) -> pa.Table:
    """Return rows as dead letters; `origin` and `reason` have one for each row, or are those of all."""
    count = rows.num_rows
    columns = [pa.repeat(pa.scalar(each), count) if isinstance(each, str) else each for each in (origin, reason)]
    return pa.table([pa.repeat(pa.scalar(batch, pa.int64()), count), *columns, payloads(rows)], schema=DEAD_LETTERS)


def payloads(rows: pa.Table) -> pa.Array:
    """Return each row as a JSON object, as Spark reads it: times in ISO 8601, bytes in base64."""
    if all(_is_plain(column) for column in rows.columns):
        import polars as pl

        times = pl.col(pl.Datetime).dt.to_string("iso")
        encoded = pl.DataFrame(rows).with_columns(times).select(pl.struct(pl.all()).struct.json_encode()).to_series()
        return encoded.to_arrow().cast(pa.string())
    return pa.array([json.dumps(_plain(row), ensure_ascii=False) for row in rows.to_pylist()], pa.string())


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Return whether Polars writes all values of a column as JSON, and loses none."""
    kind, types = column.type, pa.types
    if types.is_floating(kind):
        return bool(pc.all(pc.is_finite(column)).as_py())
    plain = (types.is_boolean, types.is_integer, types.is_decimal, types.is_string, types.is_date, types.is_timestamp)
    return any(each(kind) for each in plain)


def _plain(value: Any) -> Any:
    """Return a value, such as a row, of the types that JSON has."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return json.dumps(value)
        case dt.datetime():
            return value.isoformat(" ", "microseconds")
        case dt.date() | dt.time():
            return value.isoformat()
        case decimal.Decimal() | dt.timedelta():
            return str(value)
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case [tuple(), *_]:  # a map
            return {str(name): _plain(each) for name, each in value}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value
