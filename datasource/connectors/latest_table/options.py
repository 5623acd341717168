"""Options of the `latest` connector."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from ....conf.errors import OptionError
from ....conf.locations import absolute_location
from ....conf.options import one_of, option, positive_int, text
from ....storage.folder import TableFolder
from ...options import SourceOptions
from .table import describe


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
    changes: str = option(
        "changes",
        one_of("newest", "full"),
        "newest",
        "Choose what a commit gives. `newest`: the rows that it brought, and deleted keys. `full`: also the rows "
        "that these replaced or deleted, in the words of Delta's change data feed: the column `_change_type` is "
        "`insert`, `update_preimage`, `update_postimage`, or `delete`.",
    )
    passed_on: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def full(self) -> bool:
        return self.changes == "full"

    def folder(self) -> TableFolder:
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
        changes: dict[str, Any] = {"key": common.key or table.key, "sequence": common.sequence or table.sequence}
        if common.time is None and table.time not in changes["key"]:
            changes["time"] = table.time
        if common.progress is None and table.time is not None and changes.get("time", common.time) == table.time:
            changes["progress"] = "promised"
        if self.full:
            _check_full(common)
            # Preimages are as old as the rows that they replace: no progress is to be made of their times.
            changes["progress"] = common.progress or changes.get("progress", "latent")
        return dataclasses.replace(common, **changes)


def _check_full(common: SourceOptions) -> None:
    """Raise OptionError for options under which replaced rows would be lost, or taken for late ones."""
    problems: list[str] = []
    if common.coalesce:
        problems.append("coalesce=true with changes=full: it would leave out the rows that were replaced")
    if common.progress not in (None, "promised", "latent"):
        problems.append(f"progress={common.progress} with changes=full: rows that were replaced have earlier times")
    if problems:
        raise OptionError(
            "; ".join(problems),
            expected="changes=full with every row, and with progress=promised or progress=latent",
            hint="leave out the options named; or leave out changes, for the rows that came alone",
        )
