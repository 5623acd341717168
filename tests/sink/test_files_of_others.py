"""Files that Spark's OPTIMIZE and REORG, and others, write into a table: with other units of time, and another
calendar.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from upstream.sink.admin.check import check_table
from upstream.sink.merge import engine as engine_module
from upstream.sink.table.key_ranges import apart

ENGINES = ("rewrite", "vectors")
UTC = dt.timezone.utc
INSTANT = pa.timestamp("us", "UTC")
KEYED = pa.schema([("k", INSTANT), ("t", pa.int64()), ("v", pa.string())])
TIMED = pa.schema([("k", pa.int64()), ("t", INSTANT), ("all", pa.list_(INSTANT))])
FAR = dt.datetime(2500, 1, 1, 0, 0, 0, 123456, UTC)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)

# As Spark writes times by the setting spark.sql.parquet.outputTimestampType.
MILLIS = {"coerce_timestamps": "ms", "allow_truncated_timestamps": True}
INT96 = {"use_deprecated_int96_timestamps": True}


def at(second: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(seconds=second)


@pytest.mark.parametrize("form", [MILLIS, INT96], ids=["millis", "int96"])
def test_keys_in_files_with_another_unit_are_found(
    make_sink: Any, monkeypatch: pytest.MonkeyPatch, form: dict[str, Any]
) -> None:
    monkeypatch.setattr(engine_module, "_WORTH_KEEPING", 1)
    sink = make_sink(KEYED, buckets="2")
    sink.batch(0, [sink.rows([(at(key), 0, "old") for key in range(50)])])
    sink.written_by_others(**form)
    summary = sink.batch(1, [sink.rows([(at(key), 1, "new") for key in range(25, 75)], seq=50)])
    assert summary is not None
    assert summary.keys == sink.table().num_rows == 75
    assert [values[1] for _, values in sorted(sink.latest().items())] == ["old"] * 25 + ["new"] * 50
    assert check_table(str(sink.path)).healthy


def test_times_beyond_2262_in_int96(make_sink: Any) -> None:
    sink = make_sink(TIMED, buckets="2")
    old = dt.datetime(1000, 1, 1, tzinfo=UTC)
    before = {key: (FAR, [old, LAST, None]) for key in range(20)}
    sink.batch(0, [sink.rows([(key, *values) for key, values in before.items()])])
    sink.written_by_others(**INT96)
    assert "int96" in str(pq.ParquetFile(sink.path / min(sink.live_files())).schema)
    assert check_table(str(sink.path)).healthy
    assert sink.batch(1, [sink.rows([(0, FAR - dt.timedelta(microseconds=1), [])], seq=50)]).delivered == 0
    assert sink.batch(2, [sink.rows([(0, LAST, [FAR])], seq=60)]).delivered == 1
    assert sink.latest() == {**before, 0: (LAST, [FAR])}
    assert check_table(str(sink.path)).healthy
    # Conflicts read whole rows.
    assert sink.batch(3, [sink.rows([(1, FAR, [])], seq=70)]).conflicts == 1


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
def test_bounds_of_another_type_decide_nothing(tmp_path: Path, held: pa.Array) -> None:
    pq.write_table(pa.table({"k": held}), tmp_path / "held.parquet", store_decimal_as_integer=True)
    new = pa.array([7_000_000, 9_000_000], INSTANT)
    with pq.ParquetFile(tmp_path / "held.parquet") as file:
        assert file.metadata.row_group(0).column(0).statistics.has_min_max
        assert not apart([file], pa.table({"k": new}), ["k"])


@pytest.mark.parametrize(
    ("kind", "expected"), [(INSTANT, False), (pa.date32(), False), (pa.int64(), True)], ids=["time", "date", "number"]
)
def test_bounds_in_the_calendar_of_early_spark_decide_nothing(
    tmp_path: Path, kind: pa.DataType, expected: bool
) -> None:
    def table(*values: int) -> pa.Table:
        return pa.table({"k": pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)})

    with pq.ParquetWriter(tmp_path / "held.parquet", table().schema) as writer:
        writer.write_table(table(1, 2))
        writer.add_key_value_metadata({"org.apache.spark.legacyDateTime": ""})
    with pq.ParquetFile(tmp_path / "held.parquet") as file:
        assert apart([file], table(7, 8), ["k"]) is expected
