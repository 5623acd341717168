"""``upstream erase``: erase a key, as people type it, and report the copies that remain."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.column_names import columns_of, parts_of, path_name, resolved, spark_name
from ...conf.errors import OptionError, TableError
from ...conf.locations import absolute_location
from ...conf.units import now_us
from ...core.rows.buckets import bucket_of
from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.newest import key_codes
from ...delta_format.append_table import dead_letter_table, payloads
from ...delta_format.latest_table import APPLIED_KEY, METADATA_KEY, CommitChanges, recorded_under
from ...delta_format.log import LiveFiles, commit_infos
from ...storage.folder import TableFolder, is_inside
from ..merge.outputs import OUTPUTS_KEY, Outputs, write_outputs
from ..spec.key_names import tree_of
from ..spec.layout import Layout
from ..spec.maintenance_rules import MaintenanceRules
from ..table.contents import REPAIR_KEY, TableContents, nothing_since, recorded_layout
from ..table.files import DataFiles
from ..table.key_index import KeyIndex
from ..table.table import TableChange, load_table, replay_log
from ..table.tombstones import APP_ID, TombstoneList

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ...delta_format.deletion_vectors import DeletionVector
    from ...delta_format.log import LogReplay
    from ..spec.options import SinkTarget


def key_bucket(path: str, *key: Any, storage: Mapping[str, str] | None = None) -> int:
    """Return the bucket of a table with the rows of a key; see :meth:`~upstream.LatestTable.key_bucket`."""
    given = storage or {}
    with TableFolder(absolute_location(path), given).guarded():
        target, _, layout = recorded_layout(path, given)
    return int(bucket_of(typed_key(layout, target.location, key), layout.buckets)[0])


def typed_key(layout: Layout, location: str, key: Sequence[Any]) -> list[pa.Array]:
    """Return a key's values as one row in the types of the table's key; raise OptionError if they do not fit."""
    names, types = layout.key, layout.key_types
    expected = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True)) or "a table with a key"
    if len(key) != len(names) or not names:
        raise OptionError(
            f"{len(key)} values for the key of the table at {location}", expected=f"one each for {expected}"
        )
    try:
        columns = [pa.array([value], kind) for value, kind in zip(key, types, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        columns = []
    cut = any(
        pa.types.is_integer(column.type) and column[0].as_py() != value
        for column, value in zip(columns, key, strict=False)
    )
    if not columns or cut or None in key:  # Arrow makes 1 of 1.5
        raise OptionError(
            f"{key!r} is not a key of the table at {location}", expected=f"values of the types {expected}"
        )
    return columns


def text_key(layout: Layout, location: str, given: Sequence[str]) -> list[pa.Array]:
    """Return texts ``NAME=VALUE``, or the ``VALUE`` of a key of one column, as one row in the types of the key."""
    names, kinds = layout.key, layout.key_types
    if not names:
        raise OptionError(f"the table at {location} has no key", expected="a table with a key")
    fields = {name: json.loads(kind) for name, kind in layout.fields}
    shown = [spark_name(name, fields) for name in names]
    expected = " ".join(f"'{name}=<{kind}>'" for name, kind in zip(shown, kinds, strict=True))
    found: dict[str, str] = {}
    for each in given:
        text, equals, value = each.partition("=")
        name = _named(text.strip(), fields) if equals else None
        if name is None or name not in names:
            if len(names) != 1:
                raise OptionError(f"{each!r} names no column of the key of the table at {location}", expected=expected)
            name, value = names[0], each
        if name in found:
            raise OptionError(f"the column {text.strip()!r} of the key is given twice", expected=expected)
        found[name] = value
    if missing := [each for each, name in zip(shown, names, strict=True) if name not in found]:
        raise OptionError(f"{', '.join(missing)} is missing from the key of the table at {location}", expected=expected)
    return [_parsed(found[name], kind, name) for name, kind in zip(names, kinds, strict=True)]


def _named(text: str, fields: dict[str, Any]) -> str | None:
    path = resolved(text, tree_of(fields))
    return None if path is None else path_name(path)


def _parsed(text: str, kind: pa.DataType, name: str) -> pa.Array:
    try:
        if pa.types.is_binary(kind):
            return pa.array([bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()], kind)
        if pa.types.is_struct(kind):
            return pa.array([json.loads(text)], kind)
        return pa.array([text]).cast(kind)
    except (ValueError, TypeError, OverflowError, pa.ArrowNotImplementedError) as error:
        raise OptionError(
            f"{text!r} is not a value of the key column {name!r}, which is {kind}",
            expected="a number, a date as 2024-02-29, a time as 2024-02-29T10:00:00Z, binary as 0x00ff, or a struct as "
            "JSON. A time has no Z if the column has no zone",
        ) from error


@dataclasses.dataclass(frozen=True)
class FileWithKey:
    """A file that holds rows of the key."""

    path: str
    live: int  # rows of the key that readers see
    dead: int  # rows of the key that readers do not see
    kept: pa.Table  # the other live rows


class KeyRows:
    """A search for the rows of one key. Each of the key's values is a column of one row."""

    def __init__(self, names: Sequence[str], values: Sequence[pa.Array]) -> None:
        self._names = tuple(names)
        self._values = tuple(values)

    def among(self, rows: pa.Table) -> Mask:
        """Return which rows have the key, by the same equality as in a batch."""
        if rows.num_rows == 0:
            return np.zeros(0, dtype=np.bool_)
        pairs = [
            (column, value.cast(column.type))
            for column, value in zip(columns_at(rows, self._names), self._values, strict=True)
        ]
        if all(map(_is_plain, self._values)) and all(_is_plain(column) for column, _ in pairs):
            same = [pc.fill_null(pc.equal(column, value[0]), False) for column, value in pairs]
            return np.logical_and.reduce([each.to_numpy() for each in same])
        stacked = [pa.chunked_array([*column.chunks, value], column.type) for column, value in pairs]
        codes, _ = key_codes(stacked)
        return codes[:-1] == codes[-1]

    def positions_in(self, files: DataFiles, path: str) -> Int64s:
        """Return the positions of the key's rows in a file, dead rows included; raise a FileNotFoundError without it.

        Row groups whose bounds rule the key out are not read.
        """
        names = [str(number) for number in range(len(self._names))]
        at, rows = files.near(path, self._names, pa.table(list(self._values), names))
        return at[self.among(rows)]

    def found_in(self, files: DataFiles, path: str, vector: DeletionVector | None) -> FileWithKey | None:
        """Return the file's rows of the key; None if it has none, dead rows included."""
        try:
            columns = list(dict.fromkeys(columns_of(self._names, files.schema.names)))
            mine = self.among(files.read_rows([path], columns=columns))
            if not mine.any():
                return None
            dead = files.dead(vector, len(mine))
            kept = files.read_rows([path], [dead | mine])
        except FileNotFoundError as error:
            raise TableError(
                f"a file of the table is gone: {error}",
                expected="a table that `upstream check` finds right",
                hint="run `upstream repair` first",
            ) from error
        return FileWithKey(path, int((mine & ~dead).sum()), int((mine & dead).sum()), kept)


def _is_plain(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether a batch takes two values of a type for one key exactly if they are equal."""
    kind, types = column.type, pa.types
    plain = (types.is_integer, types.is_string, types.is_boolean, types.is_date, types.is_timestamp, types.is_binary)
    return any(each(kind) for each in plain)


class LettersWithKey(KeyRows):
    """A search for the dead letters whose payload has one key."""

    def __init__(self, names: Sequence[str], values: Sequence[pa.Array]) -> None:
        super().__init__(["payload"], values)
        (wanted,) = payloads(pa.table(list(values), [str(number) for number in range(len(values))])).to_pylist()
        self._wanted = list(zip(map(parts_of, names), json.loads(wanted).values(), strict=True))

    @property
    def texts(self) -> list[str]:
        """A regular expression for each value of the key, which matches a text that has the value as a word."""
        shown = [(json.dumps(value, ensure_ascii=False), isinstance(value, str)) for _, value in self._wanted]
        words = [text[1:-1] if quoted else text for text, quoted in shown]
        return [rf"(^|[^\pL\pN_.-]){re.escape(word)}($|[^\pL\pN_.-])" for word in words]

    def among(self, rows: pa.Table) -> Mask:
        """Return which rows have the key; payloads that are not JSON have none."""
        found = [self._has_key(each) for each in rows.column("payload").to_pylist()]
        return np.array(found, dtype=np.bool_)

    def _has_key(self, payload: str) -> bool:
        try:
            row = json.loads(payload)
        except ValueError:
            return False
        return all(_at(row, path) == value for path, value in self._wanted)


def _at(row: Any, path: Sequence[str]) -> Any:
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return row


_ATTEMPTS = 8


def outputs_of(table: DeltaTable) -> list[str]:
    """Return the locations of dead letters that the table's log names."""
    named = [recorded_under(OUTPUTS_KEY, entry) for entry in commit_infos(table)]
    return list(dict.fromkeys(str(each["location"]) for each in named if each))


def append_pending(target: SinkTarget, layout: Layout, table: DeltaTable) -> None:
    """Append the side rows of queries' last commits: after a crash, a restart would only after the erasure."""
    outputs = Outputs(target, layout, layout.arrow_schema())
    writers: dict[str, None] = {}
    for entry in commit_infos(table):
        if recorded_under(OUTPUTS_KEY, entry) and (summary := recorded_under(METADATA_KEY, entry)):
            writers[str(summary["query_id"])] = None
    for query_id in writers:
        write_outputs(outputs, table, query_id)


def erase_from_output(
    target: SinkTarget, place: str, rows: LettersWithKey, *, needed: bool, dry_run: bool
) -> int | None:
    """Erase a key's rows from one table; return their number, or None without a table, unless it is `needed`."""
    there = dataclasses.replace(target, location=place)
    for _ in range(_ATTEMPTS):
        table = load_table(there)
        if table is None:
            if needed:
                raise TableError(f"there is no table at {place}", expected="a table of dead letters")
            return None
        dead_letter_table(there.folder).load()  # refuses another table
        log = replay_log(there, table)
        files = DataFiles(there, pa.schema(table.schema().to_arrow()))
        taken = _take_out(there, table, log, files, rows, dry_run=dry_run)
        if taken is not None:
            if taken and not dry_run:
                table.update_incremental()
                table.create_checkpoint()
            return taken
    raise TableError(
        f"another program has written to the table at {place} during each of {_ATTEMPTS} attempts to erase the key",
        expected="a moment without another writer",
        hint="stop the query that writes to it, and rerun",
    )


def _take_out(
    target: SinkTarget, table: DeltaTable, log: LogReplay, files: DataFiles, rows: LettersWithKey, *, dry_run: bool
) -> int | None:
    """Commit the files without the key; return None if another writer has taken the version."""
    vectors = log.vectors()
    found = [each for path in sorted(log.files) if (each := rows.found_in(files, path, vectors.get(path))) is not None]
    count = sum(each.live + each.dead for each in found)
    if not found or dry_run:
        return count
    with TableChange(target, table, files, log=log) as change:
        for each in found:
            kept = files.stage(each.kept, None, 0) if each.kept.num_rows else None
            change.replace([each.path], [kept])
        record = CommitChanges(now_us(), {}, {}).to_json()  # who follows the table has nothing to read
        return count if change.commit("ERASE", {APPLIED_KEY: record}) else None


_DAY_US = 86_400_000_000

Key = Callable[[Layout, str, Sequence[Any]], list[pa.Array]]
"""Returns the values of a key as columns of one row, for a layout and a table's location."""


@dataclasses.dataclass(frozen=True)
class Remnant:
    """A place that may still hold the key."""

    what: str
    until_us: int | None  # epoch microseconds; None if nothing here removes it
    how: str  # what removes it, as text


@dataclasses.dataclass(frozen=True)
class Erasure:
    """What was taken out of a table, or would be.

    Attributes
    ----------
    location : str
    version : int
        The table's, afterwards.
    rows, dead : int
        Rows of the key that readers saw, and rows that were marked as dead in the same files.
    tombstones : int
        Deletions of the key that were remembered.
    outputs : mapping of str to int
        Rows of the key in each table of dead letters.
    indexes : int
        Files removed from this machine's index cache.
    remains : tuple of Remnant
    """

    location: str
    version: int
    rows: int
    dead: int
    tombstones: int
    outputs: Mapping[str, int]
    indexes: int
    remains: tuple[Remnant, ...]

    @property
    def found(self) -> bool:
        """Whether the current version, or a table beside it, held the key."""
        return bool(self.rows or self.dead or self.tombstones or any(self.outputs.values()))


def erase_key(
    path: str,
    *key: Any,
    parse: Key = typed_key,
    storage: Mapping[str, str] | None = None,
    outputs: Sequence[str] = (),
    index_location: str | None = None,
    dry_run: bool = False,
) -> Erasure:
    """Erase a key, as `parse` reads it, from a table; see :meth:`~upstream.LatestTable.erase`.

    One commit removes the live rows, the dead rows and the tombstones; then each output and the indexes follow. The
    key's text never enters the log. If the process dies on the way, the same command does the rest.
    """
    for _ in range(_ATTEMPTS):
        with TableContents.opened(path, storage) as contents:
            values = parse(contents.layout, contents.target.location, key)
            attempt = _Attempt(contents, values)
            if dry_run or attempt.commit():
                return _beside(attempt, values, outputs, index_location, dry_run=dry_run)
    raise TableError(
        f"another program has written to the table at {absolute_location(path)} during each of {_ATTEMPTS} attempts to "
        "erase the key",
        expected="no other writer while one bucket is rewritten",
        hint="stop the query that writes to it, and rerun. Nothing has changed",
    )


class _Attempt:
    """One attempt to erase a key, against one version of the table."""

    def __init__(self, contents: TableContents, values: Sequence[pa.Array]) -> None:
        self.contents = contents
        self._bucket = int(bucket_of(list(values), contents.layout.buckets)[0])
        rows = KeyRows(contents.layout.key, values)
        held = contents.snapshot.of_bucket(self._bucket)
        looked = (
            rows.found_in(contents.files, path, vector) for path, vector in zip(held.rows, held.vectors, strict=True)
        )
        self.found: list[FileWithKey] = [each for each in looked if each is not None]
        with contents.needed():
            self._buried = contents.buried(self._bucket)
        self._mine = rows.among(self._buried)
        self.tombstones = int(self._mine.sum())

    def commit(self) -> bool:
        """Commit the erasure; return False if another writer has taken the version."""
        if not self.found and not self.tombstones:
            return True
        contents, bucket = self.contents, self._bucket
        with TableChange(contents.target, contents.table, contents.files) as change:
            for each in self.found:
                kept = contents.files.stage(each.kept, bucket, 0) if each.kept.num_rows else None
                change.replace([each.path], [kept])
            deletions = self._deletions(change)
            commit_info = {
                REPAIR_KEY: {"done": ["a key was erased"], "keys": self._rows_left()},
                APPLIED_KEY: nothing_since(contents.table).to_json(),
            }
            committed = change.commit("ERASE", commit_info, numbers={APP_ID: deletions.number})
        if committed:
            contents.files.remove(contents.snapshot.tombstones.held() - deletions.held())
        return committed

    def _deletions(self, change: TableChange) -> TombstoneList:
        contents, held = self.contents, self.contents.snapshot.tombstones
        if not self.tombstones:
            return held
        left = self._buried.filter(pa.array(~self._mine))
        if left.num_rows:
            file = contents.tombstones.stage(left, self._bucket, 0)
            change.wrote(file.path)
            deletions = held.replaced([file])
        else:
            deletions = held.without([self._bucket])
        deletions.write(contents.files, held, change.wrote)
        return deletions

    def _rows_left(self) -> int | None:
        count = self.contents.snapshot.count()
        return None if count is None else count - sum(each.live for each in self.found)


def _beside(
    attempt: _Attempt,
    values: Sequence[pa.Array],
    outputs: Sequence[str],
    index_location: str | None,
    *,
    dry_run: bool,
) -> Erasure:
    """Erase from other tables and indexes, and write a checkpoint so that earlier versions can go."""
    contents = attempt.contents
    target, layout = contents.target, contents.layout
    table = load_table(target)
    assert table is not None, "it was there just now"
    named = outputs_of(table)
    places = list(dict.fromkeys([*named, *(absolute_location(each) for each in outputs)]))
    if not dry_run:
        append_pending(target, layout, table)
    rows = LettersWithKey(layout.key, values)
    taken = {
        place: count
        for place in places
        if (count := erase_from_output(target, place, rows, needed=place not in named, dry_run=dry_run)) is not None
    }
    index = KeyIndex(target.location, layout.key, index_location, 0)
    indexes = 0
    if not dry_run:
        table.update_incremental()
        indexes = index.forget(LiveFiles.of(table).paths)
        table.create_checkpoint()  # earlier versions can only go where there is one that is later
    return Erasure(
        target.location,
        table.version(),
        sum(each.live for each in attempt.found),
        sum(each.dead for each in attempt.found),
        attempt.tombstones,
        taken,
        indexes,
        (
            *_remains(MaintenanceRules.of_table(table.metadata().configuration, None, None, 0.0), taken, index),
            *[
                Remnant(f"{each.path}, of the table that this one is a clone of", None, "erase the key there, too")
                for each in attempt.found
                if not is_inside(each.path)
            ],
        ),
    )


def _remains(rules: MaintenanceRules, taken: Mapping[str, int], index: KeyIndex) -> tuple[Remnant, ...]:
    until = now_us() + rules.retention_us
    kept = (
        "the query's maintenance removes them, or `upstream maintain`; those that are no longer among the last "
        f"{rules.versions:,} go before"
    )
    found = [
        Remnant(
            "earlier versions of the table: their data files, bounds in the log, deletions for followers", until, kept
        ),
        Remnant("files of tasks that died before their commit", until + _DAY_US, "as above"),
    ]
    found += [
        Remnant(f"earlier versions of {place}", until, f"`upstream maintain {place}` removes them") for place in taken
    ]
    found += [
        Remnant(
            f"indexes on other machines, in {index.home}",
            None,
            "a worker removes them by and by, and at once when the machine starts anew; or remove the folder, it is a "
            "cache",
        ),
        Remnant(
            "feeds, the query's checkpoint (rows that wait in queues, state of windows, samples), dead letters that "
            "are not JSON, tables that follow this one, copies",
            None,
            "this command does not touch them",
        ),
    ]
    return tuple(found)
