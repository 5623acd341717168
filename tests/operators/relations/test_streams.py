"""Rows of streams: none is lost silently, and a sample is the same in every replay."""

from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest

from upstream.conf.errors import SchemaError
from upstream.operators.relations.arrangement import OperatorState
from upstream.operators.relations.plan.nodes import Join, Latest, RowWindow, Sample, Stream, UnboundedWindow, WindowOver
from upstream.operators.relations.streams import (
    SEQUENCE,
    TOMBSTONE,
    ChangeStream,
    SampleOperator,
    StreamSource,
    stream_schema,
)
from upstream.operators.relations.zsets import TIME, WEIGHT, Span
from upstream.operators.state.store import DictStore

from .checking import LONG, TEXT, added, column

SCHEMA = pa.schema([("t", LONG), ("k", TEXT)])
STREAM = Stream("s", SCHEMA, key=("k",), event_time="t")


def test_late_rows_and_rows_without_a_time_are_put_aside():
    evaluation = added({"q": WindowOver(STREAM, UnboundedWindow()), "p": WindowOver(STREAM, Latest())}, DictStore())
    came = pl.DataFrame({"t": [1, None, None], "k": ["a", "b", "c"], TOMBSTONE: [True, False, True]})
    late = evaluation.step({"s": came}, 5).late["s"]
    assert late.select("t", "k", TOMBSTONE).rows() == [(None, "b", False), (None, "c", True)]
    outcome = evaluation.step({"s": pl.DataFrame({"t": [4, 5], "k": ["c", "d"]})}, 9)
    assert outcome.late["s"].rows() == [(4, "c", False)]
    assert outcome.changes["q"].rows() == [(5, "d", 5, 1)]
    assert evaluation.step({}, 9).late == {}


def test_without_a_sequence_rows_follow_each_other_as_they_arrive():
    source = StreamSource("s", SCHEMA, "t", OperatorState.in_memory())
    first = source.step([pl.DataFrame({"t": [3, 3], "k": ["a", "b"]})], Span.first(0))
    second = source.step([pl.DataFrame({"t": [3], "k": ["c"]})], Span(0, 1, -1))
    assert pl.concat([first, second])[SEQUENCE].to_list() == [0, 1, 2]


def test_times_may_be_timestamps_and_nothing_else():
    stream = Stream("s", pa.schema([("t", pa.timestamp("us", "UTC"))]), event_time="t")
    evaluation = added({"q": WindowOver(stream, UnboundedWindow())}, DictStore())
    rows = pl.DataFrame({"t": [1_000_000]}).cast(pl.Datetime("us", "UTC"))
    assert evaluation.step({"s": rows}, 2_000_000).changes["q"][TIME].to_list() == [1_000_000]
    with pytest.raises(SchemaError, match="string"):
        StreamSource("s", SCHEMA, "k", OperatorState.in_memory())


def test_rows_without_a_column_fail_the_queries_that_read_them():
    evaluation = added({"q": WindowOver(STREAM, UnboundedWindow())}, DictStore())
    outcome = evaluation.step({"s": pl.DataFrame({"t": [1]})}, 5)
    assert isinstance(outcome.failed["q"], SchemaError)
    assert "lack k" in str(outcome.failed["q"])


def sampled(rows, percent, seed=0, stream="5"):
    frame = pl.DataFrame({"k": range(rows), SEQUENCE: range(rows), TOMBSTONE: [False] * rows, TIME: [7] * rows})
    return SampleOperator(pa.schema([("k", LONG)]), percent, seed, stream).step(
        [frame.with_columns(pl.lit(1).alias(WEIGHT))], Span.first(9)
    )


def test_a_sample_has_its_share_and_is_the_same_again():
    assert 1800 < sampled(20_000, 10).height < 2200
    assert sampled(20_000, 10).equals(sampled(20_000, 10))
    one = set(sampled(20_000, 10)["k"])
    for other in (sampled(20_000, 10, seed=1), sampled(20_000, 10, stream="f" * 15), sampled(20_000, 10, 5, "0")):
        assert 150 < len(one & set(other["k"])) < 250
    assert sampled(1000, 0).height == 0
    assert sampled(1000, 100).height == 1000
    assert set(sampled(1000, 10)["k"]) < set(sampled(1000, 20)["k"])


def test_streams_have_samples_of_their_own_and_a_stream_one_for_all_readers():
    other = replace(STREAM, name="r")
    streams = {"one": STREAM, "two": other, "again": STREAM}
    plans = {name: WindowOver(Sample(each, 20.0), UnboundedWindow()) for name, each in streams.items()}
    evaluation = added(plans, DictStore())
    assert evaluation.operators == 6
    rows = pl.DataFrame({"t": range(1000), "k": [str(n) for n in range(1000)]})
    found = evaluation.step({"s": rows, "r": rows}, 2000).changes
    one, two, again = (set(found[name]["k"]) for name in plans)
    assert one == again
    assert 15 < len(one & two) < 70


def test_a_sample_is_taken_before_the_window():
    sample = Sample(STREAM, 40.0, 3)
    evaluation = added(
        {"some": WindowOver(sample, UnboundedWindow()), "newest": WindowOver(sample, RowWindow(5))}, DictStore()
    )
    rows = pl.DataFrame({"t": range(100), "k": [str(n) for n in range(100)]})
    changes = evaluation.step({"s": rows}, 100).changes
    some = changes["some"]["k"].to_list()
    assert 20 < len(some) < 60
    newest = changes["newest"].group_by("k").agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) > 0)
    assert sorted(newest["k"], key=int) == some[-5:]


def test_rows_of_changes_are_one_for_each_copy_in_the_order_of_their_columns():
    changes = pl.DataFrame({"k": ["b", "a"], TIME: [4, 4], WEIGHT: [1, 2]})
    found = ChangeStream(pa.schema([("k", TEXT)])).step([changes], Span.first(5))
    assert found.select("k", SEQUENCE, WEIGHT).rows() == [("a", 0, 1), ("a", 1, 1), ("b", 2, 1)]
    assert found.columns[:3] == stream_schema(pa.schema([("k", TEXT)])).names


STORED = Stream("names", pa.schema([("key", TEXT), ("name", TEXT)]), static=True)


def test_a_stored_relation_is_there_before_the_first_time_and_for_queries_that_come_later():
    on = ((column("k", TEXT), column("key", TEXT)),)
    join = Join(WindowOver(STREAM, UnboundedWindow()), WindowOver(STORED, UnboundedWindow()), "inner", on)
    evaluation = added({"q": join}, DictStore())
    names = pl.DataFrame({"key": ["a", "b"], "name": ["Ada", "Bob"]})
    changes = evaluation.step({"s": pl.DataFrame({"t": [3], "k": ["b"]}), "names": names}, 5).changes
    assert changes["q"].rows() == [(3, "b", "b", "Bob", 3, 1)]
    evaluation.add("later", WindowOver(STORED, UnboundedWindow()))
    outcome = evaluation.step({"names": names}, 6)
    assert outcome.changes["later"].select("name", TIME).sort("name").rows() == [("Ada", 4), ("Bob", 4)]
    assert outcome.late["names"].height == 2
