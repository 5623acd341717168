"""What tasks merged with, beside what the table has at the commit. The commit's own tests go through it, too."""

import pyarrow as pa

ENGINES = ("rewrite", "vectors")


def test_without_a_time_deletions_meet_the_rows_of_other_tasks_by_arrival(make_sink):
    sink = make_sink(pa.schema([("k", pa.int64()), ("v", pa.string())]), time="", buckets="1")
    for batch, (deleted_us, kept) in enumerate([(300, set()), (100, {1, 2})]):
        sink.batch(2 * batch, [sink.rows([(1, "held")], arrival_us=[10])])
        alone = sink.tasks([sink.rows([(1, None)], deleted=[True])])
        assert [merge.tombstones for result in alone for merge in result.merges] == [None]
        gone = [sink.rows([(1, None), (2, None)], arrival_us=[deleted_us] * 2, deleted=[True] * 2)]
        came = [sink.rows([(1, "came"), (2, "came")], arrival_us=[200] * 2)]
        results = sink.tasks(gone, came)
        sink.commit(results, 2 * batch + 1)
        assert sink.latest().keys() == kept
        (merge,) = results[0].merges
        assert merge.deletions is not None
        assert (merge.deletions.rows, merge.tombstones.rows) == (1, 1), "each of them once"
