"""Deletion of the table of a query that was dropped: only of one that the query has written, and to the end, even if
the process dies meanwhile.

A file in the log's folder, whose name no reader of a log takes for an entry, says that the table goes. From then on the
log need not be whole to be sure whose table it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...conf.errors import TableError
from .known_table import KnownTable
from .result_table import target_at
from .table_start import INCARNATION_PREFIX, TAKEN_OVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...storage.folder import TableFolder

__all__ = ["delete_table", "refuse_foreign"]

_LOG = "_delta_log"
_GOING = f"{_LOG}/_upstream_dropped"


def refuse_foreign(location: str, name: str, host: str | None, options: Sequence[tuple[str, str]] = ()) -> None:
    """Refuse a table that a query has not written; none is right, too.

    Parameters
    ----------
    location
        The table's folder or address.
    name
        The query's name.
    host
        The streaming query's id; None if it has never run.
    options
        As of :class:`~.result_table.ResultTable`.

    Raises
    ------
    TableError
        There is another program's or another job's table, or something else.
    """
    folder = target_at(location, options).folder
    with folder.guarded():
        _looked_at(location, name, host, options)


def delete_table(location: str, name: str, host: str, dropped: int, options: Sequence[tuple[str, str]] = ()) -> bool:
    """Delete the table of a query that was dropped.

    Parameters
    ----------
    location, name, host, options
        As of :func:`refuse_foreign`.
    dropped
        The change that dropped the query. The table of a query that was registered later under its name stays.

    Returns
    -------
    bool
        Whether there was one.

    Raises
    ------
    TableError
        It is not the query's, or cannot be deleted. What is left is deleted by another call.
    """
    folder = target_at(location, options).folder
    with folder.guarded():
        incarnation = _looked_at(location, name, host, options)
        if incarnation is None or incarnation > dropped:
            return False
        folder.write(_GOING, json.dumps(_mark(host, name, incarnation)).encode())
        folder.sync([_GOING])
        _delete(folder)
        left = next(_files(folder), None)
    if left is not None:
        raise TableError(
            f"the table at {location} of the query {name!r}, which was dropped, cannot be deleted: {left} is left",
            expected="a folder in which the job may delete files",
            hint="put the permission right and restart the job, or delete the folder yourself",
        )
    return True


def _looked_at(location: str, name: str, host: str | None, options: Sequence[tuple[str, str]]) -> int | None:
    """Return the incarnation of the query whose table it is; None if there is none."""
    target = target_at(location, options)
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
        going = json.loads(target.folder.read(_GOING))
        if going == _mark(str(host), name, going["incarnation"]):
            return int(going["incarnation"])
    if next(_files(target.folder), None) is None:
        return None
    known = KnownTable(target)
    known.refresh()
    written = known.log.transactions.get(f"{INCARNATION_PREFIX}{host}/{name}") if known.exists else None
    if written in (None, TAKEN_OVER):
        raise TableError(
            f"what is at {location} is not a table that the query {name!r} of this job has written",
            expected="the query's own table, or nothing",
            hint="drop the query without its table; look at the folder, and delete it yourself",
        )
    return written


def _mark(host: str, name: str, incarnation: int) -> dict[str, str | int]:
    return {"host": host, "name": name, "incarnation": incarnation}


def _delete(folder: TableFolder) -> None:
    """Delete what is in the folder, the mark last. What cannot be deleted stays."""
    if not folder.is_local:
        folder.remove([path for path in _files(folder) if path != _GOING])
        folder.remove([_GOING])
        return
    for place in (folder.location, os.path.join(folder.location, _LOG)):
        with contextlib.suppress(FileNotFoundError), os.scandir(place) as entries:
            for entry in entries:
                if entry.path not in {os.path.join(folder.location, each) for each in (_LOG, _GOING)}:
                    _remove(entry)
    folder.remove([_GOING])
    for place in (os.path.join(folder.location, _LOG), folder.location):
        with contextlib.suppress(OSError):
            os.rmdir(place)


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        os.remove(entry.path)  # of a link the link, not what it names


def _files(folder: TableFolder, below: str = "") -> Iterator[str]:
    for each in folder.listing(below):
        path = f"{below}/{each.name}" if below else each.name
        if each.is_folder:
            yield from _files(folder, path)
        else:
            yield path
