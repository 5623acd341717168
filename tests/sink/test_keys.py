"""Keys of any type, by any name, in files of others, too: one row each, in the bucket that Spark would find it in."""

import datetime as dt
import decimal
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upstream.conf.column_names import listed, path_name
from upstream.conf.errors import MalformedRowError, SchemaError, TableError
from upstream.core.rows.buckets import bucket_of
from upstream.delta_format.latest_table import BUCKET
from upstream.sink.admin.check import check_table
from upstream.sink.admin.layout_change import rebucket_table
from upstream.sink.admin.repair import repair_table
from upstream.sink.merge import engines
from upstream.sink.table.table import recorded_options

ENGINES = ("rewrite", "vectors")

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
NAMES = st.sampled_from(["k", "a.b", "ключ", "key'quoted", '"quotes"', "emoji😀", "K2", "two words", "a,b", "x=1;"])


def placed(name: str, depth: int, kind: pa.DataType) -> pa.Field:
    """A column that is a key's part, or has it as a field, so many structs deep, beside another field."""
    for _ in range(depth):
        kind = pa.struct([("beside", pa.int64()), ("in.ner", kind)])
    return pa.field(name, kind)


def wrapped(value: Any, depth: int, beside: int) -> Any:
    for _ in range(depth):
        value = {"beside": beside, "in.ner": value}
    return value


def unwrapped(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = value["in.ner"]
    return value


def leaf(column: pa.ChunkedArray, depth: int) -> pa.ChunkedArray:
    return pc.struct_field(column, ["in.ner"] * depth) if depth else column


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_key_is_one_row(new_sink, data):
    chosen = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    count = len(chosen)
    names = data.draw(st.lists(NAMES, min_size=count, max_size=count, unique=True))
    depths = data.draw(st.lists(st.sampled_from([0, 0, 1, 2]), min_size=count, max_size=count))
    parts = list(zip(names, depths, (kind for kind, _ in chosen), strict=True))
    columns = pa.schema([*(placed(*part) for part in parts), pa.field("t", pa.int64()), pa.field("v", pa.int64())])
    keys = data.draw(st.lists(st.tuples(*(values for _, values in chosen)), max_size=12))
    key = listed(path_name([name, *["in.ner"] * depth]) for name, depth, _ in parts)
    sink = new_sink(columns, key=key)
    model: dict[str, int] = {}
    for batch_id, start in enumerate(range(0, len(keys), 4)):
        given_keys = list(enumerate(keys[start : start + 4], start))
        rows = [(*map(wrapped, key, depths, [at] * count), at, at) for at, key in given_keys]
        sink.batch(batch_id, [sink.rows(rows, seq=start)])
        model |= {repr(as_read(key, chosen)): at for at, key in given_keys}
    if not keys:
        return
    found = sink.table()
    held = list(zip(*(found.column(name).to_pylist() for name in (*names, "v")), strict=True))
    assert {repr(tuple(map(unwrapped, row[:-1], depths))): row[-1] for row in held} == model
    assert len(held) == len(model)
    leaves = [leaf(found.column(name), depth).cast(kind) for name, depth, kind in parts]
    assert found.column(BUCKET).to_pylist() == bucket_of(leaves, 4).tolist()
    assert check_table(str(sink.path)).healthy


@pytest.mark.parametrize(("row", "name"), [((None, {"x": 1}), "'k'"), ((1, None), "'s'"), ((1, {"x": None}), "'s'")])
def test_a_null_in_any_part_of_a_key_is_a_malformed_row(make_sink, row, name):
    columns = pa.schema([("k", pa.int64()), ("s", pa.struct([("x", pa.int64())])), ("t", pa.int64())])
    sink = make_sink(columns, key="k,s")
    with pytest.raises(MalformedRowError, match=f"1 of 2 rows have a null in the key column {name}"):
        sink.batch(0, [sink.rows([(1, {"x": 1}, 5), (*row, 5)])])


POSITION = pa.struct([("id", pa.int64()), ("at", pa.struct([("x", pa.int64())]))])
NESTED = pa.schema([("position", POSITION), ("t", pa.int64()), ("v", pa.string())])


def place(key: int, x: int = 0) -> dict[str, Any]:
    return {"id": key, "at": {"x": x}}


@pytest.mark.parametrize("row", [None, {"id": None, "at": {"x": 1}}])
def test_a_null_on_the_way_to_a_field_is_a_null_in_the_key(make_sink, row):
    sink = make_sink(NESTED, key="position.id")
    with pytest.raises(MalformedRowError, match=r"null in the key column '`position`.`id`'"):
        sink.batch(0, [sink.rows([(place(1), 5, "x"), (row, 5, "y")])])


@pytest.mark.parametrize(
    ("key", "recorded"),
    [
        ("position.id", ["`position`.`id`"]),
        ("POSITION.at.X", ["`position`.`at`.`x`"]),
        ("`position`.id,v", ["`position`.`id`", "v"]),
        ("position", ["position"]),
    ],
)
def test_what_a_name_means(make_sink, key, recorded):
    sink = make_sink(NESTED, key=key)
    sink.batch(0, [sink.rows([(place(1), 5, "x")])])
    assert json.loads(DeltaTable(str(sink.path)).metadata().configuration["upstream.key"]) == recorded
    again = recorded_options(sink.given)
    assert make_sink(NESTED, key=again["key"]).batch(1, [sink.rows([(place(1), 6, "x")], seq=5)]).keys == 1


def test_a_column_with_a_dot_comes_before_a_field(make_sink):
    both = pa.schema([*NESTED, ("position.id", pa.int64())])
    assert make_sink(both, key="position.id").writer()._writer.layout.key == ("position.id",)
    sink = make_sink(NESTED, key="position.id")
    sink.batch(0, [sink.rows([(place(1), 5, "x")])])
    with pytest.raises(TableError, match=r"has key \[\"`position`.`id`\"\], this query has \[\"position.id\"\]"):
        make_sink(both, key="position.id", schemaEvolution="add").writer()
    later = make_sink(both, key="`position`.id", schemaEvolution="add", query_id="query-2")
    later.batch(0, [later.rows([(place(1), 6, "y", 7), (place(2), 6, "y", 7)], seq=5)])
    assert later.table().num_rows == 2


@pytest.mark.parametrize("key", ["position.nothing", "position.id.x", "v.x", "`position.id`", "position..id"])
def test_what_no_name_means(make_sink, key):
    with pytest.raises(SchemaError, match="is not among the columns position, t, v"):
        make_sink(NESTED, key=key).writer()


def test_only_parts_of_the_key_are_fields(make_sink):
    with pytest.raises(SchemaError, match=r"time column 'position.id'"):
        make_sink(NESTED, key="v", eventTime="position.id").writer()
    many = pa.schema([("position", pa.struct([("many", pa.list_(pa.int64()))])), *list(NESTED)[1:]])
    with pytest.raises(SchemaError, match=r"key column '`position`\.`many`' is of type array<long>"):
        make_sink(many, key="position.many").writer()


def test_a_table_by_a_field(make_sink, tmp_path):
    sink = make_sink(NESTED, key="position.id", deadLetterRows="conflicts")
    sink.batch(0, [sink.rows([(place(key), 5, "x") for key in range(30)])])
    first = sink.batch(1, [sink.rows([(place(1, 7), 5, "x"), (place(2), 5, "x"), (place(3, 9), 4, "old")], seq=50)])
    assert (first.conflicts, first.keys) == (1, 30), "the field beside the key differs"
    gone = np.array([True])
    assert sink.batch(2, [sink.rows([(place(4, 3), 6, None)], seq=60, deleted=gone)]).deleted == 1
    sink.batch(3, [sink.rows([(place(4), 5, "late")], seq=70)])

    def held() -> dict[int, tuple[int, str]]:
        return {row["position"]["id"]: (row["position"]["at"]["x"], row["v"]) for row in sink.table().to_pylist()}

    expected = {key: (7 if key == 1 else 0, "x") for key in range(30) if key != 4}
    assert held() == expected
    assert check_table(str(sink.path), source=str(sink.path)).healthy
    rebucket_table(str(sink.path), 8)
    again = make_sink(NESTED, key="position.id", buckets="8")
    assert again.batch(4, [again.rows([(place(4), 5, "late"), (place(5), 8, "z")], seq=80)]).keys == 29
    assert held() == expected | {5: (0, "z")}
    pq.write_table(pa.table({"position": [place(77), None, place(5)], "t": [9, 9, 8]}), tmp_path / "source.parquet")
    (finding,) = check_table(str(sink.path), source=str(tmp_path / "source.parquet")).findings
    assert "1 keys of the source are newer there, or only there (such as 77)" in finding.text
    (sink.path / min(sink.live_files())).write_bytes(b"no Parquet")
    assert repair_table(str(sink.path), force=True).done
    assert check_table(str(sink.path)).healthy


def as_read(key: tuple[Any, ...], chosen: list[Any]) -> tuple[Any, ...]:
    return tuple(pa.scalar(value, kind).as_py() for value, (kind, _) in zip(key, chosen, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deleteWhen": "v"}, "'v', which is of type string"),
        ({"deleteWhen": "op = 'D'"}, "is not among the columns"),
        ({"deleteWhen": "b", "key": "b"}, "which is of the key"),
    ],
)
def test_marks_that_cannot_be(make_sink, options, message):
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.string()), ("b", pa.bool_())])
    with pytest.raises(SchemaError, match=message):
        make_sink(columns, **options).writer()


UTC = dt.timezone.utc
INSTANT = pa.timestamp("us", "UTC")
KEYED = pa.schema([("k", INSTANT), ("t", pa.int64()), ("v", pa.string())])

FAR = dt.datetime(2500, 1, 1, 0, 0, 0, 123456, UTC)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)

# As Spark writes times by the setting spark.sql.parquet.outputTimestampType.
MILLIS = {"coerce_timestamps": "ms", "allow_truncated_timestamps": True}
INT96 = {"use_deprecated_int96_timestamps": True}


def at(second: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(seconds=second)


@pytest.mark.parametrize("form", [MILLIS, INT96], ids=["millis", "int96"])
def test_keys_in_files_with_another_unit_are_found(make_sink, monkeypatch, form):
    monkeypatch.setattr(engines, "_WORTH_KEEPING", 1)
    sink = make_sink(KEYED, buckets="2")
    sink.batch(0, [sink.rows([(at(key), 0, "old") for key in range(50)])])
    sink.written_by_others(**form)
    summary = sink.batch(1, [sink.rows([(at(key), 1, "new") for key in range(25, 75)], seq=50)])
    assert summary is not None
    assert summary.keys == sink.table().num_rows == 75
    assert [values[1] for _, values in sorted(sink.latest().items())] == ["old"] * 25 + ["new"] * 50
    assert check_table(str(sink.path)).healthy


def test_times_beyond_2262_in_int96(make_sink):
    columns = pa.schema([("k", pa.int64()), ("t", INSTANT), ("all", pa.list_(INSTANT))])
    sink = make_sink(columns, buckets="2")
    old = dt.datetime(1000, 1, 1, tzinfo=UTC)
    before = {key: (FAR, [old, LAST, None]) for key in range(20)}
    sink.batch(0, [sink.rows([(key, *values) for key, values in before.items()])])
    sink.written_by_others(**INT96)
    assert "int96" in str(pq.ParquetFile(sink.path / min(sink.live_files())).schema)
    assert check_table(str(sink.path)).healthy
    assert sink.batch(1, [sink.rows([(0, FAR - dt.timedelta(microseconds=1), [])], seq=50)]).applied == 0
    assert sink.batch(2, [sink.rows([(0, LAST, [FAR])], seq=60)]).applied == 1
    assert sink.latest() == {**before, 0: (LAST, [FAR])}
    assert check_table(str(sink.path)).healthy
    # Conflicts read whole rows.
    assert sink.batch(3, [sink.rows([(1, FAR, [])], seq=70)]).conflicts == 1


def test_the_newest_few_by_a_field(make_sink):
    sink = make_sink(NESTED, key="position.id", history="latest 2")
    for number in range(4):
        sink.batch(number, [sink.rows([(place(1, number), number, "x"), (place(2), 1, "y")], seq=10 * number)])
    found = sorted((row["position"]["id"], row["t"]) for row in sink.table().to_pylist())
    assert found == [(1, 2), (1, 3), (2, 1)]
