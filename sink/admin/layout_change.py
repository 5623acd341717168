"""One commit by which a table is laid out otherwise than it was made: its files, its properties, and nothing left behind if it is not made.

A process that dies on the way leaves the table as it was, and files that ``upstream maintain`` removes later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, final

from ...conf.clock import now_us
from ...conf.errors import TableError
from ...delta_format.latest_table import Delivered
from ..table.contents import Contents, Unreadable
from ..table.log_entry import add_action, check_features, put_entry, removed_action
from ..table.table import remove_unnamed, replay_log
from .repairs import REPAIR_KEY

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from ..table.files import StagedFile

__all__ = ["LayoutChange", "nothing_since"]

_LOOK_BACK = 100

Action = dict[str, Any]


@final
class LayoutChange:
    """What is written for the change, and its commit; to be used by ``with``.

    Parameters
    ----------
    contents
        The table as it is.

    Raises
    ------
    TableError
        It has a feature by whose rules no entry is written here.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._log = replay_log(contents.target, contents.table)
        check_features(self._log, contents.target.location)
        self._at_ms = now_us() // 1000
        self._made: list[str] = []
        self._actions: list[Action] = []
        self._committed = False

    def __enter__(self) -> LayoutChange:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._committed:
            remove_unnamed(self._contents.target, self._contents.files, self._made)

    def wrote(self, *paths: str) -> None:
        """Files that are to go unless the commit is made."""
        self._made += paths

    def replace(self, gone: Iterable[str], rows: Iterable[StagedFile], *, changed: bool) -> int:
        """Put files in the place of others; how many rows they hold.

        Parameters
        ----------
        gone
            Paths of the table's files.
        rows
            The new ones, which may be written one after the other.
        changed
            Whether the rows are others.
        """
        count = 0
        for file in rows:
            self.wrote(file.path)
            self._actions.append(add_action(file, self._at_ms, changed=changed))
            count += file.rows
        self._actions += [removed_action(self._log.files[path], self._at_ms, changed=changed) for path in gone]
        return count

    def read(self, path: str) -> pa.Table:
        """The rows of one of the table's files.

        Raises
        ------
        TableError
            It cannot be read.
        """
        try:
            return self._contents.rows(path)
        except Unreadable as error:
            raise self.unreadable(error) from None

    def unreadable(self, error: Unreadable) -> TableError:
        """What to say of a file that cannot be read."""
        return TableError(
            f"the file {error.path} of the table at {self._contents.target.location} cannot be read: {error.reason}",
            expected="a table that `upstream check` finds right",
            hint=f"run `upstream repair {self._contents.target.location}` first",
        )

    def commit(
        self,
        operation: str,
        done: str,
        keys: int | None,
        properties: Mapping[str, str | None],
        *,
        numbers: Mapping[str, int] | None = None,
        told: Mapping[str, Any] | None = None,
    ) -> int:
        """Make it; returns the table's version.

        Parameters
        ----------
        operation, done
            What it is called in the table's history, and a sentence.
        keys
            How many rows the table has after it; None if that is not known.
        properties
            Those that become others; None takes one away.
        numbers
            Of transactions, by their application.
        told
            What else the commit says of itself.

        Raises
        ------
        TableError
            Somebody has written to the table meanwhile, or the entry cannot be written.
        EnvironmentMissingError
            The table lies in an object store, and the package is not installed by which an entry is put there.
        """
        target, before = self._contents.target, self._contents.table.version()
        configuration = {**self._log.metadata["configuration"], **properties}
        configuration = {name: value for name, value in configuration.items() if value is not None}
        actions = [{"metaData": {**self._log.metadata, "configuration": configuration}}, *self._actions]
        actions += [{"txn": {"appId": name, "version": number}} for name, number in (numbers or {}).items()]
        info = {
            "operation": operation,
            "engineInfo": "pyspark-upstream",
            "readVersion": before,
            REPAIR_KEY: {"done": [done], "keys": keys},
            **(told or {}),
        }
        try:
            self._committed = put_entry(target.folder, before + 1, info, actions)
        except OSError as error:
            raise TableError(
                f"version {before + 1} cannot be committed to the table at {target.location}: {target.masked(error)}",
                hint="check that the folder may be written to and has room, and say it again",
            ) from error
        if not self._committed:
            raise TableError(
                f"somebody else has written to the table at {target.location} while it was laid out anew",
                expected="nobody else writing to the table",
                hint="stop the query that writes to it for so long; the table is as it was",
            )
        return before + 1


def nothing_since(table: DeltaTable) -> Delivered:
    """Return what those who follow the table are told: no row, and the promise that was given last."""
    told = (Delivered.of_commit(entry) for entry in table.history(_LOOK_BACK))
    last = next((found for found in told if found is not None), Delivered(0, {}, {}))
    return dataclasses.replace(last, committed_at_us=now_us(), rows={}, deletions={})
