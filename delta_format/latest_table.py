"""What the sink writes of a latest table and whoever follows the table reads: names, properties, and what each commit
delivered.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

__all__ = [
    "BUCKET",
    "BUCKETS_PROPERTY",
    "DELIVERED_KEY",
    "KEEP_PROPERTY",
    "KEY_PROPERTY",
    "LAYOUT_PROPERTY",
    "METADATA_KEY",
    "NOTHING_YET",
    "SEQ",
    "SEQUENCE_PROPERTY",
    "TIME_PROPERTY",
    "Delivered",
    "kept_count",
    "known_fields",
    "recorded_under",
]

BUCKET = "_upstream_bucket"
"""The partition: which part of the keys a row belongs to."""

SEQ = "_upstream_seq"
"""The arrival order of a row in the table, over all checkpoints that wrote it."""

LAYOUT_PROPERTY = "upstream.layout"
KEY_PROPERTY = "upstream.key"
KEEP_PROPERTY = "upstream.keep"
TIME_PROPERTY = "upstream.time"
SEQUENCE_PROPERTY = "upstream.sequence"
BUCKETS_PROPERTY = "upstream.buckets"

METADATA_KEY = "upstream"
"""Where a commit's metadata has its summary."""

NOTHING_YET = ""
"""The low-watermark of a feed that has rows, and of which nothing is known yet: it holds back that of the table."""

DELIVERED_KEY = "upstreamDelivered"
"""Where a commit's metadata has what it delivered."""


@dataclasses.dataclass(frozen=True)
class Delivered:
    """What one commit brought that the table did not have before.

    Attributes
    ----------
    committed_at_us : int
        Microseconds since the epoch.
    rows : mapping of str to int
        Of each file that was added, by its path in the table, how many of its rows (the last ones) are new.
    deletions : mapping of str to int
        Files of the keys whose row has left the table, with the deletion's time if the table has one; how many rows
        they hold. The table does not name these files: VACUUM removes them when they are old, as it does the files that
        a commit has replaced.
    low_watermark : int, float, str or None
        As in the commit's summary: every row with an earlier time has come to the table.
    ended : bool
        Whether all feeds of the query have said that they send nothing more.
    """

    committed_at_us: int
    rows: Mapping[str, int]
    deletions: Mapping[str, int]
    low_watermark: Any = None
    ended: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value: the inverse of :meth:`from_json`."""
        return {**vars(self), "rows": dict(self.rows), "deletions": dict(self.deletions)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Delivered:
        """Return the record that :meth:`to_json` described."""
        return cls(**known_fields(cls, value))

    @classmethod
    def of_commit(cls, commit_info: Mapping[str, Any]) -> Delivered | None:
        """Return what a commit delivered; None for a commit of another writer, or of a release without this record."""
        recorded = recorded_under(DELIVERED_KEY, commit_info)
        return None if recorded is None else cls.from_json(recorded)


def kept_count(properties: Mapping[str, str]) -> int | None:
    """Return how many of the newest rows of each key a table keeps, by its properties; None if it keeps all."""
    keep = properties.get(KEEP_PROPERTY, "latest")
    return None if keep == "all" else int(keep.removeprefix("latest") or 1)


def known_fields(kind: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object's values for the fields of a dataclass; names of later versions are left out."""
    return {field.name: value[field.name] for field in dataclasses.fields(kind) if field.name in value}


def recorded_under(key: str, commit_info: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a JSON object from a commit's metadata, or None; other writers keep such values as text."""
    recorded = commit_info.get(key)
    if isinstance(recorded, str):
        recorded = json.loads(recorded)
    return recorded if isinstance(recorded, dict) else None
