"""The account of rows: what the source received against what the commits say became of it, whatever dies."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.memory_connector import MemoryConnector

from upstream.core.feedback.offsets import SourceCounts, counts_in, journaled_counts
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.options import SourceOptions
from upstream.datasource.planner import BatchPlanner, Offset
from upstream.datasource.schema import leaving_schema, shape_of
from upstream.datasource.task import Reading
from upstream.sink.figures.summary import CommitSummary, read_summaries
from upstream.sink.spark_writer import stream_writer
from upstream.storage.folder import TableFolder

SCHEMA = pa.schema([("k", pa.int64()), ("us", pa.int64())])


class Query:
    """A source and a table as Spark would run them, that may die at any step of any batch."""

    def __init__(self, folder: Path, feeds: dict[str, list[tuple[int, int]]], *, coalesce: bool) -> None:
        self.folder = folder
        (folder / "c" / "offsets").mkdir(parents=True)
        (folder / "c" / "metadata").write_text(json.dumps({"id": "query"}))
        tables = {
            feed: pa.table([[row[at] for row in rows] for at in range(2)], schema=SCHEMA)
            for feed, rows in feeds.items()
        }
        self.connector = MemoryConnector(tables)
        self.options = SourceOptions(
            key=("k",), time="us", time_format="epoch_us", progress="ordered", confirmations=2, max_jump_us=40,
            coalesce=coalesce, idle="advance", idle_after_us=2,
        )  # fmt: skip
        self.leaving = leaving_schema(SCHEMA, self.options)
        self.shape = shape_of(self.leaving, self.options)
        self.offset: Offset = BatchPlanner.initial()
        self.batch_id = 0
        self.now = 0

    def batch(self, limit: int | None, dies: str) -> None:
        """One batch; it is run again where the process `dies`."""
        self.now += 1
        planner = BatchPlanner(self.connector, self.options, self.shape, clock=lambda: self.now, new_id=lambda: "q")
        end = planner.plan(self.offset, Limit(rows=limit))
        if end == self.offset:
            return
        (self.folder / "c" / "offsets" / str(self.batch_id)).write_text("\n".join(["v1", "{}", json.dumps(end)]))
        for step in {"never": ("all",), "before": ("tasks", "all"), "after": ("all", "all")}[dies]:
            self._run(end, commit=step == "all")
        self.offset, self.batch_id = end, self.batch_id + 1

    def _run(self, end: Offset, *, commit: bool) -> None:
        planner = BatchPlanner(self.connector, self.options, self.shape, clock=lambda: 0)
        reading = Reading(self.options, self.shape, self.connector, str(self.folder / "q"))
        places = {"path": str(self.folder / "table"), "checkpointLocation": str(self.folder / "c")}
        given_options = {**places, "key": "k", "time": "us", "buckets": "2"}
        writer = stream_writer(given_options, self.leaving, overwrite=False)
        results: list[Any] = [writer.write(reading.read(task)) for task in planner.tasks(self.offset, end)]
        if commit:
            stream_writer(given_options, self.leaving, overwrite=False).commit(results, self.batch_id)

    def commits(self) -> list[CommitSummary]:
        return [summary for _, summary in read_summaries(str(self.folder / "table"))]


rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), min_size=1, max_size=30)


@settings(max_examples=25, deadline=None)
@given(
    st.fixed_dictionaries({"a": rows, "b": rows}),
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from(["never", "before", "after"])), max_size=5),
    st.booleans(),
)
def test_what_was_received_was_delivered_or_superseded(tmp_path_factory, feeds, steps, coalesce):
    query = Query(tmp_path_factory.mktemp("query"), feeds, coalesce=coalesce)
    for limit, dies in steps:
        query.batch(limit, dies)
        delivered = superseded = 0
        for each in query.commits():
            delivered, superseded = delivered + each.delivered, superseded + each.superseded
            assert each.sources is not None
            assert delivered + superseded == each.sources.received, "after each commit"
            assert 0 <= each.sources.late_idle <= each.sources.late
            assert each.sources.late + each.sources.suspects <= each.sources.received
    query.batch(None, "never")
    last = query.commits()[-1]
    assert last.sources is not None
    assert last.sources.received == sum(map(len, feeds.values()))
    assert sum(each.updates for each in query.commits()) == last.sources.received


def test_counts_of_several_sources_add_up_and_are_none_where_one_does_not_count(tmp_path):
    def offset(received: int, *, looked: bool = True) -> dict[str, Any]:
        return {"looked": looked, "progress": {"f": {"received": received, "late": 1, "late_idle": 0, "suspects": 2}}}

    assert counts_in([offset(3), offset(4), {"tick": 9}]) == SourceCounts(7, 2, 0, 4)
    assert counts_in([offset(3), offset(4, looked=False)]) is None
    assert counts_in([{"tick": 9}]) is None
    assert counts_in([offset(3), {"partition": 1}]) is None
    assert journaled_counts(TableFolder(str(tmp_path)), 0) is None
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n-\n" + json.dumps(offset(5)))
    assert journaled_counts(TableFolder(str(tmp_path)), 0) == SourceCounts(5, 1, 0, 2)
    (tmp_path / "offsets" / "1").write_text('v1\n{}\n{"half')
    assert journaled_counts(TableFolder(str(tmp_path)), 1) is None
