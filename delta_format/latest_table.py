"""The names, properties and commit records of a latest table, shared by the sink and readers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

BUCKET = "_upstream_bucket"
"""The partition column: the bucket of a row's key."""

SEQ = "_upstream_seq"
"""The arrival order of a row in the table, over all checkpoints that wrote it."""

ORDERS = "_upstream_orders"
"""The order of those parts of a row that come from another row of its key."""

OWN_COLUMNS = (SEQ, ORDERS, BUCKET)

LAYOUT_PROPERTY = "upstream.layout"
KEY_PROPERTY = "upstream.key"
HISTORY_PROPERTY = "upstream.history"
TIME_PROPERTY = "upstream.eventTime"
SEQUENCE_PROPERTY = "upstream.sequenceBy"
BUCKETS_PROPERTY = "upstream.buckets"
NULLS_PROPERTY = "upstream.nullMeans"
GROUPS_PROPERTY = "upstream.columnGroups"
ROW_KEY_PROPERTY = "upstream.rowKey"
"""The column that a continuous query has added: the key of its result as text."""

METADATA_KEY = "upstream"
"""The key of the summary in a commit's metadata."""

NOTHING_YET = ""
"""The low-watermark of a feed that has rows but no low-watermark yet: it holds back that of the table."""

APPLIED_KEY = "upstreamApplied"
"""The key of the :class:`CommitChanges` record in a commit's metadata."""


@dataclasses.dataclass(frozen=True)
class CommitChanges:
    """The changes that one commit applied to the table."""

    committed_at_us: int  # microseconds since the epoch
    rows: Mapping[str, int]  # by added file, how many of its rows are new: the last ones
    # by file of deleted keys, its rows; the log names no such file, so VACUUM removes it once old
    deletions: Mapping[str, int]
    low_watermark: Any = None  # as in the commit's summary
    ended: bool = False  # whether all feeds of the query have ended

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "rows": dict(self.rows), "deletions": dict(self.deletions)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CommitChanges:
        return cls(**value)

    @classmethod
    def of_commit(cls, commit_info: Mapping[str, Any]) -> CommitChanges | None:
        """Return the record of a commit; None for another writer's commit."""
        recorded = recorded_under(APPLIED_KEY, commit_info)
        return None if recorded is None else cls.from_json(recorded)


def kept_count(properties: Mapping[str, str]) -> int | None:
    """Return how many of the newest rows of each key a table keeps; None if it keeps all."""
    keep = properties.get(HISTORY_PROPERTY, "latest")
    return None if keep == "all" else int(keep.removeprefix("latest") or 1)


def recorded_under(key: str, commit_info: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a JSON object from a commit's metadata, or None. Other writers store such objects as text."""
    recorded = commit_info.get(key)
    if isinstance(recorded, str):
        recorded = json.loads(recorded)
    return recorded if isinstance(recorded, dict) else None
