"""Small files of a bucket put together, where delta-rs (1.6.6) refuses to: in a table under column mapping. Memory: the rows of one new file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..frames.latest_table import BUCKET
from .files import DataFiles, StagedFile
from .layout import Layout
from .log_entry import add_action, check_features, put_entry, removed_action
from .table import remove_unnamed, replay_log

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from .options import SinkTarget

__all__ = ["compact_bucket"]


def compact_bucket(target: SinkTarget, table: DeltaTable, bucket: int, small: int, written_ms: int) -> int:
    """Put the small files of a bucket together; returns how many files went.

    Parameters
    ----------
    target, table
        The table; it has no deletion vectors.
    bucket
        Which.
    small
        Files of fewer bytes are small, and no more than so many bytes become one file.
    written_ms
        The time, in milliseconds since the epoch.

    Raises
    ------
    TableError
        A file cannot be read, or the entry cannot be written.
    """
    log = replay_log(target, table)
    check_features(log, target.location)
    files = DataFiles(target, Layout.recorded(table, target.location).file_schema())
    actions: list[dict[str, Any]] = []
    made: list[StagedFile] = []
    gone: list[str] = []
    committed = False
    try:
        for paths in _groups(
            {path: add["size"] for path, add in log.files.items() if add["partitionValues"][BUCKET] == str(bucket)},
            small,
        ):
            made.append(files.stage(files.read_rows(paths), bucket, 0))
            gone += paths
        actions += [removed_action(log.files[path], written_ms, changed=False) for path in gone]
        actions += [add_action(file, written_ms, changed=False) for file in made]
        info = {"operation": "OPTIMIZE", "engineInfo": "pyspark-upstream", "readVersion": table.version()}
        committed = bool(gone) and put_entry(target.folder, table.version() + 1, info, actions)
    finally:
        if not committed:
            remove_unnamed(target, files, [file.path for file in made])
    if not committed:  # somebody else has committed meanwhile: there will be another time
        return 0
    table.update_incremental()
    return len(gone)


def _groups(sizes: dict[str, int], small: int) -> list[list[str]]:
    """Small files that together are no larger than one is to be, by their names; none alone."""
    groups: list[list[str]] = [[]]
    room = small
    for path in sorted(path for path, size in sizes.items() if size < small):
        if sizes[path] > room:
            groups.append([])
            room = small
        groups[-1].append(path)
        room -= sizes[path]
    return [group for group in groups if len(group) > 1]
