"""Commits as the command line hears of them."""

from upstream.core.feedback.ages import Staleness
from upstream.sink.figures.summary import CommitSummary


def commit(batch: int = 0, updates: int = 100, applied: int = 10, **changes: object) -> CommitSummary:
    values = {
        "batch_id": batch,
        "query_id": "q",
        "committed_at_us": 0,
        "rows": updates,
        "updates": updates,
        "applied": applied,
        "superseded": updates - applied,
        "older": 0,
        "keys": 1_234_567,
        "low_watermarks": {"feed": "2016-11-24T22:50:00.123456Z"},
        "low_watermark": "2016-11-24T22:50:00.123456Z",
        "staleness": Staleness(0.4, 0.34, 2.1, 3.0),
        "stray_buckets": 0,
    }
    return CommitSummary(**{**values, **changes})  # type: ignore[arg-type]
