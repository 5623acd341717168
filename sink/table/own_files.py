"""The files in a table's folder that UpStream wrote; all others are the user's and are never deleted."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...conf.errors import TableError
from ...delta_format.deletion_vectors import COPIES, VECTORS, DeletionVector, copy_of
from ...delta_format.latest_table import BUCKET, Delivered
from ...delta_format.log import entry_actions
from .tombstones import DELETIONS, FOLDER

if TYPE_CHECKING:
    from ...storage.folder import TableFolder

__all__ = ["LOG", "LOG_FILE", "check_free", "every_file", "files_in_log", "is_own"]

LOG = "_delta_log"

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN = re.compile(
    rf"(?:{DELETIONS}|{FOLDER})?(?:{BUCKET}=[^/]+/)?part-{_UUID}\.parquet"
    rf"|{FOLDER}(?:{BUCKET}=[^/]+/)?\d+\.json"
    rf"|(?:(?:{VECTORS}|{COPIES})/)?deletion_vector_{_UUID}\.bin"
    rf"|_upstream_lease/(?:\d{{20}}\.json|\.staged/\d{{20}}\.json\.[0-9a-f]{{32}}|\.{_UUID}\.tmp)"
    rf"|{LOG}/(?:\.{_UUID}\.tmp|_commit_{_UUID}\.json\.tmp|_upstream_dropped)"
)
LOG_FILE = re.compile(
    rf"{LOG}/(?:\.?\d{{20}}\.[^/]+|_last_checkpoint|\._last_checkpoint\.crc|_sidecars/[^/]+\.parquet)"
)
"""The names that Delta gives to files of a log."""


def is_own(path: str) -> bool:
    """Return True if a file, by its path below the table, has a name that only UpStream gives.

    A process that dies leaves such files, which the table's log does not name.
    """
    return _OWN.fullmatch(path) is not None


def every_file(folder: TableFolder, below: str = "") -> Iterator[str]:
    """Yield the paths of all files below a folder; a link to a folder is a file and is not followed.

    A file in the folder's place raises a NotADirectoryError.
    """
    if not folder.is_local:
        for each in folder.listing(below):
            path = f"{below}/{each.name}" if below else each.name
            if each.is_folder:
                yield from every_file(folder, path)
            else:
                yield path
        return
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(folder.location, below)) as entries:
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from every_file(folder, path)
            else:
                yield path


def check_free(folder: TableFolder) -> None:
    """Refuse a folder without a table in which there are other files than ours."""
    try:
        other = next((path for path in every_file(folder) if not is_own(path)), None)
    except NotADirectoryError:
        other = ""
    if other is not None:
        raise TableError(
            f"there is no table at {folder.location}, and the folder has a file already: {other}"
            if other
            else f"there is a file at {folder.location}, where a table is to be",
            expected="a folder that is empty or does not exist: readers would take other files for the table's, and "
            "maintenance deletes files",
            hint="choose another folder, or move the files away",
        )


def files_in_log(folder: TableFolder) -> set[str]:
    """Return the files below the table that any entry or checkpoint of its log names.

    Entries that are gone or damaged are skipped.
    """
    found: set[str] = set()
    for name in folder.names(LOG):
        number, _, ending = name.partition(".")
        if not number.isdigit():
            continue
        with contextlib.suppress(FileNotFoundError, ValueError, OSError):
            actions = (
                entry_actions(folder, int(number)) if ending == "json" else _of_checkpoint(folder, f"{LOG}/{name}")
            )
            for action in actions:
                found |= _named(action)
    return {path for path in found if not path.startswith("/") and "://" not in path and ".." not in path.split("/")}


def _of_checkpoint(folder: TableFolder, path: str) -> list[dict[str, Any]]:
    if not path.endswith(".parquet"):
        return []
    import pyarrow.parquet as pq

    where, filesystem = folder.place(path)
    with pq.ParquetFile(where, filesystem=filesystem) as file:
        kinds = [kind for kind in ("add", "remove") if kind in file.schema_arrow.names]
        return file.read(columns=kinds).to_pylist()


def _named(action: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for kind in ("add", "remove", "cdc"):
        if file := action.get(kind):
            found.add(unquote(file["path"]))
            vector = file.get("deletionVector")
            if vector and (place := DeletionVector.from_json(vector).path):
                found |= {place, copy_of(place)}
    if (info := action.get("commitInfo")) and (delivered := Delivered.of_commit(info)):
        found |= set(delivered.deletions)
    return found
