"""Keys of any type, alone and together, by any name: one row each, in the bucket that Spark would find it in."""

from __future__ import annotations

import datetime as dt
import decimal
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upstream.conf.errors import MalformedRowError, SchemaError
from upstream.frames.buckets import bucket_of
from upstream.frames.latest_table import BUCKET

D38 = pa.decimal128(38, 4)
TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.sampled_from([-128, 0, 127])),
    (pa.int64(), st.sampled_from([-(2**63), -1, 0, 2**63 - 1])),
    (pa.decimal128(9, 2), st.sampled_from([decimal.Decimal("0.10"), decimal.Decimal("-1234567.89")])),
    (D38, st.sampled_from([decimal.Decimal("1.0000"), decimal.Decimal("-" + "9" * 34 + ".0000")])),
    (pa.binary(), st.sampled_from([b"", b"\x00", b"\x00\x00", b"\xff\xfe", b"five5"])),
    (pa.string(), st.sampled_from(["", "a", "ä", "a\x00", "日本語"])),
    (pa.date32(), st.sampled_from([dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)])),
    (pa.timestamp("us", "UTC"), st.sampled_from([dt.datetime(1969, 1, 1, tzinfo=dt.timezone.utc)])),
    (pa.struct([("x", pa.int32()), ("y", pa.binary())]), st.sampled_from([{"x": 1, "y": b""}, {"x": 1, "y": b"1"}])),
]
NAMES = st.sampled_from(["k", "a.b", "ключ", "key'quoted", '"quotes"', "emoji😀", "K2"])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_key_is_one_row(make_sink: Any, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    names = data.draw(st.lists(NAMES, min_size=len(chosen), max_size=len(chosen), unique=True))
    columns = pa.schema([*zip(names, (kind for kind, _ in chosen), strict=True), ("t", pa.int64()), ("v", pa.int64())])
    keys = data.draw(st.lists(st.tuples(*(values for _, values in chosen)), max_size=12))
    with tempfile.TemporaryDirectory() as folder:
        sink = make_sink(columns, key=",".join(f"`{name}`" for name in names))
        sink.folder = Path(folder)
        sink.__post_init__()
        model: dict[str, int] = {}
        for batch_id, start in enumerate(range(0, len(keys), 4)):
            rows = [(*key, at, at) for at, key in enumerate(keys[start : start + 4], start)]
            sink.batch(batch_id, [sink.rows(rows, seq=start)])
            model |= {repr(as_read(row[:-2], chosen)): row[-1] for row in rows}
        if not keys:
            return
        found = sink.table()
        held = list(zip(*(found.column(name).to_pylist() for name in (*names, "v")), strict=True))
        assert {repr(row[:-1]): row[-1] for row in held} == model
        assert len(held) == len(model)
        assert (
            found.column(BUCKET).to_pylist()
            == bucket_of(
                [found.column(name).cast(kind) for name, (kind, _) in zip(names, chosen, strict=True)], 4
            ).tolist()
        )


@pytest.mark.parametrize(("row", "name"), [((None, {"x": 1}), "'k'"), ((1, None), "'s'"), ((1, {"x": None}), "'s'")])
def test_a_null_in_any_part_of_a_key_is_a_malformed_row(make_sink: Any, row: tuple[Any, ...], name: str) -> None:
    """In punctuation a null stands for all keys; in a row it stands for nothing."""
    columns = pa.schema([("k", pa.int64()), ("s", pa.struct([("x", pa.int64())])), ("t", pa.int64())])
    sink = make_sink(columns, key="k,s")
    with pytest.raises(MalformedRowError, match=f"1 of 2 rows have a null in the key column {name}"):
        sink.batch(0, [sink.rows([(1, {"x": 1}, 5), (*row, 5)])])


def test_a_field_of_a_struct_is_no_column(make_sink: Any) -> None:
    columns = pa.schema([("s", pa.struct([("x", pa.int64())])), ("t", pa.int64())])
    with pytest.raises(SchemaError, match=r"'s.x' is a field of the column 's'.*withColumn\(\"s_x\""):
        make_sink(columns, key="s.x").writer()


def test_deletions_by_a_column(make_sink: Any) -> None:
    """With and without the system column; the table does not have it."""
    columns = pa.schema([("k", pa.binary()), ("t", pa.int64()), ("gone", pa.bool_())])
    for system in (True, False):
        sink = make_sink(columns, system=system, deleteWhen="GONE", query_id=f"query-{system}")
        sink.folder /= sink.query_id
        sink.__post_init__()
        sink.batch(0, [sink.rows([(b"a", 1, False), (b"b", 1, None), (b"c", 1, True)])])
        summary = sink.batch(1, [sink.rows([(b"a", 2, True)], seq=9), sink.rows([(b"b", 0, True)], seq=10)])
        assert (summary.deleted, summary.older) == (1, 1)
        assert sink.latest() == {b"b": (1,)}
        sink.batch(2, [sink.rows([(b"a", 1, False)], seq=20)])
        assert set(sink.latest()) == {b"b"}


def as_read(key: tuple[Any, ...], chosen: list[Any]) -> tuple[Any, ...]:
    """A key as Arrow gives it back."""
    return tuple(pa.scalar(value, kind).as_py() for value, (kind, _) in zip(key, chosen, strict=True))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"deleteWhen": "v"}, "'v', which is of type string"),
        ({"deleteWhen": "op = 'D'"}, "is not among the columns"),
        ({"deleteWhen": "b", "key": "b"}, "which is of the key"),
    ],
)
def test_marks_that_cannot_be(make_sink: Any, options: dict[str, str], told: str) -> None:
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.string()), ("b", pa.bool_())])
    with pytest.raises(SchemaError, match=told):
        make_sink(columns, **options).writer()
