"""Tables of every kind, written by the sink's own classes, and the rows that readers are to find."""

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from kit.sink import Sink

UTC = dt.timezone.utc
Rows = list[dict[str, Any]]

_WIDE = decimal.Decimal("9" * 28 + "." + "9" * 10)

# Of each kind the columns beside k and t, and a row of them for each key: values at the ends of their types, and nulls.
KINDS: dict[str, tuple[list[tuple[str, pa.DataType]], list[tuple[Any, ...]]]] = {
    "plain": (
        [("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()), ("i64", pa.int64()), ("f32", pa.float32()),
         ("f64", pa.float64()), ("b", pa.bool_()), ("s", pa.string()), ("d", pa.date32())],
        [
            (127, 32767, 2**31 - 1, 2**63 - 1, 3.4028234663852886e38, 1.7976931348623157e308, True,
             "Grüße, 'quoted' \"so\"", dt.date(9999, 12, 31)),
            (-128, -32768, -(2**31), -(2**63), 1.401298464324817e-45, 5e-324, False, "", dt.date(1, 1, 1)),
            (None,) * 9,
        ],
    ),
    "zoned": (
        [("at", pa.timestamp("us", "UTC"))],
        [(dt.datetime(2024, 3, 31, 1, 30, 0, 123456, UTC),), (dt.datetime(1, 1, 1, tzinfo=UTC),), (None,),
         (dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),), (dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),)],
    ),
    "local": (
        [("at", pa.timestamp("us"))],
        [(dt.datetime(2024, 3, 31, 2, 30, 0, 123456),), (dt.datetime(1, 1, 1),), (None,),
         (dt.datetime(9999, 12, 31, 23, 59, 59, 999999),)],
    ),
    "decimals": (
        [("wide", pa.decimal128(38, 10)), ("money", pa.decimal128(9, 2)), ("whole", pa.decimal128(38, 0))],
        [(_WIDE, decimal.Decimal("9999999.99"), decimal.Decimal("9" * 38)),
         (_WIDE.copy_negate(), decimal.Decimal("-0.01"), decimal.Decimal("-" + "9" * 38)), (None,) * 3],
    ),
    "nested": (
        [("one", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
         ("many", pa.list_(pa.struct([("x", pa.float64())]))), ("named", pa.map_(pa.string(), pa.int64()))],
        [({"a": 1, "b": ["x", None]}, [{"x": 1.5}, {"x": None}], [("p", 1), ("q", None)]),
         ({"a": None, "b": []}, [], []), (None, None, None)],
    ),
    "binary": ([("raw", pa.binary())], [(bytes(range(256)),), (b"",), (None,)]),
    "spaced": (
        [("two words", pa.string()), ("a,b;c=(1)", pa.int64()),
         ("one", pa.struct([("in {it}", pa.int32()), ("x y", pa.list_(pa.string()))]))],
        [("x", 2**63 - 1, {"in {it}": 1, "x y": ["a", None]}), ("", None, {"in {it}": None, "x y": []}),
         (None, None, {"in {it}": -1, "x y": [""]})],
    ),
    "dotted": (
        [("a.b", pa.string()), ("a", pa.struct([("b", pa.string()), ("c.d", pa.int64())]))],
        [("flat", {"b": "deep", "c.d": 7}), (None, None)],
    ),
}  # fmt: skip


# What the nested columns hold in a reader that has no nulls for them.
EMPTY: dict[str, Any] = {"one": {"a": None, "b": []}, "many": [], "named": []}

# A table with deletion vectors: the plain one, and beside its rows so many without values that no batch writes them
# anew. Of those some leave.
MARKED = "vectors"
_BESIDE = range(100, 5100)
_GONE = range(100, 200)


def schema_of(kind: str) -> pa.Schema:
    """The user's columns."""
    return pa.schema([("k", pa.int64()), ("t", pa.int64()), *KINDS["plain" if kind == MARKED else kind][0]])


def rows_of(kind: str) -> Rows:
    """What the table holds in the end, by key."""
    names = schema_of(kind).names
    rows = [(key, 10, *values) for key, values in enumerate(KINDS["plain" if kind == MARKED else kind][1])]
    if kind == MARKED:
        rows += [(key, 1, *(None,) * (len(names) - 2)) for key in _BESIDE if key not in _GONE]
    return [dict(zip(names, row, strict=True)) for row in rows]


def write_table(folder: Path, kind: str) -> Path:
    """Written in three batches, so that rows were replaced and keys have left the table."""
    import numpy as np

    columns, marked = schema_of(kind), kind == MARKED
    options = (
        {"buckets": "1", "engine": "vectors", "indexLocation": str(folder / "index")} if marked else {"buckets": "2"}
    )
    sink = Sink(folder, columns, {"key": "k", "eventTime": "t", **options})
    wanted = [tuple(row.values()) for row in rows_of(kind) if row["t"] == 10]
    empty = (None,) * (len(columns) - 2)
    gone = [len(wanted), *(_GONE if marked else ())]
    sink.batch(0, [sink.rows([(key, 1, *empty) for key in (*range(len(wanted) + 1), *(_BESIDE if marked else ()))])])
    sink.batch(1, [sink.rows(wanted, seq=10_000)])
    deletions = [(key, 2, *empty) for key in gone]
    sink.batch(2, [sink.rows(deletions, seq=20_000, deleted=np.ones(len(gone), dtype=bool))])
    assert marked == any(sink.path.rglob("deletion_vector_*.bin"))
    return sink.path


def same(found: Rows, wanted: Rows) -> bool:
    """Whether a reader found these rows, without the sink's own columns, and no others."""
    ours = [{name: row[name] for name in wanted[0]} for row in sorted(found, key=lambda row: row["k"])]
    return ours == wanted


def known(found: Rows, wanted: Rows) -> Rows:
    """Of the rows that a reader found those whose key has this time."""
    times = {(row["k"], row["t"]) for row in wanted}
    return [row for row in found if (row["k"], row["t"]) in times]


def to_milliseconds(at: dt.datetime | None) -> dt.datetime | None:
    """The nearest time of whole milliseconds; of those that there are, where the year 9999 ends."""
    if at is None:
        return None
    whole = at.replace(microsecond=at.microsecond // 1000 * 1000)
    try:
        return whole + dt.timedelta(milliseconds=at.microsecond % 1000 >= 500)
    except OverflowError:
        return whole
