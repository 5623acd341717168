"""Row counts of a query's sources up to a batch, from the offsets that Spark journals before the batch runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ...storage.folder import TableFolder
from .checkpoint_layout import times_folder
from .journaled_offsets import journaled_offsets
from .offset_book import whole_offset
from .time_reports import reported_states

__all__ = ["SourceCounts", "counts_in", "journaled_counts"]


@dataclasses.dataclass(frozen=True)
class SourceCounts:
    """Rows of all feeds of a query since its checkpoint began.

    The counts come from the journal, so they do not depend on what the batch does with the rows.
    """

    received: int  # rows with a readable time
    late: int  # rows below their feed's low-watermark
    late_idle: int  # late rows that only the rule for silent feeds made late
    suspects: int  # rows kept from moving the watermark that no later row has confirmed yet


def counts_in(offsets: Iterable[Mapping[str, Any]]) -> SourceCounts | None:
    """Return the counts in the sources' end offsets; None if a source does not inspect its rows or is not ours."""
    sources = [offset for offset in offsets if "tick" not in offset]  # what wakes a queue has no rows
    if not sources or not all(offset.get("looked") for offset in sources):
        return None
    feeds = [state for offset in sources for state in offset["progress"].values()]
    names = [field.name for field in dataclasses.fields(SourceCounts)]
    return SourceCounts(**{name: sum(state.get(name, 0) for state in feeds) for name in names})


def journaled_counts(checkpoint: TableFolder, batch_id: int) -> SourceCounts | None:
    """Return the counts up to a batch, from the journal below the query's checkpoint; None if it has none."""
    try:
        found = journaled_offsets(checkpoint, batch_id)
    except (OSError, ValueError):
        return None
    offsets: list[dict[str, Any]] = [each for each in found if isinstance(each, dict)]
    if not offsets or len(offsets) < len(found):
        return None
    folder = times_folder(checkpoint)
    return counts_in(_with_reports(whole_offset(offset, checkpoint), folder) for offset in offsets)


def _with_reports(offset: dict[str, Any], folder: TableFolder) -> dict[str, Any]:
    """Return the offset with the tasks' counts of its own batch, if tasks and not the driver inspect the rows."""
    unseen = offset.get("unseen")
    if not unseen:
        return offset
    reported = reported_states(folder, offset)
    complete = bool(offset.get("looked")) and unseen.keys() <= reported.keys()
    return {**offset, "looked": complete, "progress": {**offset["progress"], **reported}}
