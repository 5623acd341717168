"""Rows that meet no row of the table lie beside its files; whatever comes, the table is that of a plain computation."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upstream.datasource.connectors.latest_table.table import TableLog
from upstream.sink.admin.check import check_table
from upstream.sink.merge import engines
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table.files import ROW_GROUP, DataFiles, apart
from upstream.storage.folder import TableFolder

WINDOWS = pa.schema([("k", pa.string()), ("w", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
KEYED = {"key": "k,w", "eventTime": "t", "buckets": "2"}

Row = tuple[str, int, int, int]

INSTANT = pa.timestamp("us", "UTC")


@pytest.fixture
def beside_at_once(monkeypatch):
    monkeypatch.setattr(engines, "_WORTH_KEEPING", 1)
    monkeypatch.setattr(engines, "_MOST_FILES", 3)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(
        st.tuples(
            st.integers(-2, 2),
            st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 2)), max_size=8),
            st.integers(1, 2),
        ),
        max_size=8,
    )
)
@pytest.mark.usefixtures("beside_at_once")
def test_windows_that_mostly_grow_and_are_sometimes_corrected(new_sink, batches):
    expected: dict[tuple[str, int], tuple[int, int]] = {}
    sink = new_sink(WINDOWS, **KEYED)
    base = number = 0
    for batch_id, (step, rows, tasks) in enumerate(batches):
        base += 3 * step if step < 0 else 4 * step
        found: list[Row] = []
        for key, window, time in rows:
            found.append((key, base + window, time, number))
            if time >= expected.get((key, base + window), (time, 0))[0]:
                expected[key, base + window] = (time, number)
            number += 1
        parts = [sink.rows([row], seq=row[3]) for row in found]
        summary = sink.batch(batch_id, *[parts[task::tasks] for task in range(tasks)])
        assert sink.batch(batch_id, *[parts[task::tasks] for task in range(tasks)]) is None, "a repeat"
        if summary is not None:
            assert summary.keys == len(expected) == sink.table().num_rows
    if expected:
        table = sink.table()
        columns = [table.column(name).to_pylist() for name in ("k", "w", "t", "n")]
        assert {(k, w): (t, n) for k, w, t, n in zip(*columns, strict=True)} == expected


def grown(sink: Any, batches: int, rows: int) -> Any:
    numbers = np.random.default_rng(5)
    for batch_id in range(batches):
        some = numbers.integers(0, 2**60, (rows, 2)).tolist()
        given_rows = [(f"k{at}", batch_id, time, value) for at, (time, value) in enumerate(some)]
        summary = sink.batch(batch_id, [sink.rows(given_rows, seq=rows * batch_id)])
        assert (summary.applied, summary.keys) == (rows, rows * (batch_id + 1))
    return sink


def test_what_a_growing_table_writes_follows_what_comes(make_sink, monkeypatch):
    monkeypatch.setattr(engines, "_WORTH_KEEPING", 1)
    monkeypatch.setattr(engines, "_MOST_FILES", 4)
    sink = grown(make_sink(WINDOWS, **{**KEYED, "buckets": "1"}, maintenance="off"), 64, 300)
    assert all(len(sink.live_files(version)) <= 4 for version in range(50, sink.version() + 1, 3))
    table = sum((sink.path / each).stat().st_size for each in sink.live_files())
    assert sum((sink.path / each).stat().st_size for each in sink.files()) <= table * (1 + math.log2(64))
    report = check_table(str(sink.path))
    assert report.healthy, report.findings
    # Single files leave by an entry of our own, which asks nothing more of readers than before.
    assert DeltaTable(str(sink.path)).protocol().min_reader_version == 1
    assert DeltaTable(str(sink.path), version=40).to_pyarrow_table().num_rows == 300 * 40


@pytest.mark.usefixtures("beside_at_once")
def test_those_who_follow_a_growing_table_get_each_row_once(make_sink):
    sink = grown(make_sink(WINDOWS, **{**KEYED, "buckets": "1"}), 9, 3)
    log, table_id = TableLog(TableFolder(str(sink.path))), str(DeltaTable(sink.path).metadata().id)
    for version in range(1, sink.version() + 1):
        found = log.applied(version, table_id)
        assert found is not None
        ((path, fresh),) = found.rows.items()
        windows = pq.ParquetFile(sink.path / path).read(columns=["w"]).column("w").to_pylist()
        assert windows[-fresh:] == [version - 1] * 3


@pytest.mark.usefixtures("beside_at_once")
def test_where_no_entry_of_our_own_is_written_the_bucket_is_written_as_one(make_sink):
    sink = grown(make_sink(WINDOWS, **{**KEYED, "buckets": "1"}), 2, 4)
    DeltaTable(str(sink.path)).alter.add_feature(TableFeatures.VariantType, allow_protocol_versions_increase=True)
    counts: list[int] = []
    for batch_id in range(2, 5):
        sink.batch(batch_id, [sink.rows([("a", batch_id, 1, 1)])])
        counts.append(len(sink.live_files()))
    assert counts == [3, 1, 2]
    assert sink.table().num_rows == 11


@pytest.mark.parametrize(
    ("held", "new", "expected"),
    [
        ([1, 5], [6, 9], True),
        ([6, 9], [1, 5], True),
        ([1, 5], [5], False),
        ([1, 9], [4], False),
        ([-9, -3], [-2, 4], True),
    ],
)
@pytest.mark.parametrize("kind", [pa.int64(), pa.int16(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")])
def test_bounds_decide(tmp_path, kind, held, new, expected):
    def table(values: list[int]) -> pa.Table:
        column = pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
        return pa.table({"s": ["same"] * len(values), "a.b": column})

    pq.write_table(table(held), tmp_path / "held.parquet")
    with pq.ParquetFile(tmp_path / "held.parquet") as file:
        assert apart([file], table(new), ["s", "a.b"]) is expected
        assert apart([file], table(new), ["s"]) is False


@pytest.mark.parametrize("kind", [pa.uint64(), pa.float64(), pa.string(), pa.decimal128(20)])
def test_columns_whose_bounds_are_not_exact_decide_nothing(tmp_path, kind):
    pq.write_table(pa.table({"k": pa.array([1, 2]).cast(kind)}), tmp_path / "held.parquet")
    with pq.ParquetFile(tmp_path / "held.parquet") as file:
        assert apart([file], pa.table({"k": pa.array([7, 8]).cast(kind)}), ["k"]) is False
        assert apart([], pa.table({"k": pa.array([7, 8]).cast(kind)}), ["k"]) is False


@pytest.mark.parametrize(
    "held",
    [
        pa.array([1, 2], pa.timestamp("ms", "UTC")),
        pa.array([1000, 2000], pa.timestamp("ns", "UTC")),
        pa.array([1, 2], pa.int64()),
        pa.array([1, 2], pa.int32()).cast(pa.date32()),
        pa.array([1, 2], pa.int32()).cast(pa.decimal128(10)),
    ],
    ids=lambda held: str(held.type),
)
def test_bounds_of_another_type_decide_nothing(tmp_path, held):
    pq.write_table(pa.table({"k": held}), tmp_path / "held.parquet", store_decimal_as_integer=True)
    new = pa.array([7_000_000, 9_000_000], INSTANT)
    with pq.ParquetFile(tmp_path / "held.parquet") as file:
        assert file.metadata.row_group(0).column(0).statistics.has_min_max
        assert not apart([file], pa.table({"k": new}), ["k"])


@pytest.mark.parametrize(
    ("kind", "expected"), [(INSTANT, False), (pa.date32(), False), (pa.int64(), True)], ids=["time", "date", "number"]
)
def test_bounds_in_the_calendar_of_early_spark_decide_nothing(tmp_path, kind, expected):
    def table(*values: int) -> pa.Table:
        return pa.table({"k": pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)})

    with pq.ParquetWriter(tmp_path / "held.parquet", table().schema) as writer:
        writer.write_table(table(1, 2))
        writer.add_key_value_metadata({"org.apache.spark.legacyDateTime": ""})
    with pq.ParquetFile(tmp_path / "held.parquet") as file:
        assert apart([file], table(7, 8), ["k"]) is expected


def test_files_apart_by_a_field_and_by_a_column_that_looks_like_one(tmp_path):
    rows = pa.table({"a": [{"b": 1}, {"b": 9}], "c": [{"d": 1}, {"d": 9}], "a.b": [100, 200]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    with pq.ParquetFile(tmp_path / "rows.parquet") as file:
        after, among = (pa.table({"c": [{"d": value}], "a.b": [value]}) for value in (10, 5))
        assert apart([file], after, ["`c`.`d`"])
        assert not apart([file], among, ["`c`.`d`"])
        # Its footer has two columns of the path a.b.
        assert not apart([file], pa.table({"a.b": [50]}), ["a.b"])


def test_rows_near_a_key_are_those_of_the_row_groups_that_may_have_it(tmp_path):
    schema = pa.schema([("c", pa.struct([("k", pa.int64())])), ("v", pa.string())])
    files = DataFiles(parse_sink_options({"path": str(tmp_path), "key": "c.k"}, started=False), schema)
    numbers = np.arange(3 * ROW_GROUP)
    rows = pa.table(
        [pa.StructArray.from_arrays([pa.array(numbers)], ["k"]), pa.array(["x"] * len(numbers))], schema=schema
    )
    path, _ = files.write_rows(rows)
    at, keys = files.near(path, ["`c`.`k`"], pa.table({"0": [ROW_GROUP + 5]}))
    assert (at[0], len(at), keys.num_rows, keys.column_names) == (ROW_GROUP, ROW_GROUP, ROW_GROUP, ["c"])
    assert keys.column("c")[5].as_py() == {"k": ROW_GROUP + 5}
    at, keys = files.near(path, ["`c`.`k`"], pa.table({"0": [-1]}))
    assert (len(at), keys.num_rows) == (0, 0)
