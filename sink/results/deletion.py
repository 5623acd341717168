"""Deletion of the table of a dropped query: only of its own table, and only its own files."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import TYPE_CHECKING

from ...conf.errors import TableError
from ..table.contents import LOG, LOG_FILE, every_file, files_in_log, is_own
from .known_table import KnownTable
from .result_table import target_at
from .result_tables import INCARNATION_PREFIX, TAKEN_OVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...storage.folder import TableFolder


_LOG = logging.getLogger("upstream.queries")
_GOING = f"{LOG}/_upstream_dropped"


def refuse_foreign(location: str, name: str, host: str | None, options: Sequence[tuple[str, str]] = ()) -> None:
    """Refuse a location that holds anything but the query's own table or nothing.

    `host` is the streaming query's id; None if it has never run.
    """
    folder = target_at(location, options).folder
    with folder.guarded():
        _looked_at(location, name, host, options)


def delete_table(location: str, name: str, host: str, dropped: int, options: Sequence[tuple[str, str]] = ()) -> bool:
    """Delete the table of a query that change `dropped` has dropped; return True if there was one.

    A table of a later query of the same name stays. A mark in the log's folder makes the deletion repeatable:
    after it, the log need not be whole to prove whose table it was. Files that the log does not name stay, with
    a warning.
    """
    folder = target_at(location, options).folder
    with folder.guarded():
        incarnation = _looked_at(location, name, host, options)
        if incarnation is None:
            _remove_empty(folder)  # a query that fails in its first batch leaves such
        if incarnation is None or incarnation > dropped:
            return False
        folder.write(_GOING, json.dumps(_mark(host, name, incarnation)).encode())
        folder.sync([_GOING])
        left, others = _delete(folder)
    if left is not None:
        raise TableError(
            f"the table at {location} of the query {name!r}, which was dropped, cannot be deleted: {left} is left",
            expected="a folder in which the job may delete files",
            hint="put the permission right and restart the job, or delete the folder yourself",
        )
    if others is not None:
        _LOG.warning("the folder %s of the query %s, which was dropped, stays: it has a file that no query wrote, %s",
                     location, name, others)  # fmt: skip
    return True


def _looked_at(location: str, name: str, host: str | None, options: Sequence[tuple[str, str]]) -> int | None:
    """Return the incarnation of the query that owns the table; None if there is none."""
    target = target_at(location, options)
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
        going = json.loads(target.folder.read(_GOING))
        if going == _mark(str(host), name, going["incarnation"]):
            return int(going["incarnation"])
    if next(every_file(target.folder), None) is None:
        return None
    known = KnownTable(target)
    known.refresh()
    written = known.transaction(f"{INCARNATION_PREFIX}{host}/{name}")
    if written in (None, TAKEN_OVER):
        raise TableError(
            f"what is at {location} is not a table that the query {name!r} of this job has written",
            expected="the query's own table, or nothing",
            hint="drop the query without its table; look at the folder, and delete it yourself",
        )
    return written


def _mark(host: str, name: str, incarnation: int) -> dict[str, str | int]:
    return {"host": host, "name": name, "incarnation": incarnation}


def _delete(folder: TableFolder) -> tuple[str | None, str | None]:
    """Delete the table's files, those of the log after those that it names, and the mark last.

    Return a file that cannot be deleted, and a file that is not the table's; None if there is none.
    """
    named = files_in_log(folder)
    data = [path for path in every_file(folder) if path in named or (is_own(path) and not path.startswith(LOG))]
    folder.remove(data)
    if (left := _one_left(folder, data)) is not None:
        return left, None
    log = [path for path in every_file(folder, LOG) if LOG_FILE.fullmatch(path) or is_own(path)]
    folder.remove([path for path in log if path != _GOING])
    if (left := _one_left(folder, [path for path in log if path != _GOING])) is not None:
        return left, None
    folder.remove([_GOING])
    _remove_empty(folder)
    return _one_left(folder, [_GOING]), next(every_file(folder), None)


def _remove_empty(folder: TableFolder) -> None:
    if folder.is_local:
        for place, _, _ in os.walk(folder.location, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(place)  # refused unless it is empty


def _one_left(folder: TableFolder, removed: list[str]) -> str | None:
    gone = set(removed)
    return next((path for path in every_file(folder) if path in gone), None)
