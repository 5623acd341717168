"""The erasure of a key from the tables of late and of conflicting rows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ...conf.column_names import columns_of
from ...conf.errors import TableError
from ...delta_format.latest_table import METADATA_KEY, recorded_under
from ...delta_format.log import commit_infos
from ..merge.outputs import OUTPUTS_KEY, Outputs, write_outputs
from ..table.files import DataFiles
from ..table.table import load_table, replay_log
from ..table.table_change import TableChange
from .key_rows import KeyRows

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ...delta_format.log import LogReplay
    from ..spec.layout import Layout
    from ..spec.options import SinkTarget

__all__ = ["append_pending", "erase_from_output", "erasing", "outputs_of"]

_ATTEMPTS = 8


def outputs_of(table: DeltaTable) -> list[str]:
    """Return the locations of late and conflicting rows that the table's log names."""
    named = [recorded_under(OUTPUTS_KEY, entry) or {} for entry in commit_infos(table)]
    return list(dict.fromkeys(str(each["location"]) for kinds in named for each in kinds.values()))


def append_pending(target: SinkTarget, layout: Layout, table: DeltaTable) -> None:
    """Append the side rows of queries' last commits, in case a query died before it could.

    Otherwise the query's restart would append them after the erasure.
    """
    outputs = Outputs(target, layout, layout.arrow_schema())
    writers: dict[str, None] = {}
    for entry in commit_infos(table):
        if recorded_under(OUTPUTS_KEY, entry) and (summary := recorded_under(METADATA_KEY, entry)):
            writers[str(summary["query_id"])] = None
    for query_id in writers:
        write_outputs(outputs, table, query_id)


def erase_from_output(
    target: SinkTarget, place: str, rows: KeyRows, key: Sequence[str], *, needed: bool, dry_run: bool
) -> int | None:
    """Erase a key's rows from one table; return their number.

    It is None if there is no such table and none is `needed`.
    """
    there = dataclasses.replace(target, location=place)
    for _ in range(_ATTEMPTS):
        table = load_table(there)
        if table is None:
            if needed:
                raise TableError(f"there is no table at {place}", expected="a table of late or of conflicting rows")
            return None
        log = replay_log(there, table)
        files = DataFiles(there, pa.schema(table.schema().to_arrow()))
        missing = sorted(set(columns_of(key, files.schema.names)) - set(files.schema.names))
        if missing or table.metadata().partition_columns:
            raise TableError(
                f"the table at {place} {'lacks ' + ', '.join(missing) if missing else 'is partitioned'}",
                expected="a table of late or of conflicting rows, with the key's columns",
            )
        taken = _take_out(there, table, log, files, rows, dry_run=dry_run)
        if taken is not None:
            if taken and not dry_run:
                table.update_incremental()
                table.create_checkpoint()
            return taken
    raise TableError(
        f"somebody else has written to the table at {place} during each of {_ATTEMPTS} attempts to erase the key",
        expected="a table that rests for a moment",
        hint="stop the query that writes to it and say it again",
    )


def _take_out(
    target: SinkTarget, table: DeltaTable, log: LogReplay, files: DataFiles, rows: KeyRows, *, dry_run: bool
) -> int | None:
    """Commit the files without the key; return None if another writer has taken the version."""
    vectors = log.vectors()
    found = [each for path in sorted(log.files) if (each := rows.found_in(files, path, vectors.get(path))) is not None]
    count = sum(each.live + each.dead for each in found)
    if not found or dry_run:
        return count
    with erasing(target), TableChange(target, table, files, log=log) as change:
        for each in found:
            kept = files.stage(each.kept, None, 0) if each.kept.num_rows else None
            change.replace([each.path], [kept])
        return count if change.commit("ERASE") else None


@contextlib.contextmanager
def erasing(target: SinkTarget) -> Generator[None]:
    """Raise a TableError if the disk or the store fails."""
    try:
        yield
    except OSError as error:
        raise TableError(
            f"the key cannot be erased from the table at {target.location}: {target.masked(error)}",
            hint="check that the folder may be written to and has room, and say it again",
        ) from error
