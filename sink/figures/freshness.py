"""The freshness of a table for users of SQL alone: a note in the table's history, and a view over the metrics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ...conf.column_names import quoted

if TYPE_CHECKING:
    from .summary import CommitSummary

__all__ = ["HISTORY_KEY", "complete_up_to_us", "freshness_view", "history_note"]

HISTORY_KEY = "userMetadata"
"""Where Delta has a commit's words for people: Spark's ``DESCRIBE HISTORY`` shows them, and nothing else of a commit's
metadata.
"""


def complete_up_to_us(low_watermark: Any) -> int | None:
    """Return a recorded low-watermark in epoch microseconds; None if there is none or the time column has numbers."""
    if not isinstance(low_watermark, str):
        return None
    return int(np.datetime64(low_watermark.removesuffix("Z"), "us").astype(np.int64))


def history_note(summary: CommitSummary) -> str:
    """Return the note on a commit for ``DESCRIBE HISTORY``, as JSON."""
    note: dict[str, Any] = {
        "committed_at": f"{np.datetime64(summary.committed_at_us, 'us')}Z",
        "complete_up_to": summary.low_watermark,
        "keys": summary.keys,
    }
    if summary.staleness is not None:
        note["staleness_p99_s"] = summary.staleness.p99
    if summary.pending is not None:
        note |= {"pending": summary.pending, "oldest_s": summary.oldest}
    return json.dumps(note)


def freshness_view(metrics: str, table: str) -> str:
    """Return Spark SQL for one row: the table's freshness at the moment of the query. Both locations are absolute."""
    literal = table.replace("\\", "\\\\").replace("'", "\\'")
    last = f"FROM delta.{quoted(metrics)} WHERE table = '{literal}' ORDER BY committed_at DESC LIMIT 1"
    return (
        "SELECT committed_at, complete_up_to, low_watermark, keys, pending, oldest_s, staleness_p50_s, "
        "staleness_p99_s, "
        "timestampdiff(MICROSECOND, committed_at, current_timestamp()) / 1e6 AS since_commit_s, "
        f"timestampdiff(MICROSECOND, complete_up_to, current_timestamp()) / 1e6 AS behind_s {last}"
    )
