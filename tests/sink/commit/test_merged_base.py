"""What tasks merged with, beside what the table has at the commit. The commit's own tests go through it, too."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable

from upstream.conf.errors import TableError
from upstream.sink.commit.account import Merged
from upstream.sink.commit.merged_base import MergedBase
from upstream.sink.merge.outputs import Outputs
from upstream.sink.spec.layout import Layout
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table.table import load_table, take_snapshot


def _base(sink: Any) -> tuple[MergedBase, Any]:
    target = parse_sink_options(sink.given)
    layout = Layout.of(target.options, sink.schema)
    writer = sink.writer()
    merger, files = writer._merger, writer._commit._files
    base = MergedBase(target, layout, merger, Outputs(target, layout, layout.arrow_schema()))
    return base, lambda: take_snapshot(load_table(target), files, target)


def test_buckets_that_are_as_they_were_stay_as_the_tasks_merged_them(sink: Any) -> None:
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(8)])])
    base, snapshot = _base(sink)
    results = sink.tasks([sink.rows([(1, 2, "b")], seq=10)])
    base.check(results, snapshot())
    made: list[str] = []
    merged = Merged.of(results)
    assert base.merge_again(merged, snapshot(), made).merges == merged.merges
    assert made == []


def test_a_bucket_of_several_tasks_becomes_one_file(sink: Any) -> None:
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    base, snapshot = _base(sink)
    results = sink.tasks([sink.rows([(1, 3, "newest")], seq=10)], [sink.rows([(1, 2, "newer")], seq=20)])
    made: list[str] = []
    merged = base.merge_again(Merged.of(results), snapshot(), made)
    assert (len(merged.merges), merged.strays) == (1, 1)
    rows = merged.merges[0].rows
    assert rows is not None
    assert made == [rows.path]
    assert rows.rows == 1


def test_rows_that_others_changed_are_refused(sink: Any) -> None:
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    base, snapshot = _base(sink)
    results = sink.tasks([sink.rows([(1, 2, "b")], seq=10)])
    DeltaTable(str(sink.path)).delete("k = 1")
    with pytest.raises(TableError, match="changed by another writer"):
        base.check(results, snapshot())
