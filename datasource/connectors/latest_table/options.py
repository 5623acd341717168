"""Options of the `latest` connector."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from ....conf.errors import OptionError
from ....conf.locations import absolute_location
from ....conf.options import option, positive_int, text
from ....storage.folder import TableFolder
from ...options import SourceOptions
from .table import describe

__all__ = ["LatestOptions"]


@dataclasses.dataclass(frozen=True)
class LatestOptions:
    """The options of the `latest` connector; see each option's documentation."""

    PASSED_ON: ClassVar[str] = "storage."

    path: str | None = option(
        "path",
        text(),
        None,
        "Set the table: a folder, or an address in an object store. Options that begin with `storage.` go to "
        "the store without that prefix.",
    )
    max_files: int = option(
        "maxFilesPerTrigger",
        positive_int(),
        1000,
        "Set the maximum number of files that one batch reads rows from. A commit is never split. The table "
        "that the first run begins with is split between files.",
    )
    passed_on: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def folder(self) -> TableFolder:
        """Return the table's folder.

        Raises
        ------
        OptionError
            No path is given.
        """
        if self.path is None:
            raise OptionError(
                "no path is given for connector=latest", hint='name the table with load("…") or the option `path`'
            )
        return TableFolder(absolute_location(self.path), self.passed_on)

    def completed(self, common: SourceOptions) -> SourceOptions:
        """Return the common options, with the table's own key, time and progress where the user has given none."""
        folder = self.folder()
        with folder.guarded():
            table = describe(folder)
        changes: dict[str, Any] = {"key": common.key or table.key}
        if common.time is None and table.time not in changes["key"]:
            changes["time"] = table.time
        if common.progress is None and table.time is not None and changes.get("time", common.time) == table.time:
            changes["progress"] = "promised"
        return dataclasses.replace(common, **changes)
