"""Partial updates: each part of a key's row is the newest one's, in any order, any batches, and by either engine."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.sink import Sink
from kit.splits import split

from upstream import LatestTable
from upstream.conf.errors import MalformedRowError, OptionError, SchemaError, TableError
from upstream.delta_format.latest_table import ORDERS
from upstream.sink.merge import task_rows

ENGINES = ("rewrite", "vectors")
NAMES = ("k", "t", "note", "speed", "lat", "lon", "p")
COLUMNS = pa.schema([(name, pa.int64()) for name in NAMES])
GROUP = "lat, lon by p"
CHOICES = (
    {"nullMeans": "unchanged"},
    {"nullMeans": "unchanged: speed"},
    {"columnGroups": GROUP},
    {"columnGroups": GROUP, "nullMeans": "unchanged: lat, speed"},
    {"columnGroups": GROUP, "nullMeans": "unchanged"},
)


@dataclasses.dataclass(frozen=True)
class Row:
    key: int
    t: int
    p: int | None
    has: tuple[bool, ...]  # of note, speed, lat and lon
    gone: bool
    seq: int = 0  # which is every value

    def values(self) -> dict[str, int | None]:
        shown = dict(zip(("note", "speed", "lat", "lon"), (self.seq if has else None for has in self.has), strict=True))
        return {"k": self.key, "t": self.t, **shown, "p": self.p}


ROWS = st.lists(
    st.builds(
        Row, st.integers(0, 2), st.integers(0, 5), st.none() | st.integers(0, 5), st.tuples(*[st.booleans()] * 4),
        st.sampled_from((False, False, False, True)),
    ),
    max_size=25,
)  # fmt: skip


def model(rows: list[Row], options: dict[str, str]) -> dict[int, tuple[Any, ...]]:
    """The table's rows: each column is folded by itself, over all rows in the column's order."""
    word, _, names = options.get("nullMeans", "").partition(": ")
    alone = NAMES[2:] if word and not names else names.split(", ")
    grouped = ("lat", "lon", "p") if "columnGroups" in options else ()
    found: dict[int, tuple[Any, ...]] = {}
    for key in {row.key for row in rows}:
        mine = sorted((row for row in rows if row.key == key), key=lambda row: (row.t, row.seq))
        deletion = max(((row.t, row.seq) for row in mine if row.gone), default=(-1, -1))
        newest = mine[-1]
        live = not newest.gone
        shown: dict[str, Any] = {"k": key, "t": newest.t}
        for name in NAMES[2:]:
            by = "p" if name in grouped else "t"
            given_to = [
                row for row in mine
                if not row.gone and row.values()[by] is not None and (row.values()[by], row.seq) > deletion
                and not (name in alone and row.values()[name] is None)
            ]  # fmt: skip
            if name in grouped or name in alone:
                last = max(given_to, key=lambda row: (row.values()[by], row.seq), default=None)
                shown[name] = None if last is None else last.values()[name]
                live = live or (name in grouped and last is not None)
            else:
                shown[name] = None if newest.gone else newest.values()[name]
        if live:
            found[key] = tuple(shown[name] for name in NAMES[1:])
    return found


def as_batch(sink: Sink, rows: list[Row]) -> pa.RecordBatch:
    values = [tuple(row.values()[name] for name in NAMES) for row in rows]
    marks = np.array([row.gone for row in rows], dtype=np.bool_)
    return sink.rows(values, seq=[row.seq for row in rows], deleted=marks)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rows=ROWS, options=st.sampled_from(CHOICES))
def test_the_table_is_that_of_a_fold(new_sink, engine, data, rows, options):
    numbered = [dataclasses.replace(row, seq=seq) for seq, row in enumerate(rows)]
    sink = new_sink(COLUMNS, buckets="2", maintenance="off", **options)
    for batch_id, batch in enumerate(split(data, data.draw(st.permutations(numbered)))):
        sink.options = {**sink.options, "engine": data.draw(st.sampled_from(ENGINES))} if batch_id else sink.options
        tasks = [[as_batch(sink, part) for part in split(data, task)] for task in split(data, batch)]
        summary = sink.batch(batch_id, *tasks)
        assert sink.batch(batch_id, *tasks) is None, "a repeat"
        if summary is not None:
            assert summary.updates == summary.applied + summary.superseded
            assert summary.keys == sink.table().num_rows
    if rows:
        assert sink.latest() == model(numbered, options)
        assert LatestTable(sink.path).check().healthy
    del engine


def test_spilled_rows_are_combined_as_any(new_sink, monkeypatch):
    monkeypatch.setattr(task_rows, "_MOST_ROWS", 2)
    monkeypatch.setattr(task_rows, "_COALESCE_AT", 3)
    sink = new_sink(COLUMNS, nullMeans="unchanged")
    rows = [Row(n % 5, n % 3, None, (n % 2 == 0, n % 3 == 0, n % 5 < 3, True), n % 11 == 0, n) for n in range(40)]
    sink.batch(0, [as_batch(sink, rows[at : at + 4]) for at in range(0, 40, 4)])
    assert sink.latest() == model(rows, {"nullMeans": "unchanged"})


def test_what_a_batch_counts(make_sink):
    sink = make_sink(COLUMNS, nullMeans="unchanged", deadLetterRows="conflicts")
    first = sink.batch(0, [sink.rows([(1, 5, None, 10, None, None, None), (1, 3, 7, 11, None, None, None)])])
    assert (first.applied, first.superseded, first.conflicts) == (1, 1, 0)
    assert sink.latest() == {1: (5, 7, 10, None, None, None)}
    late = sink.batch(1, [sink.rows([(1, 4, 8, 12, 1, None, None), (1, 2, 1, 1, 1, None, None)], seq=10)])
    assert (late.applied, late.superseded, late.older) == (1, 1, 0)
    assert sink.latest() == {1: (5, 8, 10, 1, None, None)}
    # Of one time, and other columns: no conflict. Then one column with two values.
    assert sink.batch(2, [sink.rows([(1, 5, None, None, None, 3, None)], seq=20)]).conflicts == 0
    assert sink.batch(3, [sink.rows([(1, 5, None, 13, None, None, None)], seq=30)]).conflicts == 1
    assert sink.latest() == {1: (5, 8, 13, 1, 3, None)}
    older = sink.batch(4, [sink.rows([(1, 1, 0, 0, 0, 0, None)], seq=40)])
    assert (older.applied, older.older, older.deleted) == (0, 1, 0)
    gone = sink.batch(5, [sink.rows([(1, 6, None, None, None, None, None)], seq=50, deleted=[True])])
    assert (gone.applied, gone.deleted, gone.keys) == (1, 1, 0)
    again = sink.batch(6, [sink.rows([(1, 7, None, None, 9, None, None), (1, 4, 1, 1, 1, 1, None)], seq=60)])
    assert (again.applied, again.keys) == (1, 1)
    assert sink.latest() == {1: (7, None, None, 9, None, None)}


def test_a_group_that_is_newer_than_a_deletion_stays(make_sink):
    sink = make_sink(COLUMNS, columnGroups=GROUP)
    sink.batch(0, [sink.rows([(1, 1, 5, 5, 7, 8, 9)])])
    gone = sink.batch(1, [sink.rows([(1, 4, None, None, None, None, None)], seq=10, deleted=[True])])
    assert (gone.applied, gone.deleted, gone.keys) == (1, 0, 1)
    assert sink.latest() == {1: (4, None, None, 7, 8, 9)}
    assert sink.batch(2, [sink.rows([(1, 3, 1, 1, 1, 1, 1)], seq=20)]).applied == 0
    sink.batch(3, [sink.rows([(1, 10, None, None, None, None, None)], seq=30, deleted=[True])])
    assert sink.latest() == {}


def test_a_row_by_itself_records_no_order(make_sink):
    sink = make_sink(COLUMNS, nullMeans="unchanged")
    sink.batch(0, [sink.rows([(1, 5, 1, 2, 3, 4, 5), (2, 5, None, 2, 3, 4, 5)])])
    assert sink.table().column(ORDERS).null_count == 2
    sink.batch(1, [sink.rows([(2, 7, 1, None, 3, 4, 5)], seq=10)])
    (found,) = [row[ORDERS] for row in sink.table().to_pylist() if row["k"] == 2]
    assert found == [{"part": "speed", "at": 5, "seq": 1}]


def test_new_columns_keep_the_values_of_those_that_a_query_lacks(make_sink):
    narrow = make_sink(pa.schema(list(COLUMNS)[:4]), nullMeans="unchanged")
    narrow.batch(0, [narrow.rows([(1, 5, 1, 2)])])
    wide = make_sink(COLUMNS, query_id="query-2", nullMeans="unchanged", schemaEvolution="add")
    wide.batch(0, [wide.rows([(1, 4, 9, 9, 9, None, 9), (1, 6, None, 3, None, 4, None)], seq=10)])
    back = make_sink(narrow.columns, query_id="query-3", nullMeans="unchanged", schemaEvolution="add")
    back.batch(0, [back.rows([(1, 8, 7, None)], seq=20)])
    assert wide.latest() == {1: (8, 7, 3, 9, 4, 9)}


def test_rows_without_numbers_come_after_those_held(make_sink):
    sink = make_sink(COLUMNS, system=False, nullMeans="unchanged")
    sink.batch(0, [sink.rows([(1, 5, 1, None, 1, 1, 1), (1, 5, 2, 2, None, 2, 2)])])
    sink.batch(1, [sink.rows([(1, 5, None, 3, None, None, None)]), sink.rows([(1, 4, 9, 9, 9, 9, 9)])])
    assert sink.latest() == {1: (5, 2, 3, 1, 2, 2)}


def test_dead_letters_and_followers_see_only_the_users_columns(make_sink):
    sink = make_sink(COLUMNS, nullMeans="unchanged", deadLetterRows="conflicts")
    sink.write(0, [sink.rows([(1, 5, 1, 2, 3, 4, 5)])])
    sink.write(1, [sink.rows([(1, 5, 2, 2, 3, 4, 5)], seq=10)])
    (payload,) = DeltaTable(str(sink.checkpoint / "dead_letters")).to_pyarrow_table().column("payload").to_pylist()
    assert '"note":1' in payload.replace(" ", "")
    assert ORDERS not in payload
    assert LatestTable(sink.path).to_polars().columns == list(NAMES)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"nullMeans": "unchanged", "eventTime": ""}, OptionError, "nullMeans or columnGroups needs eventTime"),
        ({"nullMeans": "unchanged", "history": "latest 2"}, OptionError, "history=latest"),
        ({"nullMeans": "kept"}, OptionError, "null, unchanged, or unchanged"),
        ({"columnGroups": "lat, lon"}, OptionError, "lat, lon by position_time"),
        ({"columnGroups": "lat by p; lon by p"}, SchemaError, "'p', which is in a group already"),
        ({"columnGroups": "lat by t"}, SchemaError, "'t', which decides"),
        ({"columnGroups": "lat by q"}, SchemaError, "'q' is not among"),
        ({"nullMeans": "unchanged: k"}, SchemaError, "nullMeans names k"),
        ({"nullMeans": "unchanged", "sequenceBy": "t, p", "eventTime": ""}, SchemaError, "order by one column"),
    ],
)
def test_what_cannot_be_combined_is_refused_by_name(make_sink, options, error, message):
    with pytest.raises(error, match=message):
        make_sink(COLUMNS, **options).writer()


def test_another_query_has_to_choose_the_same(make_sink):
    sink = make_sink(COLUMNS, columnGroups=GROUP, nullMeans="unchanged: speed")
    sink.batch(0, [sink.rows([(1, 5, 1, 2, 3, 4, 5)])])
    make_sink(COLUMNS, query_id="query-2", columnGroups="LAT,lon BY `p`", nullMeans="UNCHANGED:speed").writer()
    with pytest.raises(TableError, match=r"nullMeans unchanged: speed, this query has unset.*option nullMeans"):
        make_sink(COLUMNS, query_id="query-2", columnGroups=GROUP).writer()
    with pytest.raises(TableError, match=r"columnGroups lat,lon by p, this query has unset"):
        make_sink(COLUMNS, query_id="query-2", nullMeans="unchanged: speed").writer()
    with pytest.raises(TableError, match="has partial updates"):
        LatestTable(sink.path).set_history("latest 2")


def test_rows_that_a_partial_update_cannot_be_made_of(make_sink):
    sink = make_sink(COLUMNS, nullMeans="unchanged")
    with pytest.raises(MalformedRowError, match="represents 3 updates"):
        sink.batch(0, [sink.rows([(1, 5, 1, 2, 3, 4, 5)], covered=np.array([3]))])
    columns = COLUMNS.set(6, pa.field("p", pa.float64()))
    other = make_sink(columns, columnGroups=GROUP)
    with pytest.raises(MalformedRowError, match=r"orders columns by p, of another type than t"):
        other.batch(0, [other.rows([(1, 5, 1, 2, 3, 4, 5.0)], deleted=[True])])
    with pytest.raises(MalformedRowError, match="NaN in the column 'p'"):
        other.batch(0, [other.rows([(1, 5, 1, 2, 3, 4, float("nan"))])])
    with pytest.raises(SchemaError, match="deleteWhen, and columnGroups in the order of p"):
        make_sink(columns.append(pa.field("gone", pa.bool_())), columnGroups=GROUP, deleteWhen="gone").writer()


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32(), pa.float64(), pa.int16()], ids=str
)
def test_orders_of_any_type_and_columns_of_any_name(make_sink, kind):
    columns = pa.schema([("k", pa.string()), ("t", kind), ("a b", pa.list_(pa.string())), ("p,q", kind)])
    sink = make_sink(columns, nullMeans="unchanged", columnGroups="`a b` by `p,q`")

    def at(number: int) -> Any:
        return pa.scalar(number, pa.int64() if pa.types.is_timestamp(kind) else pa.int32()).cast(kind).as_py()

    sink.batch(0, [sink.rows([("x", at(5), ["new"], at(7)), ("x", at(9), None, None)])])
    assert sink.latest() == {"x": (at(9), ["new"], at(7))}
    sink.batch(1, [sink.rows([("x", at(6), ["old"], at(6)), ("x", at(1), None, at(8))], seq=10)])
    assert sink.latest() == {"x": (at(9), ["new"], at(8))}
    sink.batch(
        2, [sink.rows([("x", at(7), None, None), ("x", at(2), ["newer"], at(9))], seq=20, deleted=[True, False])]
    )
    assert sink.latest() == {"x": (at(9), ["newer"], at(9))}


def test_commands_leave_the_orders_as_they_are(make_sink):
    sink, options = make_sink(COLUMNS, **CHOICES[3]), CHOICES[3]
    rows = [
        Row(n % 7, n * 5 % 6, n % 4 or None, (n % 2 == 0, n % 3 == 0, n % 5 < 3, True), n % 13 == 0, n)
        for n in range(90)
    ]
    sink.batch(0, [as_batch(sink, rows[::3])])
    table = LatestTable(sink.path)
    table.rebucket(3)
    sink.options = {**sink.options, "buckets": "3"}
    sink.batch(1, [as_batch(sink, rows[1::3])])
    table.compact()
    sink.batch(2, [as_batch(sink, rows[2::3])])
    assert sink.latest() == model(rows, options)
    assert table.check().healthy
