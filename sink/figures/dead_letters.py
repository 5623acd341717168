"""How many rows of a query or of a job are dead letters, the first reason, and the tables that have them."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...conf.errors import UpstreamError
from ...core.feedback.checkpoint_layout import dead_letters_folder
from ...delta_format.append_table import count_dead_letters
from ...delta_format.log import LogReplay, newest_version
from ...storage.folder import TableFolder

_LONGEST = 160


@dataclasses.dataclass(frozen=True)
class DeadLetterFigures:
    """The dead letters of some tables together."""

    rows: int
    origin: str  # of the first row of the first table that has one
    reason: str
    place: str  # of that table
    problem: str = ""  # the reason if the rows cannot be counted

    @property
    def text(self) -> str:
        """The count, the first reason, and the command that shows the rows; nothing without a row."""
        if not self.rows:
            return self.problem and f"The dead letters cannot be counted: {self.problem}"
        reason = self.reason if len(self.reason) <= _LONGEST else self.reason[:_LONGEST] + "…"
        first = "1 row is a dead letter" if self.rows == 1 else f"{self.rows:,} rows are dead letters, the first"
        return f"{first} of {self.origin}: {reason}. To see them: upstream show {self.place}"

    def to_json(self) -> dict[str, Any]:
        """Return the figures for a program."""
        return dataclasses.asdict(self)


NO_LETTERS = DeadLetterFigures(0, "", "", "")


def letter_folders(table: str | None, checkpoint: str | None, storage: Mapping[str, str]) -> list[TableFolder]:
    """Return where the dead letters of a table's query, or of a checkpoint's queries, are by default."""
    places = [] if table is None else [f"{table}_dead_letters"]
    if checkpoint is not None:
        places += [dead_letters_folder(checkpoint), f"{checkpoint}_dead_letters"]
    return [TableFolder(place, storage) for place in dict.fromkeys(places)]


def dead_letter_figures(folders: Sequence[TableFolder]) -> DeadLetterFigures:
    """Return the figures of the tables in some folders; a folder without a table has no rows."""
    figures = [
        _figures_at(folder.location, tuple(folder.storage.items()), newest_version(folder)) for folder in folders
    ]
    first = next((each for each in figures if each.rows), NO_LETTERS)
    return dataclasses.replace(first, rows=sum(each.rows for each in figures))


def shown_letters(folders: Sequence[TableFolder]) -> DeadLetterFigures:
    """Return the figures, or why there are none: a damaged table of dead letters ends no run and no page."""
    try:
        return dead_letter_figures(folders)
    except (UpstreamError, OSError, ValueError) as error:
        return dataclasses.replace(NO_LETTERS, problem=str(error))


@functools.lru_cache(1 << 12)
def _figures_at(location: str, storage: tuple[tuple[str, str], ...], version: int | None) -> DeadLetterFigures:
    """Return the figures of a version, from its log and one file: deltalake would add 30 MB to the workbench."""
    if version is None:
        return NO_LETTERS
    folder = TableFolder(location, dict(storage))
    log = LogReplay(folder)
    log.follow(version)
    counts = {path: json.loads(add.get("stats") or "{}").get("numRecords") for path, add in log.files.items()}
    rows = count_dead_letters(folder) if None in counts.values() else sum(counts.values())
    if not rows:
        return NO_LETTERS
    oldest = min(log.files, key=lambda path: log.files[path].get("modificationTime", 0))
    return DeadLetterFigures(rows, *_first_of(location, storage, oldest), place=location)


@functools.lru_cache(1 << 12)
def _first_of(location: str, storage: tuple[tuple[str, str], ...], path: str) -> tuple[str, str]:
    import pyarrow.parquet as pq

    content = io.BytesIO(TableFolder(location, dict(storage)).read(path))
    batch = next(pq.ParquetFile(content).iter_batches(1, columns=["origin", "reason"]), None)
    if batch is None or not batch.num_rows:
        return "", ""
    return str(batch["origin"][0].as_py()), str(batch["reason"][0].as_py())
