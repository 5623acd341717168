"""The table's log, entry by entry: the rows that each version applied, and whether it did more."""

from __future__ import annotations

from typing import Any

from ....conf.errors import FeedChangedError
from ....delta_format.latest_table import METADATA_KEY, Delivered, recorded_under
from ....delta_format.log import entry_actions, entry_place
from ....storage.folder import TableFolder

__all__ = ["NEW_CHECKPOINT", "TableLog"]

NEW_CHECKPOINT = "start with a new checkpoint: it begins with the table as it is then"

_NOTHING = Delivered(0, {}, {})
# After maintenance, the last commit with the table's low-watermark is a little further back.
_LOOK_BACK = 100


class TableLog:
    """A reader of one table's Delta log."""

    def __init__(self, folder: TableFolder) -> None:
        self._folder = folder
        self._last: tuple[int, list[dict[str, Any]]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_folder": self._folder, "_last": None}

    def has(self, version: int) -> bool:
        return self._folder.has(entry_place(version))

    def actions(self, version: int) -> list[dict[str, Any]] | None:
        """Return the actions of a version's entry; None if there is no such entry."""
        if self._last is None or self._last[0] != version:
            try:
                self._last = version, entry_actions(self._folder, version)
            except FileNotFoundError:
                return None
        return self._last[1]

    def delivered(self, version: int, table_id: str) -> Delivered | None:
        """Return what a version applied: nothing if it was maintenance, None without an entry.

        Raise FeedChangedError if it changed rows without a record, or made another table.
        """
        actions = self.actions(version)
        if actions is None:
            return None
        info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        made = [each["metaData"]["id"] for each in actions if "metaData" in each]
        if any(each != table_id for each in made):
            raise self.made_anew()
        found = Delivered.of_commit(info)
        if found is not None:
            return found
        if not any(each.get(kind, {}).get("dataChange") for each in actions for kind in ("add", "remove")):
            return _NOTHING
        if made and recorded_under(METADATA_KEY, info) is not None:
            raise FeedChangedError(
                f"version {version} of the table at {self._folder.location} has replaced its rows by others with other "
                "columns",
                expected="the same columns for the life of a checkpoint",
                hint=NEW_CHECKPOINT,
            )
        if recorded_under(METADATA_KEY, info) is not None:
            raise FeedChangedError(
                f"version {version} of the table at {self._folder.location} was committed by a release of this package "
                "that did not say "
                "what a commit delivered",
                expected="commits of this release",
                hint=f"let this release write the table, and {NEW_CHECKPOINT}",
            )
        raise FeedChangedError(
            f"version {version} of the table at {self._folder.location} was not committed by this package's sink, and "
            "changed rows "
            f"(operation {info.get('operation', 'unknown')})",
            expected="commits of the sink, and maintenance that changes no row, such as OPTIMIZE",
            hint=NEW_CHECKPOINT,
        )

    def last_delivered(self, version: int) -> Delivered | None:
        """Return the sink's last record up to a version; None if the last `_LOOK_BACK` versions have none."""
        for each in range(version, max(version - _LOOK_BACK, -1), -1):
            for action in self.actions(each) or ():
                found = Delivered.of_commit(action.get("commitInfo", {}))
                if found is not None:
                    return found
        return None

    def made_anew(self) -> FeedChangedError:
        """Return the error for a table other than the one that the checkpoint began with."""
        return FeedChangedError(
            f"the table at {self._folder.location} is not the one that the checkpoint began with: it was removed and "
            "made anew",
            expected="the same table for the life of a checkpoint",
            hint=NEW_CHECKPOINT,
        )

    def gone(self, version: int, what: str) -> FeedChangedError:
        """Return the error for a part of a version that is gone before it was read."""
        return FeedChangedError(
            f"{what} of version {version} of the table at {self._folder.location} is gone before it was read",
            expected="log entries and files that are kept until those who follow the table have read them",
            hint="run this query more often, VACUUM less, or give the query that writes the table a longer retention; "
            "then " + NEW_CHECKPOINT,
        )
