from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from upstream.frames.ages import Staleness
from upstream.sink.summary import CommitSummary, last_summary, read_summaries


def test_json_round_trip_and_later_versions() -> None:
    summary = CommitSummary(3, "q", 5, 10, 12, 4, 8, 1, 99, {"a": "2024", "b": None}, "2024", Staleness(1, 2, 3, 4), 0)
    assert CommitSummary.from_json({**summary.to_json(), "unknown": 1}) == summary


def test_reading_what_is_new(sink: Any) -> None:
    assert read_summaries(str(sink.path)) == []
    for batch_id in range(5):
        sink.batch(batch_id, [sink.rows([(batch_id, 10, "a")], seq=batch_id)])
    path = str(sink.path)
    assert [(version, summary.batch_id) for version, summary in read_summaries(path)] == [(n + 1, n) for n in range(5)]
    assert [version for version, _ in read_summaries(path, 3)] == [4, 5]
    assert read_summaries(path, 5) == []
    assert read_summaries(path, 77) == []
    # Others' commits are no summaries, and a trimmed log starts later.
    DeltaTable(path).optimize.compact()
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    for version in range(3):
        (sink.path / "_delta_log" / f"{version:020d}.json").unlink()
    assert [version for version, _ in read_summaries(path, 1)] == [3, 4, 5]
    assert [version for version, _ in read_summaries(path)] == [3, 4, 5]


def test_the_last_summary_of_a_query_lies_behind_others(make_sink: Any) -> None:
    sink, other = make_sink(), make_sink(query_id="query-2")
    sink.batch(0, [sink.rows([(1, 10, "a")]), sink.punctuation(4)])
    for batch_id in range(20):
        other.batch(batch_id, [other.rows([(1, 11 + batch_id, "b")])])
    table = DeltaTable(str(sink.path))
    found = last_summary(table, "query-1")
    assert found is not None
    assert found.low_watermarks == {"feed": 4}
    assert last_summary(table, "query-3") is None
