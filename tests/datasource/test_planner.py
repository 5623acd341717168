"""A batch is a pure function of its journaled offsets: replays, splits, coalescing, punctuation."""

import itertools
import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kit.journal import through_json
from kit.memory_connector import MemoryConnector
from pyspark.sql.pandas.types import from_arrow_schema

from upstream.conf.errors import CheckpointError, MalformedRowError, OptionError, SchemaError
from upstream.core.rows import newest
from upstream.core.rows.key import Key
from upstream.core.watermark.bounds import beginning
from upstream.datasource.connectors.contract import Advance, Chunk, Limit, Position, Range
from upstream.datasource.options import SourceOptions
from upstream.datasource.planner import BatchPlanner, Task
from upstream.datasource.schema import leaving_schema, shape_of
from upstream.datasource.task import Reading
from upstream.delta_format.append_table import DEAD_LETTERS, count_dead_letters
from upstream.storage.folder import folder_at

from .driven_feeds import NUMBERED, DearConnector, table_of


def options(**changes):
    base = {"key": Key(("k",)), "time": "ms", "time_format": "epoch_ms", "progress_delay_us": 5000, "confirmations": 1}
    return SourceOptions(**{**base, **changes})


def shape(given_options, schema=NUMBERED):
    return shape_of(leaving_schema(schema, given_options), given_options)


def reading(opts):
    return Reading(opts, shape(options()), MemoryConnector({"a": table_of([])}), "unused")


def run(connector, opts, limits, dead_letters="unused"):
    """Plan and read batches; every batch is read twice, once by a restarted planner from the journal's JSON."""
    clock = itertools.count(1_000_000, 500)
    start, of_rows = BatchPlanner.initial(), shape(opts, connector.schema())
    reading = Reading(opts, of_rows, connector, dead_letters)

    def read(planner, *offsets):
        return [row for task in planner.tasks(*offsets) for batch in reading.read(task) for row in batch.to_pylist()]

    for limit in limits:
        planner = BatchPlanner(connector, opts, of_rows, clock=lambda: next(clock), new_id=lambda: "test")
        end = planner.plan(start, Limit(rows=limit))
        rows = read(planner, start, end)
        assert read(BatchPlanner(connector, opts, of_rows, clock=lambda: 0), *through_json([start, end])) == rows
        yield start, end, rows
        start = through_json(end)


def run_once(rows, dead_letters="unused", **changes):
    """The end and the rows of one batch of all that there is."""
    table = rows if isinstance(rows, pa.Table) else table_of(rows)
    ((_, end, found),) = run(
        MemoryConnector({"a": table}), options(**changes), [None], dead_letters and str(dead_letters)
    )
    return end, found


def data_rows(rows):
    return [row for row in rows if not row["_upstream"]["punctuation"]]


feeds = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=40),
    min_size=1,
)


@settings(max_examples=60, deadline=None)
@given(feeds, st.lists(st.integers(1, 20), max_size=8))
def test_any_split_delivers_every_row_once_in_order_with_true_punctuation(data, limits):
    connector = MemoryConnector({feed: table_of(list(rows)) for feed, rows in data.items()})
    promised: dict[str, int] = {}
    applied: dict[str, list[tuple[Any, ...]]] = {feed: [] for feed in data}
    last_seq = -1
    counted = 0
    for _, end, rows in run(connector, options(), [*limits, None, None]):
        counted = sum(state["late"] for state in end.get("progress", {}).values())
        for row in sorted(rows, key=lambda row: (row["_upstream"]["seq"], row["_upstream"]["punctuation"])):
            system = row["_upstream"]
            if system["punctuation"]:
                assert row["k"] is None
                assert row["v"] is None
                if row["ms"] == beginning(pa.int64()).as_py():  # no promise: the feed is there, and its rows wait
                    assert system["source"] not in promised
                    continue
                assert row["ms"] > promised.get(system["source"], -(10**9))
                promised[system["source"]] = row["ms"]
                continue
            assert system["seq"] > last_seq
            last_seq = system["seq"]
            assert system["covered"] == 1
            assert system["first_arrival"] == system["arrival"]
            applied[system["source"]].append((row["k"], row["ms"], row["v"]))
    assert applied == {feed: [tuple(row) for row in rows] for feed, rows in data.items()}
    assert promised == {feed: max(row[1] for row in rows) - 5 for feed, rows in data.items()}
    assert counted >= 0


@settings(max_examples=60, deadline=None)
@given(feeds, st.lists(st.integers(1, 20), max_size=8), st.sampled_from([1, 4, 500_000]))
def test_coalescing_keeps_the_newest_and_accounts_for_the_rest(data, limits, together):
    connector = MemoryConnector({feed: table_of(list(rows)) for feed, rows in data.items()})
    best: dict[str, dict[str, Any]] = {}
    covered = 0
    with mock.patch.object(newest, "_BRING_TOGETHER", together):
        batches = list(run(connector, options(coalesce=True), [*limits, None]))
    for _, end, rows in batches:
        for row in data_rows(rows):
            covered += row["_upstream"]["covered"]
            assert row["_upstream"]["first_arrival"] <= row["_upstream"]["arrival"]
            rank = (row["ms"], row["_upstream"]["seq"])
            if row["k"] not in best or rank >= (best[row["k"]]["ms"], best[row["k"]]["_upstream"]["seq"]):
                best[row["k"]] = row
        assert len(data_rows(rows)) <= 3 * len(data) * max(len(end.get("tasks", ())), 1)
    assert covered == sum(map(len, data.values()))
    for key, row in best.items():
        assert row["ms"] == max(each[1] for rows in data.values() for each in rows if each[0] == key)


def spans_of_tasks(spans: list[int], tasks: int) -> list[list[int]]:
    """How a batch of ranges of these spans is divided among so many tasks."""

    class Spans(MemoryConnector):
        def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
            ranges = [Range("a", {"number": number}, span, now_us) for number, span in enumerate(spans)]
            return Advance({"a": len(spans)}, ranges, frozenset())

    # Without keys or punctuation nothing is looked at.
    opts = options(min_partitions=tasks, punctuation=False, key=Key())
    planner = BatchPlanner(Spans({"a": table_of([])}), opts, shape(opts), clock=lambda: 1)
    end = planner.plan(BatchPlanner.initial(), Limit())
    divided = [[part for _, part in task.ranges] for task in planner.tasks(BatchPlanner.initial(), end)]
    assert [part.place["number"] for group in divided for part in group] == list(range(len(spans)))
    return [[part.span for part in group] for group in divided]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 8))
@example([99, 100], 2)
@example([100, 99], 2)
def test_no_task_has_more_than_its_share_and_one_range(spans, tasks):
    divided = spans_of_tasks(spans, tasks)
    assert 1 <= len(divided) <= tasks
    assert all(divided)
    share = sum(spans) / min(tasks, len(spans))
    assert max(map(sum, divided)) <= share + max(spans)
    # Of two files of about one length each task gets one.
    assert len(spans) != 2 or tasks < 2 or divided == [spans[:1], spans[1:]]


def test_where_comes_before_coalescing_and_null_is_not_true():
    given_rows = [("x", 1, 5), ("x", 2, 1), ("y", 3, 0)]
    _, rows = run_once(given_rows, coalesce=True, where="v >= 5 AND k <> 'q'", punctuation=False)
    assert [(row["k"], row["ms"], row["v"]) for row in rows] == [("x", 1, 5)]
    with pytest.raises(SchemaError, match="where='w > 1'"):
        reading(options(where="w > 1"))


@pytest.mark.parametrize(
    "sql",
    ["v > avg(v)", "first(k) = 'x'", "row_number() OVER (ORDER BY v) = 1", "sum(v) OVER (PARTITION BY k) > 3"],
)
def test_a_condition_sees_one_row(sql):
    with pytest.raises(OptionError, match="other rows"):
        reading(options(where=sql))


@pytest.mark.parametrize(
    "sql",
    ["k LIKE 'x%' AND lower(k) IN ('Len', 'Agg')", "true", "regexp_like(k, 'Rank.*')", "k || 'x' = 'Sort'"],
)
def test_a_condition_on_one_row_is_taken(sql):
    reading(options(where=sql))


def test_a_bound_beyond_the_year_9999_in_a_checkpoint_can_be_read():
    seconds = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    opts = SourceOptions(key=Key(("k",)), time="at")
    made = shape_of(leaving_schema(seconds, opts), opts)
    bound = 1_718_000_000_000_000_000
    reading = Reading(opts, made, MemoryConnector({"a": seconds.empty_table()}), "unused")
    (batch,) = reading.read(Task("b", 0, [], {"a": bound}, 1_718_000_000_000_000))
    assert batch.column("at").cast(pa.int64()).to_pylist() == [bound]


def test_without_a_table_for_it_the_first_malformed_row_stops_the_query():
    with pytest.raises(MalformedRowError, match=r"is null.* deadLetters, or the query's checkpointLocation"):
        run_once([("x", 5, 1), (None, 6, 1)], None)


def test_rows_of_no_year_are_put_aside_and_move_nothing(tmp_path):
    ms = 1_718_000_000_000
    end, rows = run_once([("x", ms, 1), ("y", ms * 1000, 2)], tmp_path)
    assert [row["k"] for row in data_rows(rows)] == ["x"]
    assert end["punctuation"] == {"a": ms * 1000 - 5000}
    assert count_dead_letters(folder_at(str(tmp_path))) == 1


@pytest.mark.parametrize("kind", [MemoryConnector, DearConnector])
@pytest.mark.parametrize(
    ("a", "b", "progress", "lacks"),
    [
        ([("x", None, 1)], [], "bounded", "a time in the column 'ms'"),
        ([("x", 10**18, 1), ("x", None, 1)], [], "bounded", "a time in the column 'ms'"),
        *(
            ([(None, 5 + at, 1) for at in range(9)], [], progress, "a key in the column 'k';")
            for progress in ("bounded", "embedded", "none")
        ),
        ([("x", None, 1)], [(None, 5, 1)], "bounded", "a key in the column 'k' and a time in the column 'ms'"),
    ],
)
def test_a_first_batch_of_which_no_row_can_be_used_is_refused(tmp_path, kind, a, b, progress, lacks):
    """Whether the driver is to look at its times or tasks are."""
    connector = kind({"a": table_of(a), "b": table_of(b)})
    with pytest.raises(SchemaError, match=f"none of the {len(a) + len(b)} rows .* has {lacks}"):
        list(run(connector, options(progress=progress, checkpoint_location=str(tmp_path)), [None]))


def test_the_look_for_a_key_ends_at_the_first_one(tmp_path):
    class Counting(MemoryConnector):
        read_for_keys = 0

        def read(self, part: Range, columns: Any, malformed: Any) -> Iterator[Chunk]:
            for chunk in super().read(part, columns, malformed):
                self.read_for_keys += columns == ["k", "ms"]
                yield chunk

    connector = Counting({"a": table_of([(None, 1, 1)] * 4 + [("x", 5, 1)] * 40)})  # type: ignore[list-item]
    list(run(connector, options(), [20, 10, 14], str(tmp_path)))
    assert connector.read_for_keys == 2, "of three rows each, and in the first batch alone"


def test_later_batches_and_mixed_ones_may_be_malformed(tmp_path):
    connector = MemoryConnector({"a": table_of([("x", None, 1), ("y", 5, 1), ("z", None, 1)])}, most=1)
    batches = list(run(connector, options(), [2, 1], str(tmp_path)))
    assert [row["k"] for _, _, rows in batches for row in data_rows(rows)] == ["y"]
    assert count_dead_letters(folder_at(str(tmp_path))) == 2


def test_rows_without_key_or_time_are_put_aside_once_and_counted(tmp_path):
    given_rows = [("x", 1, 5), (None, 2, 1), ("y", None, 0), ("z", 3, 3)]
    _, rows = run_once(given_rows, tmp_path, punctuation=False)
    assert [row["k"] for row in rows] == ["x", "z"]
    recorded = pl.read_delta(str(tmp_path)).to_dicts()
    assert [list(row) for row in recorded] == [DEAD_LETTERS.names] * 2, "once, although the batch was read twice"
    assert "the key column 'k' is null" in recorded[0]["reason"]
    assert recorded[0]["origin"].startswith("a, row 2 of")
    assert json.loads(recorded[1]["payload"]) == {"k": "y", "ms": None, "v": 0}
    with pytest.raises(MalformedRowError, match=r"row 2.*'k' is null"):
        run_once(given_rows, on_malformed="fail")


def test_embedded_punctuation_is_consumed_and_that_for_one_key_passes():
    rows = [("x", 10, 1), (None, 10, None), ("y", 12, 2), ("y", 11, None), ("x", 11, 3)]
    _, out = run_once(rows, progress="embedded")
    assert [(row["k"], row["ms"], row["v"]) for row in data_rows(out)] == [("x", 10, 1), ("y", 12, 2), ("x", 11, 3)]
    marks = [(row["k"], row["ms"]) for row in out if row["_upstream"]["punctuation"]]
    assert marks == [("y", 11), (None, 10)]


def test_embedded_punctuation_with_a_part_of_the_key_passes_too():
    rows = {"k": ["x", "x", None, None], "r": [1, None, 2, None], "ms": [10, 11, 12, 13], "v": [7, None, None, None]}
    _, out = run_once(pa.table(rows), progress="embedded", key=Key(("k", "r")))
    assert [(row["k"], row["r"]) for row in data_rows(out)] == [("x", 1)]
    marks = [(row["k"], row["r"], row["ms"]) for row in out if row["_upstream"]["punctuation"]]
    assert marks == [("x", None, 11), (None, 2, 12), (None, None, 13)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version 99"),
        ({"connector": "replay"}, "written by connector=replay"),
        ({"schema": json.dumps([["k", "int64"]])}, "written for the columns k int64"),
    ],
)
def test_an_incompatible_checkpoint_is_refused_with_the_remedy(change, message):
    end, _ = run_once([("x", 1, 1)])
    planner = BatchPlanner(
        MemoryConnector({"a": table_of([("x", 1, 1)])}), options(), shape(options()), clock=lambda: 0
    )
    with pytest.raises(CheckpointError, match=message) as caught:
        planner.plan({**end, **change}, Limit())
    assert "What to do:" in str(caught.value)


def test_a_gap_in_the_journal_is_refused():
    connector = MemoryConnector({"a": table_of([("x", 1, 1)] * 9)})
    batches = list(run(connector, options(), [3, 3]))
    planner = BatchPlanner(connector, options(), shape(options()), clock=lambda: 0)
    with pytest.raises(CheckpointError, match="batch 2 was requested from batch 0"):
        planner.tasks(batches[0][0], batches[1][1])


def test_schemas_of_the_source_are_what_spark_takes():
    struct = leaving_schema(NUMBERED, options())
    assert struct.fieldNames() == ["k", "ms", "v", "_upstream"]
    with pytest.raises(Exception, match="has no column '_upstream'"):
        shape_of(from_arrow_schema(NUMBERED), options())
